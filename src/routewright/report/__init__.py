"""What people see of a study: terminal, figures, documents."""
