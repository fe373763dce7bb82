"""Dropout: the share that is dropped, the mean that stays."""

from __future__ import annotations

import pytest
import torch

from lm_zoo.layers.dropout import Dropout


def test_dropout_drops_the_share_and_keeps_the_mean() -> None:
    torch.manual_seed(5)
    dropout = Dropout(0.1)
    y = dropout(torch.ones(50_001))
    assert (y == 0).float().mean().item() == pytest.approx(26 / 256, abs=0.005)
    assert y.mean().item() == pytest.approx(1.0, abs=0.01)
    assert torch.equal(dropout.eval()(y), y)
    assert not torch.equal(Dropout(0.5)(y), Dropout(0.5)(y))
