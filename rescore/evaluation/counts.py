"""Counts of the words and bigrams of a training text, and the files that hold them.

A bigram is a pair (previous word, word) within a sentence, `<s>` standing before the first word; there is no sentence
end.  So every word of a text ends exactly one bigram, and both kinds of counts have the same sum.

A counts file has a line `COUNT WORD` a word and, if bigrams were counted, a line `COUNT PREVIOUS WORD` a bigram, as
`sort | uniq -c` prints them; `.gz` and `.xz` are transparent; the order of the lines does not matter.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lm_zoo.reading import kaldi_fields
from rescore.errors import FormatError, RescoreError
from rescore.files import atomic_text, read_lines, whole_number

BEGIN = "<s>"
END = "</s>"
BEGIN_ID = 0
MAX_DIGITS = 15  # of a count: sums stay far within 64 bits
CHUNK = 1 << 22  # words counted at a time


@dataclass
class CountTable:
    """The distinct words, or bigrams, of a text.

    Attributes:
      keys: int64 `(types,)`, rising: the id of the word, or `previous id * 2**32 + id`.
      counts: int64 `(types,)`, from 1.
    """

    keys: np.ndarray
    counts: np.ndarray


@dataclass
class NgramCounts:
    """Counts of words (`tables[0]`) and, if there are two tables, of bigrams.

    Attributes:
      ids: every word's id, `<s>` has 0.
      source: what to call the counts in messages: the file.
    """

    ids: dict[str, int]
    tables: list[CountTable]
    source: str = "the text"


def without_marks(sentences: Iterable[list[str]], text: str) -> Iterator[list[str]]:
    """The sentences of a text; raises RescoreError, which names it, where `<s>` or `</s>` is a word of one."""
    for number, words in enumerate(sentences, start=1):
        if BEGIN in words or END in words:
            found = f"found '{' '.join(words)[:60]}', with {BEGIN} or {END} as a word"
            raise RescoreError(f"{text}, sentence {number}: {found}; sentence begins are added here: remove them")
        yield words


def count_ngrams(sentences: Iterable[Sequence[str]], order: int) -> NgramCounts:
    """Counts the words of a text and, if `order` is 2, its bigrams; holds the types and a piece of the text.

    `<s>` is no word of the text.
    """
    ids: defaultdict[str, int] = defaultdict()
    ids.default_factory = ids.__len__
    ids[BEGIN]  # the first id is that of the sentence begin
    runs: list[list[CountTable]] = [[] for _ in range(order)]
    for text in _pieces(sentences, ids):
        ends = np.flatnonzero(text != BEGIN_ID)
        keys = text[ends]
        for n, run in enumerate(runs):
            if n:
                keys = text[ends - 1] << 32 | keys
            _add(run, CountTable(*np.unique(keys, return_counts=True)))
    return NgramCounts(dict(ids), [_merged(run) for run in runs])


def _pieces(sentences: Iterable[Sequence[str]], ids: defaultdict[str, int]) -> Iterator[np.ndarray]:
    """Word ids, int64 `(words + sentences,)`, `<s>` before every sentence; pieces end where a sentence ends."""
    text = array("q")
    for words in sentences:
        text.append(BEGIN_ID)
        text.extend(map(ids.__getitem__, words))
        if len(text) >= CHUNK:
            yield np.frombuffer(text, np.int64)
            text = array("q")
    if text:
        yield np.frombuffer(text, np.int64)


def _add(run: list[CountTable], table: CountTable) -> None:
    """Appends a table, and merges it with those before it that are not much larger: few merges of large tables."""
    run.append(table)
    while len(run) > 1 and len(run[-2].keys) <= 2 * len(run[-1].keys):
        run[-2:] = [_merged(run[-2:])]


def _merged(tables: Sequence[CountTable]) -> CountTable:
    keys = np.concatenate([table.keys for table in tables])
    counts = np.concatenate([table.counts for table in tables])
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return CountTable(keys[starts], np.add.reduceat(counts, starts))


def write_counts(path: str | Path, counts: NgramCounts) -> None:
    """Writes a counts file: words, then bigrams, each by falling count.

    Those of one count are in the order in which their words occur first, of bigrams the previous word, then the other.
    """
    words = list(counts.ids)
    with atomic_text(path) as stream:
        for n, table in enumerate(counts.tables):
            order = np.argsort(-table.counts, kind="stable")
            keys, values = table.keys[order], table.counts[order].tolist()
            last = (keys & 0xFFFFFFFF).tolist()
            if n == 0:
                stream.writelines(f"{count} {words[word]}\n" for count, word in zip(values, last, strict=True))
                continue
            rows = zip(values, (keys >> 32).tolist(), last, strict=True)
            stream.writelines(f"{count} {words[previous]} {words[word]}\n" for count, previous, word in rows)


def read_counts(path: str | Path) -> NgramCounts:
    """Reads a counts file.

    Raises:
      FormatError: a line that is neither `COUNT WORD` nor `COUNT PREVIOUS WORD`, a word or bigram that occurs twice,
        `<s>` in another place than the first of a bigram, or no counts of words.
    """
    ids: defaultdict[str, int] = defaultdict()
    ids.default_factory = ids.__len__
    begin = ids[BEGIN]
    columns = [(array("q"), array("q"), array("q")) for _ in range(2)]  # keys, counts, line numbers
    for number, line in read_lines(path):
        fields = kaldi_fields(line)
        if not 2 <= len(fields) <= 3:
            problem = f"found '{line}', expected 'COUNT WORD' or 'COUNT PREVIOUS WORD'"
            raise FormatError(path, problem, line=number)
        key = ids[fields[-1]]
        if key == begin:
            raise FormatError(path, f"{BEGIN} may only stand first in a bigram, found '{line}'", line=number)
        if len(fields) == 3:
            key |= ids[fields[1]] << 32
        keys, counts, numbers = columns[len(fields) - 2]
        keys.append(key)
        counts.append(_count(fields[0], path, number))
        numbers.append(number)
    if not columns[0][0]:  # no key
        raise FormatError(path, "no counts of words ('COUNT WORD' a line); make them with: rescore count")
    tables = [_table(path, list(ids), n == 1, *map(np.array, column)) for n, column in enumerate(columns)]
    return NgramCounts(dict(ids), tables if len(tables[1].keys) else tables[:1], str(path))


def _count(field: str, path: str | Path, number: int) -> int:
    count = whole_number(field, MAX_DIGITS)
    if not count:
        raise FormatError(path, f"found the count '{field}', expected a whole number from 1", line=number)
    return count


def _table(
    path: str | Path, words: list[str], bigrams: bool, keys: np.ndarray, counts: np.ndarray, numbers: np.ndarray
) -> CountTable:
    """Sorted by key, after a check that no key (on which line of the file: `numbers`) occurs twice."""
    order = np.argsort(keys, kind="stable")
    keys, counts, numbers = keys[order], counts[order], numbers[order]
    again = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    if len(again):
        first = again[np.argmin(numbers[again])]
        previous, word = divmod(int(keys[first]), 1 << 32)
        ngram = f"{words[previous]} {words[word]}" if bigrams else words[word]
        raise FormatError(path, f"'{ngram}' occurs a second time", line=int(numbers[first]))
    return CountTable(keys, counts)
