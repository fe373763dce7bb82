"""How many prefixes an LM evaluates at once: as many as memory has room for, fewer once it had not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from lm_zoo.base import LONGEST, Context
from lm_zoo.deadline import check_time
from lm_zoo.errors import LMError
from lm_zoo.inference.limits import FITS, is_want_of_memory, left_of_limit, sharers
from lm_zoo.inference.tree import TreeLM
from lm_zoo.inference.trie import Encoded, Trie, encode_words, sum_to_words

VECTORS = 32  # of the output layer's input size, in float32, that a prefix takes at the peak, about
SHARE = 0.5  # of the free memory that is used

SomeLM = TypeVar("SomeLM", bound=TreeLM)
Scores = TypeVar("Scores")


def score_in_parts(
    lm: SomeLM,
    sentences: Sequence[Sequence[str]],
    score: Callable[[SomeLM, Trie], tuple[np.ndarray, np.ndarray]],
    most: int,
    contexts: Sequence[Context] | None = None,
) -> list[list[float]]:
    """As `lm_zoo.base.score_in_batches`, by `in_parts`; `score` as `lm_zoo.inference.trie.score_trie`."""
    result: list[list[float]] = []
    for part, trie, scores in in_parts(lm, sentences, score, most, contexts):
        result += sum_to_words(part, trie, *scores)
    return result


def in_parts(
    lm: SomeLM,
    sentences: Sequence[Sequence[str]],
    score: Callable[[SomeLM, Trie], Scores],
    most: int,
    contexts: Sequence[Context] | None = None,
) -> Iterator[tuple[Encoded, Trie, Scores]]:
    """The scores of the trie of so many sentences at a time as there is memory for, in the order of the sentences.

    Args:
      most: prefixes at once, about, at most; half as many from then on whenever memory does not suffice.
      contexts: as in `LanguageModel.score_hypotheses`.
    Raises:
      LMError: a sentence of more than LONGEST tokens.
    """
    words = encode_words(lm.vocab, sentences, contexts, lm.boundary, lm.most_tokens)
    _check_lengths(words, sentences)
    nodes = min(FITS.get(lm, most), most, room(lm))
    done = 0
    while done < len(sentences):
        check_time()
        part, trie = words.first(done, nodes)
        try:
            scores = score(lm, trie)
        except (RuntimeError, MemoryError) as error:
            if not is_want_of_memory(error) or len(part.counts) == 1:
                raise
            nodes = FITS[lm] = max(min(nodes, trie.num_nodes) // 2, 1)
            continue
        done += len(part.counts)
        yield part, trie, scores


def _check_lengths(words: Encoded, sentences: Sequence[Sequence[str]]) -> None:
    tokens = np.diff(words.bounds)
    if tokens.max(initial=0) > LONGEST:
        first = int(np.argmax(tokens > LONGEST))
        raise LMError(
            f"the sentence '{' '.join(sentences[first][:5])} ...' has {tokens[first]} tokens, more than the {LONGEST} "
            "that an LM takes at once; split it, or leave it out"
        )


def room(lm: TreeLM) -> int:
    """The prefixes that free memory has room for, about."""
    free = min(free_memory(lm.device) / sharers(), left_of_limit() if lm.device.type == "cpu" else float("inf"))
    return max(1, int(SHARE * free / (4 * VECTORS * lm.output.weight.shape[1])))


def free_memory(device: torch.device) -> float:
    """Bytes; infinite where they are not known."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + cached)
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return float("inf")
