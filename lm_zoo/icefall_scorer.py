"""Until 0.1: `lm_zoo.icefall.lm_scorer`."""

from lm_zoo.icefall.lm_scorer import LmScorer as LmScorer
from lm_zoo.icefall.lm_scorer import ZooLM as ZooLM
