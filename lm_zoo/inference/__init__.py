"""Scores of many sentences at once: tries, trees, products, caches, mixtures.  Knows the protocol, text and layers."""
