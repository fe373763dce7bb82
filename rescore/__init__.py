"""Lattice and N-best rescoring with neural and n-gram language models."""

__version__ = "0.1.0"
