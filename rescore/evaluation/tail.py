"""Errors and perplexity on the rare words of a training text (Tail-1) and on its rare bigrams (Tail-2).

Y. Feng et al., "Memory augmented lookup dictionary based language modeling for automatic speech recognition", 2022,
section 3.1: the head are the most frequent words, which make up 95 % of the training text, the tail is the rest.  The
paper does not say what becomes of words of equal count where head and tail meet; here they stay together, in the head,
so that the tail has at most 5 %.  Only where the very rarest, those of the lowest count, make up more, they are the
tail all the same, as bigrams that occur once do in most texts.  Words that do not occur in the training text are in
the tail, always.  Bigrams likewise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rescore.errors import UsageError
from rescore.evaluation.counts import BEGIN_ID, NgramCounts, read_counts
from rescore.evaluation.wer import GAP, ErrorCounts, align, json_counts, letter_case, split_characters
from rescore.types import Words

TAIL_PERCENT = 5


def tail_threshold(counts: np.ndarray) -> int:
    """The largest count of a tail type: types seen so often or less make up at most 5 % of the text, together.

    Args:
      counts: int64 `(types,)`, from 1.
    Returns:
      the lowest count if its types make up more already; 0 if all types have the same count, so that only types never
      seen are in the tail.
    """
    values, types = np.unique(counts, return_counts=True)
    mass = np.cumsum(values * types)
    in_tail = values[100 * mass <= TAIL_PERCENT * mass[-1]]
    if len(values) == 1:
        return 0
    return int(in_tail[-1]) if len(in_tail) else int(values[0])


class Tail:
    """Tells the tail words, and if bigrams were counted the tail bigrams, of any text.

    Attributes:
      orders: 1, or 2 if there is a Tail-2.
      thresholds: the largest training count of a tail word and of a tail bigram.
      source: the counts' file.
    """

    def __init__(self, counts: NgramCounts) -> None:
        self.source = counts.source
        self.orders = len(counts.tables)
        self.thresholds = [tail_threshold(table.counts) for table in counts.tables]
        self._ids = counts.ids
        tables = zip(counts.tables, self.thresholds, strict=True)
        self._head = [table.keys[table.counts > threshold] for table, threshold in tables]  # rising, never empty

    def marks(self, words: Sequence[str]) -> list[np.ndarray]:
        """For each order bool `(words,)`: whether the word, or the bigram that it ends, is in the tail."""
        text = np.array([BEGIN_ID, *(self._ids.get(word, -1) for word in words)], np.int64)
        keys = [text[1:], text[:-1] << 32 | text[1:]]  # below 0 where a word was never seen
        return [_outside(head, key) for head, key in zip(self._head, keys, strict=False)]

    def check_form(self, words: Iterable[str]) -> None:
        """Raises UsageError if next to every word of a text would be in the tail.

        That is where text and counts are in upper case and lower case, or the other way round, or where the counts are
        of characters, and most words of the text have several.
        """
        text, counted = tuple(words), tuple(self._ids)[1:]
        cases = letter_case([text]), letter_case([counted])
        if set(cases) == {"upper", "lower"}:
            raise UsageError(
                f"{self.source}: counts of {cases[1]}-case words, but the text is {cases[0]} case, so that every word "
                "would be in the tail: convert one of them"
            )
        longer = [word for word in text if _is_longer(word)]
        if 2 * len(longer) > len(text) and not any(map(_is_longer, counted)):
            raise UsageError(
                f"{self.source}: counts of characters, but the text has words such as '{longer[0]}', which would all "
                "be in the tail: count words (rescore count without --characters), or take --cer (wer, compare)"
            )

    def check_characters(self) -> None:
        """Raises UsageError if these are not counts of characters."""
        for word in list(self._ids)[1:]:
            if _is_longer(word):
                raise UsageError(
                    f"{self.source}: found the word '{word}', but --cer needs counts of characters; make them with: "
                    "rescore count --characters"
                )

    def describe(self, characters: bool = False) -> str:
        """One line on what is in the tail; `characters`: the counts are of these."""
        kinds = zip(("characters" if characters else "words", "bigrams"), self.thresholds, strict=False)
        return ", ".join(
            f"tail-{n}: {kind} that the training text has {f'{limit} times or less' if limit else 'not at all'}"
            for n, (kind, limit) in enumerate(kinds, start=1)
        )


def _is_longer(word: str) -> bool:
    """Whether it has several characters."""
    return len(split_characters((word,))) > 1


def _outside(head: np.ndarray, keys: np.ndarray) -> np.ndarray:
    places = np.minimum(np.searchsorted(head, keys), len(head) - 1)
    return head[places] != keys


def load_tail(path: str | Path) -> Tail:
    """The tail that a counts file defines; raises FormatError as `read_counts`."""
    return Tail(read_counts(path))


def tail_errors(ref: Sequence[str], hyp: Sequence[str], tail: Tail) -> list[ErrorCounts]:
    """Errors of one utterance on tail words and, if there are counts of bigrams, on tail bigrams.

    A reference word in the tail counts as an error if it is deleted or substituted, whatever stands in its place.  An
    inserted word counts if it is in the tail itself.  For Tail-2 the bigram is that with the word before, in the
    reference, or for an inserted word in the hypothesis.

    Returns:
      for each order the counts; `ref_words` are the tail words of the reference, `sentences` is 0.
    """
    pairs = align(ref, hyp)
    return [_errors(pairs, *marks) for marks in zip(tail.marks(ref), tail.marks(hyp), strict=True)]


def _errors(pairs: list[tuple[str, str]], ref_marks: np.ndarray, hyp_marks: np.ndarray) -> ErrorCounts:
    """Errors of an alignment where the word is marked: `ref_marks` of deleted and substituted, `hyp_marks` of inserted.

    Args:
      ref_marks, hyp_marks: bool, `(reference words,)` and `(hypothesis words,)`.
    """
    in_ref, in_hyp = iter(ref_marks.tolist()), iter(hyp_marks.tolist())
    ins = dele = sub = 0
    for ref, hyp in pairs:
        ref_marked = ref != GAP and next(in_ref)
        hyp_marked = hyp != GAP and next(in_hyp)
        if ref == GAP:
            ins += hyp_marked
        elif hyp == GAP:
            dele += ref_marked
        elif ref != hyp:
            sub += ref_marked
    return ErrorCounts(ins, dele, sub, int(ref_marks.sum()))


def corpus_tail_errors(refs: Mapping[str, Words], hyps: Mapping[str, Words], tail: Tail) -> list[ErrorCounts]:
    """`tail_errors` of all utterances together; `refs` and `hyps` hold the same utterances.

    Raises:
      UsageError: as `Tail.check_form`, of the references.
    """
    tail.check_form(word for words in refs.values() for word in words)
    utterances = [tail_errors(ref, hyps[utt_id], tail) for utt_id, ref in refs.items()]
    return [sum(counts, ErrorCounts()) for counts in zip(*utterances, strict=True)]


def tail_lines(errors: Sequence[ErrorCounts], name: str = "WER") -> list[str]:
    """`%WER tail-1 12.34 [ 10 / 81, 2 ins, 3 del, 5 sub ]`; `-` for the rate if the references have no tail word."""
    return [
        f"%{name} tail-{n} {rate_text(counts)} [ {counts.errors} / {counts.ref_words}, "
        f"{counts.ins} ins, {counts.dele} del, {counts.sub} sub ]"
        + ("" if counts.ref_words else " (nothing of the references is in this tail)")
        for n, counts in enumerate(errors, start=1)
    ]


def json_tails(errors: Sequence[ErrorCounts]) -> dict[str, dict[str, Any]]:
    """Errors on tail words, and on tail bigrams if they were counted, as data: `tail1`, `tail2`."""
    found = {f"tail{n}": json_counts(counts) for n, counts in enumerate(errors, start=1)}
    for counts in found.values():
        del counts["ser"], counts["utterances"]  # words have errors, not sentences
    return found


def rate_text(counts: ErrorCounts) -> str:
    """The error rate with two digits; `-` if there is nothing to make errors on."""
    return f"{counts.wer:.2f}" if counts.ref_words else "-"


class TailMarker:
    """Notes which words of a text are in the tail while another reads the text."""

    def __init__(self, tail: Tail) -> None:
        self.tail = tail
        self._words: set[str] = set()
        self._marks: list[list[np.ndarray]] = [[] for _ in range(tail.orders)]

    def watch(self, sentences: Iterable[list[str]]) -> Iterator[list[str]]:
        """Yields the sentences as they are."""
        for words in sentences:
            self._words.update(words)
            for rows, marks in zip(self._marks, self.tail.marks(words), strict=True):
                rows.append(np.append(marks, False))
            yield words

    def masks(self) -> list[np.ndarray]:
        """For each order bool `(words + sentences,)`, False at sentence ends, which stand in their places.

        Raises:
          UsageError: as `Tail.check_form`.
        """
        self.tail.check_form(self._words)
        return [np.concatenate(rows) for rows in self._marks]
