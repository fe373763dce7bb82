"""Recipes, run end to end on tiny data."""
