"""Text, vocabularies and batches of tokens.  Knows files and errors alone."""
