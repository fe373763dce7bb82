"""Information gain of lookup dictionaries."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import pytest
import torch
from click.testing import CliRunner

from lm_zoo.models.lookup import Lookup
from lm_zoo.registry import save_folder
from lm_zoo.text.batches import tokenize, window_batches
from tests.lm_zoo import zoo
from tests.scripts import load_script

TEXT = [["A", "B", "A"], ["B"], ["A", "A", "B", "B", "A"]]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("egs/shared/information_gain.py")


def lookup() -> Lookup:
    lm = zoo.neural("lookup")
    assert isinstance(lm, Lookup)
    return lm.eval()


def test_entropy_is_that_of_the_weights_position_by_position(script: ModuleType) -> None:
    lm = lookup()
    lm.dictionary.normal_(generator=torch.Generator().manual_seed(0))
    batches = list(window_batches(tokenize(lm.vocab, TEXT), lm.vocab, 4, 2, None))
    found = []
    for inputs, targets in batches:
        output = super(Lookup, lm).hidden(inputs)
        for n, t in (targets >= 0).nonzero().tolist():
            entries = lm.dictionary[lm.slots(inputs)[n, t]]
            weights = (entries @ output[n, t] / math.sqrt(lm.config.dim)).softmax(-1)
            found.append(-float((weights * weights.log()).sum()))
    assert len(found) == sum(len(words) + 1 for words in TEXT)
    assert script.entropy(lm, lm.dictionary, batches) == pytest.approx(sum(found) / len(found), rel=1e-5)


def test_equal_entries_tell_nothing(script: ModuleType) -> None:
    lm = lookup()
    batches = list(window_batches(tokenize(lm.vocab, TEXT), lm.vocab, 4, 2, None))
    same = torch.ones_like(lm.dictionary)
    assert script.entropy(lm, same, batches) == pytest.approx(math.log(lm.config.entries), rel=1e-5)


def test_a_row_an_lm(script: ModuleType, tmp_path: Path) -> None:
    save_folder(tmp_path / "lookup", lookup(), "lookup", {})
    save_folder(tmp_path / "lstm", zoo.neural("lstm"), "lstm", {})
    (tmp_path / "text").write_text("".join(" ".join(words) + "\n" for words in TEXT))
    shown = CliRunner().invoke(script.main, [str(tmp_path / "lookup"), "--text", str(tmp_path / "text")])
    assert shown.exit_code == 0, shown.output
    cells = shown.output.splitlines()[-1].strip("| ").split(" | ")
    assert float(cells[-1]) == pytest.approx(float(cells[-3]) - float(cells[-2]), abs=2e-3)
    shown = CliRunner().invoke(script.main, [str(tmp_path / "lstm"), "--text", str(tmp_path / "text")])
    assert shown.exit_code == 2
    assert "expected a lookup LM; a LSTM has no dictionary" in shown.output
    (tmp_path / "empty").write_text("")
    shown = CliRunner().invoke(script.main, [str(tmp_path / "lookup"), "--text", str(tmp_path / "empty")])
    assert shown.exit_code == 2 and "no sentence" in shown.output
