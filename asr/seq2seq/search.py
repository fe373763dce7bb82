"""Greedy and beam search of an encoder-decoder: the best texts that differ in their words.

A written text has many variants that say the same: "The law.", "the law", "The law,", and several ways to cut it into
tokens.  A plain beam fills with them.  Here the beam holds prefixes that differ in their words, some of them written in
several ways, and the probability of a hypothesis is the sum over its variants that were found.  A step:

  - of all prefixes and their `branch` best tokens, the best `4 * rows` are taken;
  - those that end are finished hypotheses, if the end is at most `end_margin` less probable than the best other token;
    the others fall into groups of like words;
  - the best `beam` groups stay (by their sums), but none below the `beam` best of what has finished: of each the best
    variant, and of their other variants the best, until there are `rows` prefixes.

The margin is a guard against texts that are cut off: in noise a recogniser gives some probability to an end after a few
words, and one such step costs less than all the steps of a long text (Hannun et al., "Sequence-to-Sequence Speech
Recognition with Time-Depth Separable Convolutions", Interspeech 2019, has the same rule).

An utterance is done when no group stays, or when its length limit is reached: what is alive then must end there, and
pays the log-probability of that.  Such hypotheses are marked as cut off.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from asr.seq2seq.session import EncodedSpeech, OnnxModel
from asr.seq2seq.tokens import Tokens, text_of

BLOCK = 128  # logits whose largest is looked at first: the best tokens lie in the blocks of the largest


@dataclass(frozen=True)
class SearchOptions:
    """
    Attributes:
      beam:   prefixes that differ in their words.
      rows:   prefixes in all; the rest are other ways to write the best of them.
      branch: tokens that each may go on with.
      end_margin: nats that the end may be below the best other token.
      tokens_per_second: limit of the length.
      spare:    tokens more than that.
    """

    beam: int = 8
    rows: int = 12
    branch: int = 16
    end_margin: float = 1.0
    tokens_per_second: float = 6.5
    spare: int = 4

    def limit(self, seconds: float) -> int:
        """Most tokens of an utterance."""
        return math.ceil(self.tokens_per_second * seconds) + self.spare


@dataclass(frozen=True)
class Ended:
    """A token sequence that ended: its log-probability, that of the end included; whether the length limit ended it."""

    tokens: tuple[int, ...]
    score: float
    cut: bool


@dataclass(frozen=True)
class _Beginning:
    tokens: tuple[int, ...]
    score: float
    key: str


class WordKeys:
    """What makes texts the same: of prefixes, letters and apostrophes whatever their case; of whole ones, a normaliser.

    Attributes:
      pieces: for each token what it adds to the key of a prefix.
    """

    def __init__(self, tokens: Tokens, normalise: Callable[[str], str]) -> None:
        self.pieces = [_key(piece) for piece in tokens.spelled]
        self._tokens, self._normalise = tokens, normalise

    def whole(self, ids: Sequence[int]) -> str:
        """The key of a text that has ended."""
        return self._normalise(text_of(self._tokens, ids))


def _key(piece: bytes) -> str:
    text = piece.decode("utf-8", "surrogateescape").lower().replace("-", " ")
    kept = "".join(char for char in text if char.isalnum() or char in " '" or "\ud800" <= char <= "\udfff")
    return re.sub(" +", " ", kept)


class _Beam:
    """The search of one utterance."""

    def __init__(self, keys: WordKeys, tokens: Tokens, options: SearchOptions, limit: int) -> None:
        self.keys, self.tokens, self.options, self.limit = keys, tokens, options, limit
        self.alive = [_Beginning((), 0.0, "")]
        self.finished: list[Ended] = []
        self.sums: dict[str, float] = {}  # log-probability of the words of what has finished
        self.length = 0

    def grow(self, values: np.ndarray, chosen: np.ndarray, ends: np.ndarray) -> tuple[list[int], list[int]]:
        """A step, from log-probabilities and tokens `(alive, branch)` and those of the end `(alive,)`.

        Returns:
          of each prefix that stays, the place of the one that it goes on from, and its last token.
        """
        self.length += 1
        if self.length > self.limit:
            for prefix, end in zip(self.alive, ends.tolist(), strict=True):
                self._finish(prefix, prefix.score + end, cut=True)
            self.alive = []
            return [], []
        grown = self._grown(values, chosen)
        groups: dict[str, list[tuple[int, _Beginning]]] = {}
        for parent, prefix in grown:
            groups.setdefault(prefix.key, []).append((parent, prefix))
        ranked = sorted(((log_sum([one.score for _, one in group]), group) for group in groups.values()), key=_first)
        lowest = self._lowest()
        best = [group for total, group in ranked[: self.options.beam] if total > lowest]
        others = sorted((one for group in best for one in group[1:]), key=lambda one: -one[1].score)
        kept = [group[0] for group in best] + others[: self.options.rows - len(best)]
        self.alive = [prefix for _, prefix in kept]
        return [parent for parent, _ in kept], [prefix.tokens[-1] for prefix in self.alive]

    def _grown(self, values: np.ndarray, chosen: np.ndarray) -> list[tuple[int, _Beginning]]:
        """The best extensions, best first, with the place of the prefix; those that end are finished."""
        totals = values + np.array([prefix.score for prefix in self.alive])[:, None]
        flat = totals.ravel()
        order = np.argsort(-flat, kind="stable")[: 4 * self.options.rows]
        found = []
        for place in order.tolist():
            parent, column = divmod(place, totals.shape[1])
            token, score, before = int(chosen[parent, column]), float(flat[place]), self.alive[parent]
            if token == self.tokens.end:
                if self._may_end(values[parent], column):
                    self._finish(before, score, cut=False)
            elif score > -math.inf:  # else there are fewer tokens that text may have than are asked for
                key = (before.key + self.keys.pieces[token]).replace("  ", " ")
                found.append((parent, _Beginning((*before.tokens, token), score, key)))
        return found

    def _may_end(self, values: np.ndarray, column: int) -> bool:
        """Whether the end, at a place of a prefix's best tokens, which come best first, is probable enough."""
        other = 1 if column == 0 else 0
        return other >= len(values) or bool(values[column] >= values[other] - self.options.end_margin)

    def _finish(self, prefix: _Beginning, score: float, cut: bool) -> None:
        self.finished.append(Ended(prefix.tokens, score, cut))
        key = self.keys.whole(prefix.tokens)
        self.sums[key] = log_sum([self.sums.get(key, -math.inf), score])

    def _lowest(self) -> float:
        """What a hypothesis must exceed to be among the best of those that are there."""
        if len(self.sums) < self.options.beam:
            return -math.inf
        return sorted(self.sums.values(), reverse=True)[self.options.beam - 1]


