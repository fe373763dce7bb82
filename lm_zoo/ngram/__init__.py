"""Back-off n-grams: estimated, read, written, queried.  Knows the protocol and text."""

from lm_zoo.ngram.kenlm_lm import NgramLM as NgramLM  # where it was until 0.1
