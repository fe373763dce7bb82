"""A zoo of language models for rescoring: one protocol, one training loop, one folder format."""
