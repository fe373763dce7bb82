"""LMs of icefall, ESPnet and Kaldi, read and written; the LMs of the zoo in icefall.  Knows the registry and below."""
