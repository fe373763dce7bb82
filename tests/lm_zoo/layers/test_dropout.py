"""Dropout: the share that is dropped, the mean that stays."""

from __future__ import annotations

import pytest
import torch

from lm_zoo.layers.dropout import Dropout, locked_dropout


def test_dropout_drops_the_share_and_keeps_the_mean() -> None:
    torch.manual_seed(5)
    dropout = Dropout(0.1)
    y = dropout(torch.ones(50_001))
    assert (y == 0).float().mean().item() == pytest.approx(26 / 256, abs=0.005)
    assert y.mean().item() == pytest.approx(1.0, abs=0.01)
    assert y.max().item() == pytest.approx(256 / 230)  # by the share that is really dropped
    assert torch.equal(dropout.eval()(y), y)
    assert not torch.equal(Dropout(0.5)(y), Dropout(0.5)(y))


@pytest.mark.parametrize("time", [0, 1])
def test_locked_dropout_drops_the_same_units_at_all_times_and_others_in_other_rows(time: int) -> None:
    torch.manual_seed(5)
    y = locked_dropout(torch.ones(40, 40, 50), 0.25, time)
    first = y.select(time, 0)
    assert torch.equal(y, first.unsqueeze(time).expand_as(y))
    assert not torch.equal(first[0], first[1])
    assert (first == 0).float().mean().item() == pytest.approx(0.25, abs=0.04)
    assert first.max().item() == pytest.approx(1 / 0.75)
    module = Dropout(0.5, locked=True)
    assert not torch.equal(module(y), module(y))
    assert torch.equal(module.eval()(y), y)
