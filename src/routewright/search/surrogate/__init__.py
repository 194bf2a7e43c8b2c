"""A search method that models latency, accuracy, failures and cost of routes."""
