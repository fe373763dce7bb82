"""What the benchmarks of N-best rescoring share: lists, ways to score them, time, memory, the limit by products."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from measure import added_memory, seconds

from lm_zoo.inference.precision import ready
from lm_zoo.inference.products import make_product
from lm_zoo.registry import build
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary

Lists = list[list[tuple[str, ...]]]
LOGITS = 4 << 30  # bytes of a padded batch's logits and their logarithms; what is larger is split


# -- lists --------------------------------------------------------------------------------------------------------


def names(vocab_size: int) -> list[str]:
    return [f"W{number}" for number in range(vocab_size - 2)]


def sausage(rng: np.random.Generator, words: list[str], length: int) -> list[list[tuple[float, str]]]:
    """Slots of words and their costs, the best first (0): two in five have rivals."""
    slots = []
    for _ in range(length):
        rivals = int(rng.integers(1, 4)) if rng.random() < 0.4 else 0
        costs = np.sort(rng.exponential(3.0, rivals))
        slots.append([(0.0, str(rng.choice(words))), *((float(cost), str(rng.choice(words))) for cost in costs)])
    return slots


def best_paths(slots: list[list[tuple[float, str]]], most: int) -> list[tuple[str, ...]]:
    """The exact N-best of a sausage, as far as there are so many."""
    heap: list[tuple[float, tuple[int, ...]]] = [(0.0, (0,) * len(slots))]
    seen, found = {heap[0][1]}, []
    while heap and len(found) < most:
        cost, choice = heapq.heappop(heap)
        found.append(tuple(slot[place][1] for slot, place in zip(slots, choice, strict=True)))
        for index, place in enumerate(choice):
            longer = (*choice[:index], place + 1, *choice[index + 1 :])
            if place + 1 < len(slots[index]) and longer not in seen:
                seen.add(longer)
                heapq.heappush(heap, (cost + slots[index][place + 1][0] - slots[index][place][0], longer))
    return found


def made_up(words: list[str], count: int, most: int, length: int, seed: int) -> Lists:
    rng = np.random.default_rng(seed)
    return [
        best_paths(sausage(rng, words, int(rng.integers(length // 2, length * 3 // 2))), most) for _ in range(count)
    ]


def read(path: str, count: int, most: int) -> Lists:
    from rescore.formats import read_nbest

    return [[hyp.words for hyp in nbest.hyps[:most]] for nbest in itertools.islice(read_nbest(path), count)]


def prefixes(vocab: Any, lists: Lists) -> tuple[int, int]:
    """Tokens of the hypotheses (sentence ends aside), and distinct prefixes."""
    tokens, nodes = 0, {}
    for hyp in itertools.chain(*lists):
        node = 0
        for token in itertools.chain(*map(vocab.encode_word, hyp)):
            node = nodes.setdefault((node, token), len(nodes) + 1)
            tokens += 1
    return tokens, len(nodes) + 1


# -- ways to score ------------------------------------------------------------------------------------------------


@dataclass
class Way:
    """A way to score lists.

    Attributes:
      score: natural logs of whole sentences.
      plain: the name of the plain way with the same weights.
      flops: of a distinct prefix in products with weights; 0 where no share of the limit is asked for.
    """

    name: str
    score: Callable[[Lists], list[float]]
    plain: str
    dtype: str = "float32"
    flops: float = 0.0


@dataclass
class Measured:
    """Words/s, MB added at the peak, scores of all sentences."""

    speed: float = 0.0
    peak: float = 0.0
    scores: np.ndarray = field(default_factory=lambda: np.empty(0))


def padded_batch(vocab: Any, hyps: Sequence[tuple[str, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
    """int64 `(hyps, time + 1)`: inputs, begin first, and targets, end last and -1 behind it."""
    tokens = [[token for word in hyp for token in vocab.encode_word(word)] for hyp in hyps]
    width = max(map(len, tokens)) + 1
    inputs, targets = torch.full((len(tokens), width), vocab.eos), torch.full((len(tokens), width), -1)
    for index, part in enumerate(tokens):
        inputs[index, : len(part) + 1] = torch.tensor([vocab.bos, *part])
        targets[index, : len(part) + 1] = torch.tensor([*part, vocab.eos])
    return inputs, targets


@torch.no_grad()
def padded(vocab: Any, log_probs: Callable[..., torch.Tensor], lists: Lists) -> list[float]:
    """The plain way: a list as one padded batch (several for more than LOGITS), the whole softmax at every place.

    Args:
      log_probs: inputs `(rows, time)` and where they are no padding, `(rows, time)` -> `(rows, time, vocab)`.
    """
    scores: list[float] = []
    for hyps in lists:
        inputs, targets = padded_batch(vocab, hyps)
        rows = max(1, LOGITS // (inputs.shape[1] * len(vocab) * 8))
        for part, target in zip(inputs.split(rows), targets.split(rows), strict=True):
            inside = target >= 0
            found = log_probs(part, inside).gather(2, target.clamp(min=0).unsqueeze(2)).squeeze(2)
            scores += (found * inside).sum(dim=1).tolist()
    return scores


def ours(lm: Any, lists: Lists) -> list[float]:
    return [sum(words) for words in lm.score_hypotheses([hyp for hyps in lists for hyp in hyps])]


def untrained(vocab_size: int, dim: int) -> Any:
    """The paper's TransfoRNN."""
    return build("transfornn", WordVocabulary([SOS_EOS, UNK, *names(vocab_size)]), {"dim": dim}).eval()


