"""Until 0.1: `rescore.lattices.k2_compose`."""

from rescore.lattices.k2_compose import rescore_with_ngram as rescore_with_ngram
