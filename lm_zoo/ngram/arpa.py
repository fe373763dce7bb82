"""ARPA files: writing an estimated model, and the vocabulary of a model file."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import IO

from lm_zoo.errors import ModelError
from lm_zoo.files import atomic_binary
from lm_zoo.ngram.arpa_lines import ArpaLines
from lm_zoo.ngram.kneser_ney import KneserNeyModel
from lm_zoo.reading import BLANKS, DAMAGED, open_text

CHUNK = 1 << 14  # lines formatted at a time
BINARY_MAGIC = b"mmap lm http://kheafield.com/code format version 5\n\0"
# Order, probing multiplier, model type, whether it has words, version of the tables.
BINARY_PARAMETERS = struct.Struct("<BxxxfiBxxxI")
BINARY_UNK = b"<unk>\0"  # the first of the words, which stand at the end
BINARY_HEADER = 88  # where the parameters start, after the magic bytes and test values; lm/binary_format.cc of KenLM


def write_arpa(model: KneserNeyModel, path: str | Path, digits: int = 7) -> None:
    """Writes a model as ARPA text, compressed if `path` ends in `.gz`; appears under `path` only when complete.

    Probabilities and back-offs are log10, as the format has it, in `digits` (2 to 7) significant digits.
    """
    lines = ArpaLines(model.words, digits)
    with atomic_binary(path) as stream:
        stream.write(b"\\data\\\n")
        for n, table in enumerate(model.tables, start=1):
            stream.write(b"ngram %d=%d\n" % (n, len(table.kept)))
        for n, table in enumerate(model.tables, start=1):
            stream.write(b"\n\\%d-grams:\n" % n)
            for start in range(0, len(table.kept), CHUNK):
                part = slice(start, start + CHUNK)
                backoff = None if table.backoff is None else table.backoff[part]
                stream.write(lines(table.log_prob[part], model.word_ids(n, table.kept[part]), backoff))
        stream.write(b"\n\\end\\\n")


def read_vocabulary(path: Path) -> list[str]:
    """The unigrams of an ARPA file (also `.gz`, `.xz`), or the words of a KenLM binary file, in the file's order.

    Raises:
      ModelError: neither format, damaged, or a binary file that was built without its words.
    """
    try:
        with open(path, "rb") as stream:
            if stream.read(len(BINARY_MAGIC)) == BINARY_MAGIC:
                return _binary_words(path)
        with open_text(path) as text:
            return _arpa_words(path, text)
    except (OSError, UnicodeDecodeError, struct.error, *DAMAGED) as error:
        raise ModelError(f"{path}: cannot read the vocabulary ({error})") from None


def _arpa_words(path: Path, text: IO[str]) -> list[str]:
    words: list[str] = []
    section = ""
    for number, line in enumerate(text, start=1):
        if line.startswith("\\"):
            if section == "\\1-grams:":
                return words
            section = line.strip(BLANKS)
        elif section == "\\1-grams:" and line.strip(BLANKS):
            fields = line.split("\t")
            if len(fields) < 2:
                raise ModelError(f"{path}:{number}: found '{line.strip()[:60]}', expected 'LOG10 <tab> WORD ...'")
            words.append(fields[1].strip(BLANKS))
    raise ModelError(f"{path}: found no complete section \\1-grams:, expected an ARPA file")


def _binary_words(path: Path) -> list[str]:
    """The words stand at the end of the file, `<unk>` first, each ended by a zero byte."""
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        has_words = BINARY_PARAMETERS.unpack_from(data, BINARY_HEADER)[3]
        count = struct.unpack_from("<Q", data, BINARY_HEADER + BINARY_PARAMETERS.size)[0]
        start = data.rfind(BINARY_UNK)
        if not has_words or start < 0:
            raise ModelError(
                f"{path}: a KenLM binary file without its words; build it with them, or give the ARPA file"
            )
        words = data[start:].decode("utf-8").split("\0")[:-1]
    if len(words) < count:
        raise ModelError(f"{path}: found {len(words)} words, the header says {count}; the file is damaged")
    return words