def zoo_ways(lm: Any, dtypes: Sequence[str]) -> list[Way]:
    """The plain way with an LM of the zoo, and ours."""
    plain = Way("padded", lambda lists: padded(lm.vocab, lambda x, inside: lm.output(lm.hidden(x)), lists), "padded")
    made, flops = {dtype: ready(lm, dtype) for dtype in dtypes}, flops_a_node(lm)
    return [
        plain,
        *(
            Way(f"ours, {dtype}", lambda lists, lm=made[dtype]: ours(lm, lists), "padded", dtype, flops)
            for dtype in dtypes
        ),
    ]


# -- measuring ----------------------------------------------------------------------------------------------------


def flops_a_node(lm: Any) -> float:
    """Multiplications and additions in products with weights, of one prefix."""
    weights = [p.numel() for name, p in lm.named_parameters() if p.dim() == 2 and "embedding" not in name]
    tied = lm.output.weight.numel() if lm.config.tied else 0
    return 2.0 * (sum(weights) + tied)


def rate(dtype: str, dim: int, cpu: bool, rounds: int = 5) -> float:
    """FLOP/s of 2048 x dim by dim x 2048 products."""
    weight, x = torch.randn(2048, dim), torch.randn(2048, dim)
    multiply = make_product(weight, None, dtype)
    multiply(x)
    return 2.0 * 2048 * 2048 * dim / seconds(lambda: multiply(x), rounds, clock(cpu))


def clock(cpu: bool) -> Callable[[], float]:
    return time.process_time if cpu else time.perf_counter


def measure(ways: Sequence[Way], lists: dict[str, Lists], rounds: int, cpu: bool) -> dict[str, Measured]:
    """Every way on its lists: once for memory and scores, then the best of some rounds in turns.

    Args:
      cpu: CPU seconds in place of wall time.
    """
    found: dict[str, Measured] = {}
    for way in ways:
        mine, scores = lists[way.name], []
        way.score([mine[0][:1]])  # weights are put in the order of the products
        peak = added_memory(lambda way=way, mine=mine, scores=scores: scores.extend(way.score(mine)))
        found[way.name] = Measured(0.0, peak, np.array(scores))
    for _ in range(rounds):
        for way in ways:
            mine = lists[way.name]
            spent = seconds(lambda way=way, mine=mine: way.score(mine), 1, clock(cpu))
            found[way.name].speed = max(found[way.name].speed, count_words(mine) / spent)
    return found


def count_words(lists: Lists) -> int:
    return sum(len(hyp) for hyps in lists for hyp in hyps)


@dataclass
class Ratios:
    """Speed to the plain way with the same weights, share of the GEMM limit, mean error of a sentence in nats."""

    to_plain: float
    share: float | None
    error: float | None


def ratios(way: Way, found: dict[str, Measured], nodes: int, words: int, rates: dict[str, float]) -> Ratios:
    """Of a way whose lists have so many words in so many distinct prefixes."""
    mine, plain = found[way.name], found[way.plain]
    both = min(len(mine.scores), len(plain.scores))
    error = float(np.abs(mine.scores[:both] - plain.scores[:both]).mean()) if way.name != way.plain else None
    share = nodes * way.flops / rates[way.dtype] * mine.speed / words if way.flops else None
    return Ratios(mine.speed / plain.speed, share, error)


def cells(part: Ratios) -> tuple[str, str]:
    """Share and error for a table."""
    share = "" if part.share is None else f"{part.share:.0%}"
    return share, "" if part.error is None else f"{part.error:.0e}"
