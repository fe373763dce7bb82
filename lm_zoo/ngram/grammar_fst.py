"""Kaldi's `G.fst`, the n-gram LM of a lang folder as an OpenFst file, queried word by word as an ARPA file is.

Its words are those of `words.txt` beside it.  Back-off arcs have no word on the output side (`#0` or epsilon on the
input side); the sentence end is the final weight.  As where Kaldi composes lattices with it
(`lattice-lmrescore`, `lattice-compose`), a word costs the least of all ways to it, so that backing off is taken where
it is cheaper than an arc of its own; with `phi`, only where there is no such arc, as in an ARPA file.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from lm_zoo.base import WordLM
from lm_zoo.errors import ModelError
from lm_zoo.ngram.openfst import MAGIC, parse_header
from lm_zoo.reading import kaldi_fields, text_lines
from lm_zoo.text.coverage import MOST_UNKNOWN, check_text
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary, text_case

EPSILON = 0
_STATE = struct.Struct("<fq")  # final cost, number of arcs
_ARC = np.dtype([("ilabel", "<i4"), ("olabel", "<i4"), ("cost", "<f4"), ("next", "<i4")])

State = tuple[tuple[int, float], ...]  # states of G with what each costs more than the best of them


class GrammarLM(WordLM):
    """The LM of a `G.fst`; a word that it does not have gets -inf, as there is no path."""

    def __init__(self, path: str | Path, phi: bool = False) -> None:
        """Loads it.

        Raises:
          ModelError: no such file, no `words.txt` beside it, or not a vector FST over the tropical semiring.
        """
        self.path, self.phi = Path(path), phi
        self.ids = _read_words(self.path.with_name("words.txt"))
        self._start, self._finals, self._bounds, self._arcs = _read_fst(self.path)
        self._following: dict[int, dict[int, tuple[float, int]]] = {}
        self._words = {word for word in np.unique(self._arcs["olabel"]).tolist() if word != EPSILON}

    @cached_property
    def vocab(self) -> WordVocabulary:  # type: ignore[override]
        words = [word for word, number in self.ids.items() if number in self._words and word != UNK]
        return WordVocabulary([SOS_EOS, UNK, *words], text_case(words))

    def knows(self, word: str) -> bool:
        """Whether some arc has the word."""
        return self.ids.get(word) in self._words

    def start(self) -> State:
        """The state after the begin of sentence."""
        return ((self._start, 0.0),)

    def extend(self, state: State, word: str) -> tuple[float, State, bool]:
        """`log p(word | state)`, the state after the word, and whether the LM knows the word."""
        number = self.ids.get(word, -1)
        reached: dict[int, float] = {}
        for place, cost in self._ways(state):
            arc = self._out(place).get(number)
            if arc is not None and cost + arc[0] < reached.get(arc[1], math.inf):
                reached[arc[1]] = cost + arc[0]
                if self.phi:
                    break
        if not reached:
            return -math.inf, ((self._ways(state)[-1][0], 0.0),), False
        best = min(reached.values())
        return 0.0 - best, tuple(sorted((place, cost - best) for place, cost in reached.items())), True

    def end(self, state: State) -> float:
        """`log p(</s> | state)`."""
        costs = [cost + float(self._finals[place]) for place, cost in self._ways(state)]
        return 0.0 - (next((cost for cost in costs if cost < math.inf), math.inf) if self.phi else min(costs))

    def score_words(
        self, sentences: Sequence[Sequence[str]], max_unknown: float | None = MOST_UNKNOWN
    ) -> list[list[float]]:
        """See `lm_zoo.base.LanguageModel.score_words`."""
        check_text(self, sentences, max_unknown)
        result = []
        for words in sentences:
            state, scores = self.start(), []
            for word in words:
                score, state, _ = self.extend(state, word)
                scores.append(score)
            result.append([*scores, self.end(state)])
        return result

    def _ways(self, state: State) -> State:
        """The states of `state` and what back-off reaches from them, in this order, with their costs."""
        ways = list(state)
        for place, cost in ways:  # grows while it is walked; back-off has no cycle
            arc = self._out(place).get(EPSILON)
            if arc is not None:
                ways.append((arc[1], cost + arc[0]))
        return tuple(ways)

    def _out(self, state: int) -> dict[int, tuple[float, int]]:
        """Word -> (cost, next state) of the arcs out of a state of G; EPSILON is the back-off."""
        found = self._following.get(state)
        if found is None:
            arcs = self._arcs[self._bounds[state] : self._bounds[state + 1]]
            arcs = arcs[np.argsort(-arcs["cost"], kind="stable")]  # of equal words the cheapest comes last and stays
            values = zip(arcs["cost"].tolist(), arcs["next"].tolist(), strict=True)
            found = self._following[state] = dict(zip(arcs["olabel"].tolist(), values, strict=True))
        return found


def _read_words(path: Path) -> dict[str, int]:
    if not path.is_file():
        raise ModelError(f"{path}: no such file; G.fst is read with the words.txt of its lang folder beside it")
    try:
        lines = text_lines(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read, expected lines 'WORD ID' ({error})") from None
    ids: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        fields = kaldi_fields(line)
        if len(fields) != 2 or not re.fullmatch("[0-9]{1,10}", fields[1]):
            raise ModelError(f"{path}:{number}: found '{line[:80]}', expected 'WORD ID'")
        if fields[0] in ids:
            raise ModelError(f"{path}:{number}: word '{fields[0]}' occurs a second time")
        ids[fields[0]] = int(fields[1])
    return ids


def _read_fst(path: Path) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Start state, final costs `(states,)`, offsets `(states + 1,)` of the arcs, and the arcs."""
    try:
        data = path.read_bytes()
        if not data.startswith(MAGIC):
            raise ModelError(f"{path}: not a binary OpenFst file")
        header, body = parse_header(data)
        if (header.fst_type, header.arc_type) != ("vector", "standard") or header.has_symbols or header.start < 0:
            symbols = ", symbol tables" if header.has_symbols else ""
            raise ModelError(
                f"{path}: FST type '{header.fst_type}', arc type '{header.arc_type}'{symbols}, "
                "expected a vector FST of standard arcs without symbol tables (fstconvert --fst_type=vector)"
            )
        found = _read_states(data, body, header.states)
        _check(header.start, *found)
        return (header.start, *found)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    except (struct.error, ValueError) as error:
        raise ModelError(f"{path}: damaged or truncated ({error})") from None


