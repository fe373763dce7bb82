"""Word errors and what they are worth: WER, significance, rare words.  Knows words and files; no lattices, no LMs."""
