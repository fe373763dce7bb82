"""Which settings a search reads, as `DecodeOptions.used` says."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch

from asr.decoding.decode import Decoder
from asr.decoding.options import LABEL_SYNC, METHODS, DecodeOptions
from tests.asr.tiny import Tiny, pieces

SIZE = 18
SETTINGS = {item.name for item in fields(DecodeOptions)}
OF_K2 = {"max_states", "ngram_lm_scale"}  # the second is read where the graph is


class Watched(DecodeOptions):
    """Keeps the names of settings that are read."""

    def __getattribute__(self, name: str) -> Any:
        if name in SETTINGS:
            read = object.__getattribute__(self, "__dict__").setdefault("read", set())
            read.add(name)
        return object.__getattribute__(self, name)


@pytest.mark.parametrize(
    ("method", "lattices"),
    [*((method, False) for method in METHODS), *((method, True) for method in METHODS if method != LABEL_SYNC)],
)
def test_searches_read_what_they_say(method: str, lattices: bool) -> None:
    model = Tiny(SIZE)
    encoded, lengths = model.encoded(9, 7)
    model.ctc = torch.nn.Linear(encoded.shape[2], SIZE)
    options = Watched(method, lattices=lattices)
    options.__dict__["read"] = set()
    Decoder(model, pieces(SIZE), options).search(encoded, lengths, ["a", "b"])
    assert options.__dict__["read"] | OF_K2 | {"lattices"} == DecodeOptions(method, lattices=lattices).used | OF_K2
