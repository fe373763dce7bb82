"""Training of the recogniser: loop, step, learning rates, averages of checkpoints.  Knows data and model."""
