"""Small untrained LMs of every kind, for the tests that run over the whole zoo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lm_zoo.inference.interpolation import InterpolatedLM
from lm_zoo.models.bayesian import BayesianAverage
from lm_zoo.registry import build, load
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary
from tests.lm_zoo import hugging_face

WORDS = [SOS_EOS, UNK, *["A", "B", "C", "D", "E", "F", "G", "H"]]
SMALL = {"dim": 16, "heads": 2, "feedforward": 24, "layers": 2}
NEURAL: dict[str, tuple[str, dict[str, Any]]] = {
    "transfornn": ("transfornn", SMALL),
    "transfornn-untied-no-positions": ("transfornn", {**SMALL, "tied": False, "positions": False}),
    "transfornn-one-rnn-layer": ("transfornn", {**SMALL, "layers": 1, "rnn_layers": 1}),
    "transfornn-output-norm": ("transfornn", {**SMALL, "output_norm": True}),
    "transfornn-residual": ("transfornn", {**SMALL, "output_norm": True, "rnn_residual": True}),
    "transformer": ("transformer", SMALL),
    "transformer-gelu-no-positions": ("transformer", {**SMALL, "positions": False, "activation": "gelu"}),
    "transformer-pre-norm": ("transformer", {**SMALL, "norm": "pre"}),
    "transformer-of-espnet": ("transformer", {**SMALL, "norm": "pre", "norm_eps": 1e-12, "tied": False}),
    "bayesian": ("bayesian", SMALL),
    "bayesian-embedding": ("bayesian", {**SMALL, "uncertain": "embedding"}),
    "lookup": ("lookup", {**SMALL, "slots": 7, "entries": 3}),
    "lookup-pre-norm-positional": (
        "lookup",
        {**SMALL, "slots": 50, "entries": 2, "order": 3, "hashing": "positional", "norm": "pre", "residual": False},
    ),
    "ngram-embedding": ("ngram-embedding", {**SMALL, "slots": 7}),
    "lstm": ("lstm", {"dim": 16}),
    "lstm-output-norm": ("lstm", {"dim": 16, "output_norm": True}),
    "lstm-untied": ("lstm", {"dim": 16, "rnn_layers": 1, "tied": False}),
    "lstm-small-embedding": ("lstm", {"dim": 16, "embedding_dim": 8, "tied": False}),
    "icefall-transformer": ("icefall-transformer", {**SMALL, "embedding_dim": 16}),
    "icefall-transformer-untied": ("icefall-transformer", {**SMALL, "embedding_dim": 8, "tied": False}),
    "speechbrain-transformer": ("speechbrain-transformer", SMALL),
    "speechbrain-transformer-pre-norm": ("speechbrain-transformer", {**SMALL, "norm": "pre", "activation": "relu"}),
    "speechbrain-rnn": ("speechbrain-rnn", {"dim": 16, "embedding_dim": 8, "feedforward": 12}),
    "speechbrain-rnn-two-blocks": (
        "speechbrain-rnn",
        {"dim": 16, "rnn_layers": 1, "embedding_dim": 8, "blocks": 2, "feedforward": 12, "activation": "gelu"},
    ),
}
ALL = [*NEURAL, "bayesian-average", "ngram", "interpolated", "hf", "hf-recurrent"]
NEEDS = {"ngram": "kenlm", "hf": "transformers", "hf-recurrent": "transformers"}

# A made-up bigram ARPA over a few of the words; log10.
ARPA = """\\data\\
ngram 1=7
ngram 2=4

\\1-grams:
-1.2\t<unk>\t0
-99\t<s>\t-0.3
-0.9\t</s>\t0
-0.7\tA\t-0.2
-0.8\tB\t-0.4
-1.0\tC\t-0.1
-0.6\tD\t0

\\2-grams:
-0.4\t<s> A
-0.3\tA B
-0.5\tB </s>
-0.2\tC D

\\end\\
"""


def neural(name: str) -> Any:
    """A neural LM of the table above, seeded, in evaluation mode; weights large enough that contexts matter."""
    kind, settings = NEURAL[name]
    torch.manual_seed(3)
    lm = build(kind, WordVocabulary(WORDS, "upper"), settings)
    with torch.no_grad():
        for tensor in [*lm.parameters(), *(buffer for buffer in lm.buffers() if buffer.dim() > 1)]:
            tensor.add_(0.2 * torch.randn_like(tensor))
    return lm.eval()


def make(name: str, folder: Path) -> Any:
    """Any LM of `ALL`; skips the test where its package is not there."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{name} LMs need {NEEDS[name]}")
    if name == "ngram":
        from lm_zoo.ngram.kenlm_lm import NgramLM

        path = folder / "tiny.arpa"
        path.write_text(ARPA)
        return NgramLM(path)
    if name == "hf":
        return load(f"hf:{hugging_face.words(folder / 'words')}")
    if name == "hf-recurrent":
        return load(f"hf:{hugging_face.words(folder / 'words', hugging_face.lfm2_model)}")
    if name == "interpolated":
        return InterpolatedLM([neural("lstm"), neural("transfornn")], [0.3, 0.7])
    if name == "bayesian-average":
        return BayesianAverage(neural("bayesian"), samples=3)
    return neural(name)
