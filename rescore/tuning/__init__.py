"""Scales from a development set: exact line searches over lists and lattices.  Knows lattices and what is below."""
