"""What earlier studies teach about knobs, and how the next study starts from it."""
