"""What priors are worth: searches with and without one, on recorded tables."""
