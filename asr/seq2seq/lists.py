"""N-best lists of what a search found: texts that differ in their words, each with the sum over its writings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from asr.seq2seq.search import Ended, log_sum

FRAGMENT = 0.5  # of the letters of the most probable text: a text with fewer is a fragment


@dataclass(frozen=True)
class WrittenText:
    """A hypothesis.

    Attributes:
      text:   as the most probable of its writings has it.
      tokens: of that writing.
      single: log-probability of that writing.
      am:     log of the summed probability of all writings of these words that were found.
      cut:    whether the length limit ended that writing.
    """

    text: str
    tokens: tuple[int, ...]
    single: float
    am: float
    cut: bool


def distinct(
    found: Sequence[Ended], spell: Callable[[Sequence[int]], str], normalise: Callable[[str], str]
) -> list[WrittenText]:
    """The hypotheses whose normalised texts differ, best first."""
    groups: dict[str, list[tuple[float, str, Ended]]] = {}
    for one in found:
        text = spell(one.tokens)
        groups.setdefault(normalise(text), []).append((one.score, text, one))
    made = []
    for group in groups.values():
        _, text, best = max(group, key=lambda item: item[0])
        made.append(WrittenText(text, best.tokens, best.score, log_sum([score for score, _, _ in group]), best.cut))
    return sorted(made, key=lambda hyp: -hyp.am)


def without_fragments(hyps: Sequence[WrittenText], share: float = FRAGMENT) -> list[WrittenText]:
    """Those that have at least `share` of the letters of the first, the most probable one, in the same order.

    An encoder-decoder gives some probability to a text that stops after the first words of a long utterance.  Few such
    texts are in lists, but an LM prefers them by a hundred nats, and no scale that is of use makes up for that.
    """
    return [hyp for hyp in hyps if len(hyp.text) >= share * len(hyps[0].text)]
