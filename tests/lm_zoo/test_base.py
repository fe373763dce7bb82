"""The protocol of LMs: what an LM does not give has a default, and nobody asks whether it is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lm_zoo.base import LanguageModel, WordLM
from lm_zoo.errors import LMError
from lm_zoo.inference.perplexity import score_text
from lm_zoo.text.vocabulary import Vocabulary
from lm_zoo.training.config import TrainConfig
from lm_zoo.training.distributed import Ranks
from lm_zoo.training.train import train
from rescore.types import Hypothesis, NbestList
from rescore.workflows.columns import LMColumn
from rescore.workflows.scoring import score_batch
from tests.lm_zoo import zoo
from tests.lm_zoo.training.test_train import text

ROOT = Path(__file__).resolve().parents[2]


def test_no_lm_is_asked_what_it_has() -> None:
    asks = re.compile(r"\b(hasattr|getattr)\(([\w.]+\.)?lm, \"\w+\"")
    files = [file for package in ("lm_zoo", "rescore", "asr") for file in (ROOT / package).rglob("*.py")]
    found = {
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if asks.search(line)
    }
    assert found == set()


@pytest.mark.parametrize("name", zoo.ALL)
def test_every_lm_follows_the_protocol(name: str, tmp_path: Path) -> None:
    lm = zoo.make(name, tmp_path)
    assert isinstance(lm, LanguageModel)
    assert list(lm.vocabularies())
    assert isinstance(lm.cast("float32"), LanguageModel)
    sentences = [["THE", "CAT"], []]
    totals = [sum(scores) for scores in lm.score_hypotheses(sentences, None)]
    assert lm.score_sentences(sentences, None) == pytest.approx(totals, abs=1e-5)


class Constant(WordLM):
    """Gives a word -1, an end -2."""

    def score_words(self, sentences: list[list[str]], max_unknown: float | None = 0.5) -> list[list[float]]:
        return [[-1.0 for _ in words] + [-2.0] for words in sentences]

    def knows(self, word: str) -> bool:
        return True

    def vocabularies(self) -> list[Vocabulary]:
        return []


def test_defaults() -> None:
    lm = Constant()
    assert lm.score_hypotheses([["A"]]) == [[-1.0, -2.0]] and lm.score_sentences([["A", "B"], []]) == [-4.0, -2.0]
    assert not lm.pseudo_likelihood and not lm.with_uncertainty and lm.positions is None
    assert lm.cast("int8") is lm
    lm.move_to(torch.device("meta"))
    lm.check_case(["A", "B"])
    lm.check_words(["A"] * 10_000, "a sentence")
    with pytest.raises(LMError, match="a Constant scores words, and cannot be asked token by token"):
        lm.initial_state()
    with pytest.raises(LMError, match="a Constant gives no uncertainty"):
        lm.score_with_uncertainty([["A"]])


class Forgetful(Constant):
    """Gives what it was made with."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def score_words(self, sentences: list[list[str]], max_unknown: float | None = 0.5) -> Any:
        return self.given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[-1.0, -1.0], [-2.0, -2.0]], "gave 2 scores for the 2 words of 'A B', expected one for each and one for the"),
        (np.full((2, 3), -1.0), "gave 3 scores for the 1 words of 'C', expected"),  # padded
        ([[-1.0, -1.0, -2.0]], "gave the scores of 1 sentences for 2"),
        (None, "gave what are no scores"),
        ([-3.0, -2.0], "gave what are no scores .*expected a list of numbers for each sentence"),
    ],
)
def test_an_lm_gives_a_score_a_word_and_one_for_the_end(given: Any, message: str) -> None:
    sentences = [["A", "B"], ["C"]]
    hyps = [Hypothesis(tuple(words), {"am": 0.0}) for words in sentences]
    for mix in (None, {"own": 1.0}):
        with pytest.raises(LMError, match=f"Forgetful.score_words {message}"):
            score_batch([NbestList("u", hyps)], [LMColumn("own", Forgetful(given))], mix)
    with pytest.raises(LMError, match=f"Forgetful.score_words {message}"):
        score_text([Forgetful(given)], sentences, "text")


def test_scores_of_numpy_and_torch_are_added_up_in_double() -> None:
    for given in ([np.array([-0.1, -1e-9], np.float32)], torch.tensor([[-0.1, -1e-9]])):
        assert Forgetful(given).score_sentences([["A"]]) == [float(np.float32(-0.1)) + float(np.float32(-1e-9))]


def test_batches_are_gathered_for_those_that_look_at_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: list[int] = []
    original = Ranks.gather

    def gather(ranks: Ranks, items: list[Any]) -> list[Any]:
        if isinstance(items[0], tuple):  # a batch; checkpoints gather random states
            gathered.append(len(items))
        return original(ranks, items)

    monkeypatch.setattr(Ranks, "gather", gather)
    config = TrainConfig(steps=2, valid_every=0, log_every=1, warmup=0)
    settings = {"dim": 8, "heads": 2, "feedforward": 8, "layers": 1}
    for kind, extra, count in (("transformer", {}, 0), ("lookup", {"slots": 11, "entries": 2, "update_after": 0}, 2)):
        train(kind, settings | extra, zoo.neural("lstm").vocab, text(0), text(1), tmp_path / kind, config)
        assert len(gathered) == count