def _read_states(data: bytes, at: int, states: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Final costs, offsets and arcs of the states that begin at `data[at]`; ValueError where they are not all there."""
    if not 0 < states <= (len(data) - at) // _STATE.size:
        raise ValueError(f"{states} states in {len(data)} bytes")
    finals, bounds, parts = np.empty(states, dtype=np.float32), np.zeros(states + 1, dtype=np.int64), []
    for state in range(states):
        finals[state], count = _STATE.unpack_from(data, at)
        at += _STATE.size
        if not 0 <= count <= (len(data) - at) // _ARC.itemsize:
            raise ValueError(f"state {state} has {count} arcs in {len(data) - at} bytes")
        parts.append(np.frombuffer(data, _ARC, count, at))
        bounds[state + 1] = bounds[state] + count
        at += count * _ARC.itemsize
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes behind the last state")
    return finals, bounds, np.concatenate(parts)


def _check(start: int, finals: np.ndarray, bounds: np.ndarray, arcs: np.ndarray) -> None:
    """Raises ValueError where states, labels or costs make no sense, or where back-off goes in a circle."""
    states = len(finals)
    if start >= states or not ((arcs["next"] >= 0) & (arcs["next"] < states)).all():
        raise ValueError(f"the start or an arc's end is none of the {states} states")
    if min(arcs["ilabel"].min(initial=0), arcs["olabel"].min(initial=0)) < 0:
        raise ValueError("an arc has a negative label")
    if not (arcs["cost"] > -np.inf).all() or not (finals > -np.inf).all():
        raise ValueError("a cost is NaN or minus infinity")
    silent = np.flatnonzero(arcs["olabel"] == EPSILON)
    silent = silent[np.argsort(-arcs["cost"][silent], kind="stable")]  # the cheapest comes last and stays
    onto = np.full(states + 1, states)  # where each state backs off to; `states` is nowhere
    onto[np.repeat(np.arange(states), np.diff(bounds))[silent]] = arcs["next"][silent]
    for _ in range(states.bit_length()):
        onto = onto[onto]  # twice as many steps
    if (onto[:-1] < states).any():
        raise ValueError(f"backing off from state {int((onto < states).argmax())} never ends")
