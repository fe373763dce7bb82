"""Training of LMs: loop, settings, checkpoints, what a run is made of.  Knows all of the zoo but `icefall`."""
