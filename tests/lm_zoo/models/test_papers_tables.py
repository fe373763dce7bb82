"""The parameter counts printed in Tables 1 and 2 of the TransfoRNN paper, to the digit.

The counts show how the models were built: the Transformer and LSTM have input and output embedding tied, TransfoRNN
has them apart (although Section 5 says tied), and the output layer has a bias.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lm_zoo.registry import model_class, state_tensors

PTB, WIKITEXT2 = 10_000, 33_278

# dim, kind, layers (None: LSTM), LSTM layers (None: Transformer), #param on PTB and WikiText-2
TABLE_1 = [
    (512, "transformer", 2, None, "9.3M", "21.3M"),
    (512, "transformer", 4, None, "13.5M", "25.5M"),
    (512, "transformer", 8, None, "22.0M", "33.9M"),
    (512, "transformer", 16, None, "38.8M", "50.7M"),
    (512, "transfornn", 2, 2, "18.7M", "42.5M"),
    (512, "transfornn", 4, 2, "22.9M", "46.7M"),
    (512, "transfornn", 8, 2, "31.3M", "55.1M"),
    (512, "lstm", None, 2, "9.3M", "21.3M"),
    (1024, "transformer", 2, None, "22.9M", "46.7M"),
    (1024, "transformer", 4, None, "35.5M", "59.3M"),
    (1024, "transformer", 8, None, "60.7M", "84.5M"),
    (1024, "transformer", 16, None, "111.1M", "134.9M"),
    (1024, "transfornn", 2, 2, "49.9M", "97.6M"),
    (1024, "transfornn", 4, 2, "62.5M", "110.2M"),
    (1024, "transfornn", 8, 2, "87.7M", "135.4M"),
    (1024, "lstm", None, 2, "27.0M", "50.9M"),
]
TABLE_2 = [
    (512, "transfornn", 2, 1, "16.6M", "40.4M"),
    (512, "transfornn", 2, 2, "18.7M", "42.5M"),
    (512, "transfornn", 2, 3, "20.8M", "44.6M"),
    (1024, "transfornn", 2, 1, "41.5M", "89.2M"),
    (1024, "transfornn", 2, 2, "49.9M", "97.6M"),
    (1024, "transfornn", 2, 3, "58.3M", "106.0M"),
]


class SizeOnly:
    """Stands for a vocabulary of some size."""

    bos, eos, unk, case = 0, 0, 1, "lower"

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def count(kind: str, vocab: int, settings: dict[str, Any]) -> int:
    cls = model_class(kind)
    lm = cls(SizeOnly(vocab), cls.Config(**settings))
    return sum(tensor.numel() for tensor in state_tensors(lm).values())


@pytest.mark.parametrize(("dim", "kind", "layers", "rnn_layers", "ptb", "wikitext2"), TABLE_1 + TABLE_2)
def test_parameters(
    dim: int,
    kind: str,
    layers: int | None,
    rnn_layers: int | None,
    ptb: str,
    wikitext2: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings: dict[str, Any] = {"dim": dim, "tied": kind != "transfornn"}
    if layers is not None:
        settings |= {"layers": layers, "heads": 8, "feedforward": 1024}
    if rnn_layers is not None:
        settings["rnn_layers"] = rnn_layers
    for name in ("normal_", "uniform_", "xavier_uniform_", "kaiming_uniform_"):  # counting needs no random weights
        monkeypatch.setattr(torch.nn.init, name, lambda tensor, *args, **kwargs: tensor)
    monkeypatch.setattr(torch.Tensor, "normal_", lambda tensor, *args, **kwargs: tensor)
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda tensor, *args, **kwargs: tensor)
    assert f"{count(kind, PTB, settings) / 1e6:.1f}M" == ptb
    assert f"{count(kind, WIKITEXT2, settings) / 1e6:.1f}M" == wikitext2


def test_untied_adds_the_output_matrix() -> None:
    small = {"dim": 16, "heads": 2, "layers": 2}
    tied, apart = (count("transfornn", 100, {**small, "tied": tied}) for tied in (True, False))
    assert apart - tied == 100 * 16
