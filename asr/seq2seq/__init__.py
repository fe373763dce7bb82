"""Encoder-decoder recognisers in ONNX: sessions, tokens, searches.  Knows errors only, and `rescore`'s small values."""
