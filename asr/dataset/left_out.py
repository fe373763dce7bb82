"""Utterances that cannot be used, by reason: all are counted, the first of each reason are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping

NAMED = 10  # of a reason


class FirstOfReason:
    """Says of the first NAMED utterances of each reason that they are not used, each once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._named: dict[str, set[str]] = {}

    def tell(self, utt_id: str, reason: str, line: str) -> None:
        named = self._named.setdefault(reason, set())
        if len(named) == NAMED or utt_id in named:
            return
        named.add(utt_id)
        self._say(line + (f"; further ones ({reason}) are counted only" if len(named) == NAMED else ""))


def summarise(counts: Mapping[str, int]) -> str:
    """Such as `3 x cannot be loaded, 1 x too long`; empty where nothing was left out."""
    return ", ".join(f"{count} x {reason}" for reason, count in counts.items())
