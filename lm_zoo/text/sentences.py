"""Reading text for LMs: one sentence a line, plain, gzip or xz."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path

from lm_zoo.errors import TextError
from lm_zoo.reading import DAMAGED, kaldi_fields, open_bytes, packed_as

KINDS = ("kaldi", "text")  # that stand before a path: with utterance ids, and without
HEAD = 100  # sentences that are looked at for utterance ids
_SYMBOL = re.compile(r"<eps>|<s>|</s>|<sos/eos>|<unk>|#\d+")  # of tables of words: what no text has
_ID = re.compile(r"(?=.*\d)(?=.*[^\W\d]|.*-).*")  # a digit, and a letter, _ or -


def read_sentences(spec: str | Path, remark: Callable[[str], None] | None = None) -> Iterator[list[str]]:
    """Yields the words of every sentence of a text, one sentence a line; `.gz` and `.xz` transparent.

    A byte order mark at the start is dropped.
    Lines without a word are skipped; their number is told to `remark` at the end, if there were any.

    Args:
      spec: `kaldi:PATH` drops the first field (the utterance id) of every line; `text:PATH` or a bare path keeps it.
      remark: takes one line of text for the user.
    Raises:
      TextError: of a bare path, the first fields of the lines look like utterance ids.
      TextError: the file is missing, unreadable, has no sentence, is truncated or damaged, unpacks to far too much
        (`lm_zoo.reading`), or is not UTF-8.
    """
    first, path = parse_text_spec(spec)
    sentences = _read(path, first, remark)
    if not str(spec).startswith(tuple(f"{kind}:" for kind in KINDS)):
        head = list(islice(sentences, HEAD))
        if begin_with_ids(head):
            raise TextError(
                f"{path}: every line begins with what looks like an utterance id ('{head[0][0]}'); write kaldi:{path} "
                f"to leave it out, or text:{path} if it is a word"
            )
        sentences = chain(head, sentences)
    yield from sentences


def read_word_list(path: str | Path, remark: Callable[[str], None]) -> list[str]:
    """The words of a list; of a table of words and numbers (Kaldi's `words.txt`, `rescore count`), the words alone.

    Raises:
      TextError: as `read_sentences`.
    """
    lines = _without_bigrams(list(read_sentences(path, remark)))
    for place in (0, 1):  # of the words; numbers stand in the other column
        if all(len(line) == 2 and line[1 - place].isdecimal() for line in lines):
            words = [line[place] for line in lines if not _SYMBOL.fullmatch(line[place])]
            left_out = f"{len(lines) - len(words)} symbols left out"
            remark(f"{path}: a table of words and numbers; {len(words)} words, {left_out}")
            return words
    return [word for line in lines for word in line]


def _without_bigrams(lines: list[list[str]]) -> list[list[str]]:
    """Of counts of words and bigrams, lines `COUNT WORD` and `COUNT PREVIOUS WORD`, those of words."""
    words = {line[1] for line in lines if len(line) == 2}
    known = {"<s>", *words}
    counts = all(len(line) in (2, 3) and line[0].isdecimal() and known.issuperset(line[1:]) for line in lines)
    return [line for line in lines if len(line) == 2] if words and counts else lines


def begin_with_ids(sentences: list[list[str]]) -> bool:
    """Whether the first words are all different, each with a digit and a letter, and are nowhere else in the text."""
    ids = {words[0] for words in sentences}
    others = {word for words in sentences for word in words[1:]}
    every = len(ids) == len(sentences) > 2 and all(map(_ID.fullmatch, ids))
    return every and bool(others) and ids.isdisjoint(others)


def _read(path: Path, first: int, remark: Callable[[str], None] | None) -> Iterator[list[str]]:
    """The words of every line from field `first` on."""
    number = empty = 0
    try:
        with open_bytes(path) as stream:
            for line in stream:
                number += 1  # counted by hand: the count is needed after an error, too
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                words = kaldi_fields(line.decode())
                if len(words) > first:
                    yield words[first:] if first else words
                else:
                    empty += 1
    except FileNotFoundError:
        raise TextError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise TextError(f"{path}: is a folder, expected a text file") from None
    except DAMAGED as error:
        raise TextError(f"{path}:{number}: compressed file is truncated or damaged after this line ({error})") from None
    except OSError as error:
        raise TextError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError as error:
        packed = packed_as(error.object) if number == 1 else None
        raise TextError(f"{path}:{number}: {packed or f'not UTF-8 text ({error}); convert it first (iconv)'}") from None
    if empty == number:
        raise TextError(f"{path}: no sentence in {number} lines, expected one sentence a line")
    if empty and remark is not None:
        remark(f"{path}: {empty} of {number} lines have no word and were skipped")


def parse_text_spec(spec: str | Path) -> tuple[int, Path]:
    """`(fields to drop at the start of each line, path)` of `kaldi:PATH`, `text:PATH` or a bare path."""
    kind, colon, rest = str(spec).partition(":")
    if colon and kind in KINDS:
        return int(kind == "kaldi"), Path(rest)
    return 0, Path(spec)
