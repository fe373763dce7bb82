"""Speech recognition for the lattices and N-best lists: a pruned RNN-T with an S4former encoder, on lhotse data."""
