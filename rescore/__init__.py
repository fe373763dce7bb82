"""Lattice and N-best rescoring with neural and n-gram language models.

In Python, `import rescore as rs`:

    dev = rs.score(rs.read_nbest("dev.jsonl.gz"), "transfornn")
    weights = rs.tune(dev, "dev.txt")

`dir(rs)` has the names, each with a docstring.  They are loaded when they are first used.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Where each name is; their types are in `__init__.pyi`.
_NAMES = {
    "load_lm": "rescore.api.language_models",
    "Lists": "rescore.api.lists",
    "read_nbest": "rescore.api.lists",
    "from_generate": "rescore.api.generated",
    "score": "rescore.api.scoring",
    "combine": "rescore.api.tuning",
    "Lattice": "rescore.api.lattices",
    "Lattices": "rescore.api.lattices",
    "read_lattices": "rescore.api.lattices",
    "tune": "rescore.api.tuning",
    "read_weights": "rescore.api.weights",
    "compare": "rescore.api.evaluation",
    "wer": "rescore.api.evaluation",
    "read_text": "rescore.api.texts",
    "Hypothesis": "rescore.types",
    "NbestList": "rescore.types",
    "Weights": "rescore.types",
    "RescoreError": "rescore.errors",
    "LMError": "lm_zoo.errors",
}
__all__ = ["__version__", *_NAMES]


def __getattr__(name: str) -> Any:
    """Loads a name (PEP 562)."""
    if name not in _NAMES:
        raise AttributeError(f"module 'rescore' has no attribute '{name}'; it has: {', '.join(_NAMES)}")
    return getattr(import_module(_NAMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
