"""The text before an utterance, for LMs that score it: what was said in the same recording until then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from lm_zoo.base import Context
from rescore.types import NbestList, Weights, Words
from rescore.weights import decision_of
from rescore.workflows.combine import decide
from rescore.workflows.normalising import RATE, WER, Normaliser
from rescore.workflows.recordings import Recordings

INFO = ("words", "of", "recordings")
Score = Callable[[list[NbestList], Sequence[Context]], list[NbestList]]


@dataclass(frozen=True)
class TextBefore:
    """How much text LMs see before an utterance, and which.

    Attributes:
      words: its last words, so many at most; None: all that were said in the recording.
      weights: choose the hypothesis of an utterance that becomes text, once it is scored; None: it is the first one.
    """

    words: int | None
    recordings: Recordings
    weights: Weights | None = None

    @property
    def plan(self) -> dict[str, Any]:
        """All that contexts depend on beside lists and LMs, for runs that are taken up again."""
        normaliser = Normaliser.of(self.weights or Weights({}))
        weights = self.weights and {
            "scales": self.weights.scales,
            "decision": list(decision_of(self.weights)),
            "normaliser": normaliser.name,
            **({} if normaliser.rate == WER else {RATE: normaliser.rate}),
        }
        return {**self.info, "identity": self.recordings.identity, "weights": weights}

    @property
    def chosen(self) -> str:
        return "first hypotheses" if self.weights is None else "rescored best hypotheses"

    @property
    def info(self) -> dict[str, Any]:
        """What the outputs say."""
        return dict(zip(INFO, (self.words or "all", self.chosen, self.recordings.how), strict=True))

    def __str__(self) -> str:
        sizes = self.recordings.sizes
        how_much = "all words" if self.words is None else f"the last {self.words} words"
        return (
            f"context: {how_much} before an utterance in its recording, of the {self.chosen}; {len(sizes)} "
            f"recordings of {sum(sizes.values())} utterances, told by {self.recordings.how}"
        )

    def groups(self, lists: Iterable[NbestList]) -> Iterator[list[NbestList]]:
        """The lists of a recording together, in the order given, as soon as all of them have come.

        Recordings of which some were left out come at the end.
        """
        sizes, waiting = self.recordings.sizes, dict[str, list[NbestList]]()
        for nbest in lists:
            name = self.recordings.names[nbest.utt_id]
            group = waiting.setdefault(name, [])
            group.append(nbest)
            if len(group) == sizes[name]:
                yield waiting.pop(name)
        yield from waiting.values()

    def score(self, groups: Sequence[list[NbestList]], score: Score) -> list[NbestList]:
        """The lists of whole recordings, scored; the next utterances of all of them at once.

        Args:
          score: scores lists, each behind its context.
        """
        places = self.recordings.places
        ordered = [sorted(group, key=lambda nbest: places[nbest.utt_id]) for group in groups]
        scored: dict[str, NbestList] = {}
        if self.weights is None:  # all contexts are known
            lists = [nbest for group in ordered for nbest in group]
            contexts = [context for group in ordered for context in self._contexts(group)]
            scored = {nbest.utt_id: nbest for nbest in score(lists, contexts)}
        else:
            normaliser = Normaliser.of(self.weights)
            texts: dict[str, list[Words]] = {}
            for turn in zip_longest(*ordered):
                lists = [nbest for nbest in turn if nbest is not None]
                before = [texts.setdefault(self.recordings.names[nbest.utt_id], []) for nbest in lists]
                contexts = [last_words(text, self.words) for text in before]
                for nbest, text in zip(score(lists, contexts), before, strict=True):
                    scored[nbest.utt_id] = nbest
                    text.append(decide(nbest, self.weights, normaliser)[0].hyps[0].words)
        return [scored[nbest.utt_id] for group in groups for nbest in group]

    def _contexts(self, group: Sequence[NbestList]) -> list[Context]:
        texts = [nbest.hyps[0].words for nbest in group]
        return [last_words(texts[:place], self.words) for place in range(len(texts))]


def with_context(weights: Weights, plan: dict[str, Any] | None) -> Weights:
    """The weights, whose info says which text before them the scores have seen; `plan` as of `TextBefore`, or None."""
    if plan is None:
        return weights
    return Weights(weights.scales, {**weights.info, "context": {name: plan[name] for name in INFO}})


def last_words(texts: Sequence[Words], words: int | None) -> Context:
    """The last `words` words of texts (None: all); texts without a word do not count."""
    kept: list[Words] = []
    left = sum(map(len, texts)) if words is None else words
    for text in reversed(texts):
        if left <= 0:
            break
        if text:
            kept.append(tuple(text[-left:]))
            left -= len(text)
    return tuple(reversed(kept))
