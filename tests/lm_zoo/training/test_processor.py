"""A processor that is slow in bfloat16 trains in float32 in its place, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from lm_zoo.layers import processor
from lm_zoo.text.batches import tokenize
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary
from lm_zoo.training import runtime
from lm_zoo.training.config import TrainConfig
from lm_zoo.training.train import train

VOCAB = WordVocabulary([SOS_EOS, UNK, "A", "B"], "upper")
SETTINGS = {"dim": 8, "heads": 1, "feedforward": 8, "layers": 1, "dropout": 0.0}


def cast(dtype: str, device: str = "cpu") -> torch.dtype:
    """What a product is computed in."""
    matrix = torch.ones(2, 2)
    with runtime.autocast(dtype, torch.device(device)):
        return (matrix @ matrix).dtype


@pytest.mark.parametrize(("times", "slow"), [(0.4, False), (2.0, False), (10.0, True)])
def test_slow_is_many_times_as_long_as_in_float32(times: float, slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def least(matrix: Tensor) -> float:
        return times if matrix.dtype == torch.bfloat16 else 1.0

    monkeypatch.setattr(processor, "_least", least)
    assert processor.slow_in_bfloat16.__wrapped__() is slow


def test_the_fastest_product_counts_but_for_the_first() -> None:
    ticks = iter([0.0, 0.5, *(value for start in range(1, 11) for value in (start, start + 1.0 / start))])
    assert processor._least(torch.ones(2, 2), lambda: next(ticks)) == pytest.approx(0.1)


def test_float32_takes_the_place_of_bfloat16_where_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    for slow, dtype in ((False, torch.bfloat16), (True, torch.float32)):
        monkeypatch.setattr(runtime, "slow_in_bfloat16", lambda slow=slow: slow)
        assert cast("bfloat16") == dtype
        assert cast("float32") == torch.float32
        assert not runtime.in_place_of("bfloat16", torch.device("cuda"))


def test_a_run_says_what_it_is_computed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "slow_in_bfloat16", lambda: True)
    data = tokenize(VOCAB, [["A", "B"], ["B"]] * 4)
    for dtype, said in (("bfloat16", ["float32 in the place of bfloat16"]), ("float32", [])):
        lines: list[str] = []
        config = TrainConfig(batch_tokens=32, steps=2, warmup=1, dtype=dtype)
        train("transformer", SETTINGS, VOCAB, data, data, tmp_path / dtype, config, remark=lines.append)
        assert [line for line in lines if "bfloat16" in line] == [
            f"{tmp_path / dtype}: {text}, " + ("in which this processor is many times slower") for text in said
        ]
    assert (tmp_path / "bfloat16" / "log.jsonl").read_text().split() != []