def _first(item: tuple[float, object]) -> float:
    return -item[0]


def beam_search(
    model: OnnxModel,
    tokens: Tokens,
    encoded: EncodedSpeech,
    seconds: Sequence[float],
    keys: WordKeys,
    options: SearchOptions,
) -> list[list[Ended]]:
    """All token sequences that ended, for each utterance, best first.

    Args:
      encoded: of the utterances, which last `seconds`.
    """
    beams = [_Beam(keys, tokens, options, options.limit(length)) for length in seconds]
    rows, logits = model.start(encoded, np.array([tokens.prompt] * len(encoded), dtype=np.int64))
    active, barred = beams, _barred(tokens, logits.shape[1])
    while active:
        values, chosen, ends = best_tokens(torch.from_numpy(logits), options.branch, tokens.end, barred)
        parents: list[int] = []
        last: list[int] = []
        first = 0
        for beam in active:
            count = len(beam.alive)
            part = slice(first, first + count)
            places, added = beam.grow(values[part], chosen[part], ends[part])
            parents += [first + place for place in places]
            last += added
            first += count
        active = [beam for beam in active if beam.alive]
        if active:
            rows.take(np.array(parents))
            logits = model.step(rows, np.array(last, dtype=np.int64))
    return [sorted(beam.finished, key=lambda one: -one.score) for beam in beams]


def greedy_search(
    model: OnnxModel, tokens: Tokens, encoded: EncodedSpeech, seconds: Sequence[float], options: SearchOptions
) -> list[Ended]:
    """The most probable token that text may have, or its end, at each step, for each utterance."""
    limits = [options.limit(length) for length in seconds]
    found: list[Ended | None] = [None] * len(encoded)
    texts: list[list[int]] = [[] for _ in found]
    scores = [0.0] * len(found)
    rows, logits = model.start(encoded, np.array([tokens.prompt] * len(encoded), dtype=np.int64))
    going, barred = list(range(len(found))), _barred(tokens, logits.shape[1])
    while going:
        values, chosen, ends = best_tokens(torch.from_numpy(logits), 1, tokens.end, barred)
        stay = []
        for place, utt in enumerate(going):
            cut = len(texts[utt]) == limits[utt]
            token = tokens.end if cut else int(chosen[place, 0])
            scores[utt] += float(ends[place] if cut else values[place, 0])
            if token == tokens.end:
                found[utt] = Ended(tuple(texts[utt]), scores[utt], cut)
            else:
                texts[utt].append(token)
                stay.append(place)
        going = [going[place] for place in stay]
        if going:
            rows.take(np.array(stay))
            logits = model.step(rows, np.array([texts[utt][-1] for utt in going], dtype=np.int64))
    return [one for one in found if one is not None]


def _barred(tokens: Tokens, vocab: int) -> Tensor:
    """bool `(vocabulary,)`: all tokens that text may not have, but its end."""
    barred = torch.ones(vocab, dtype=torch.bool)
    known = tokens.allowed[:vocab]
    barred[: len(known)] = torch.from_numpy(~known)
    barred[tokens.end] = False
    return barred


def best_tokens(
    logits: Tensor, branch: int, end: int, barred: Tensor | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities and ids `(rows, branch)` of the best tokens, and log-probabilities of the end `(rows,)`.

    Args:
      logits: float32 `(rows, vocabulary)`.
      barred: bool `(vocabulary,)`: tokens that are not taken; the log-probabilities of the others stay what they are.
    """
    rows, vocab = logits.shape
    top = logits.amax(dim=1, keepdim=True)
    norm = top.squeeze(1) + (logits - top).exp_().sum(dim=1).log()
    if barred is not None:
        logits = logits.masked_fill(barred, -torch.inf)
    if vocab % BLOCK == 0 and branch < vocab // BLOCK:
        blocks = logits.view(rows, vocab // BLOCK, BLOCK)
        best = blocks.amax(dim=2).topk(branch, dim=1).indices
        taken = blocks.gather(1, best.unsqueeze(2).expand(-1, -1, BLOCK)).view(rows, branch * BLOCK)
        values, places = taken.topk(branch, dim=1)
        chosen = best.gather(1, places.div(BLOCK, rounding_mode="floor")) * BLOCK + places % BLOCK
    else:
        values, chosen = logits.topk(min(branch, vocab), dim=1)
    norm = norm.double()
    return (values - norm.unsqueeze(1)).numpy(), chosen.numpy(), (logits[:, end] - norm).numpy()


def log_sum(values: Sequence[float]) -> float:
    """log of the sum of exponentials."""
    top = max(values)
    return top if top == -math.inf else top + math.log(sum(math.exp(value - top) for value in values))
