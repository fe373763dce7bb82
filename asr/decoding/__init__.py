"""Searches with a trained recogniser, and what they leave.  Knows data and model, LMs, lattices of `rescore`."""
