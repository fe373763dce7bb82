"""The LMs, one file each, its paper in the header.  Knows inference, n-grams, text and layers; not the training."""
