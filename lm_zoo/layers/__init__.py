"""Layers and losses that the models share.  Knows torch and errors alone."""
