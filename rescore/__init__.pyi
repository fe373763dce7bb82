"""The names of `import rescore as rs` for type checkers; the module itself loads them when they are used."""

from lm_zoo.errors import LMError as LMError
from rescore.api.evaluation import compare as compare
from rescore.api.evaluation import wer as wer
from rescore.api.generated import from_generate as from_generate
from rescore.api.language_models import load_lm as load_lm
from rescore.api.lattices import Lattice as Lattice
from rescore.api.lattices import Lattices as Lattices
from rescore.api.lattices import read_lattices as read_lattices
from rescore.api.lists import Lists as Lists
from rescore.api.lists import read_nbest as read_nbest
from rescore.api.scoring import score as score
from rescore.api.texts import read_text as read_text
from rescore.api.tuning import combine as combine
from rescore.api.tuning import tune as tune
from rescore.api.weights import read_weights as read_weights
from rescore.errors import RescoreError as RescoreError
from rescore.types import Hypothesis as Hypothesis
from rescore.types import NbestList as NbestList
from rescore.types import Weights as Weights

__version__: str
