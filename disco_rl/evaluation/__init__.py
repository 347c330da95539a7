"""Evaluation: episodes over a set of samples, scored, with intervals."""
