"""What a run will need, reckoned from its config alone: no model, no GPU, no data."""
