"""The recogniser: S4former encoder, decoder, joiner, RNN-T loss, configuration, files.  Knows torch and errors."""
