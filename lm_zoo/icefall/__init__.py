"""LMs of icefall, ESPnet, SpeechBrain and Kaldi, and the zoo's LMs in icefall.  Knows the registry and below."""
