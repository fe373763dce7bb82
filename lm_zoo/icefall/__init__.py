"""LMs of icefall, ESPnet and Kaldi, read and written; the zoo's LMs in icefall.  Knows the registry and what is below."""
