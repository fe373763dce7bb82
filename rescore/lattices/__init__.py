"""Operations on lattices: build, prune, paths, posteriors, LMs over them.  Knows evaluation and weights, no formats."""
