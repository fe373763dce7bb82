"""Back-off n-grams: estimated, read, written, queried.  Knows the protocol and text."""
