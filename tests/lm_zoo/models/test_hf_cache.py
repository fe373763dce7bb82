"""The caches of Hugging Face models, under the names that versions of transformers have for them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from lm_zoo.models import hf_causal
from lm_zoo.registry import load
from lm_zoo.testing.test_lm import step_scores
from tests.lm_zoo import hugging_face


class _WithCache:
    def forward(self, cache: Any) -> None: ...


class _WithKeysAndValues:
    def forward(self, past_key_values: Any, cache: Any = None) -> None: ...


class _Adapter:
    def forward(self, **arguments: Any) -> None: ...


def test_a_cache_goes_by_the_name_that_the_model_has_for_it(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="Hugging Face models need transformers")
    from transformers.modeling_outputs import CausalLMOutputWithPast

    names = [hf_causal._cache_name(model()) for model in (_WithCache, _WithKeysAndValues, _Adapter)]
    assert names[:2] == ["cache", "past_key_values"] and names[2] in CausalLMOutputWithPast.__dataclass_fields__
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # transformers' own, of the former name
        lm = load(f"hf:{hugging_face.gpt2(tmp_path / 'gpt2')}")
        step_scores(lm, [1, 2])
