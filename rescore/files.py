"""Reading and writing files: transparent gzip and xz, atomic writes, Kaldi text."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rescore.errors import FormatError, RescoreError
from rescore.types import Words


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yields `(line number from 1, line without newline)` of a text file, `.gz` and `.xz` transparent.

    Raises:
      FormatError: the file is missing, truncated, not compressed as its name says, or not UTF-8.
    """
    number = 0
    try:
        with _open_read(Path(path)) as stream:
            for number, line in enumerate(stream, start=1):
                yield number, line.rstrip("\r\n")
    except FileNotFoundError:
        raise FormatError(path, "no such file") from None
    except IsADirectoryError:
        raise FormatError(path, "is a folder, expected a file") from None
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise FormatError(path, f"compressed file is truncated or damaged after line {number} ({error})") from None
    except UnicodeDecodeError as error:
        raise FormatError(path, f"not UTF-8 text ({error})", line=number + 1) from None


def _open_read(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8")
    return open(path, encoding="utf-8")


@contextmanager
def atomic_text(path: str | Path) -> Iterator[IO[str]]:
    """Opens a text file for writing that appears under `path` only when the block ends without an error."""
    with atomic_path(path) as temporary:
        if Path(path).suffix == ".gz":
            with open(temporary, "wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
                with io.TextIOWrapper(packed, encoding="utf-8") as stream:
                    yield stream
        else:
            with open(temporary, "w", encoding="utf-8") as stream:
                yield stream


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Gives a temporary path beside `path`; renames it to `path` on success, removes it on any error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        if temporary.exists():
            temporary.unlink()


def read_kaldi_text(path: str | Path) -> dict[str, Words]:
    """Reads Kaldi `text`: `utt-id word word ...` a line; a line with the id alone is an empty utterance.

    Raises:
      FormatError: no line at all, an empty line, or an utterance id that occurs twice.
    """
    texts: dict[str, Words] = {}
    for number, line in read_lines(path):
        fields = line.split()
        if not fields:
            raise FormatError(path, "empty line, expected 'utt-id words ...'", line=number)
        if fields[0] in texts:
            raise FormatError(path, f"utterance '{fields[0]}' occurs a second time", line=number)
        texts[fields[0]] = tuple(fields[1:])
    if not texts:
        raise FormatError(path, "empty file, expected Kaldi text: 'utt-id words ...' a line")
    return texts


def write_kaldi_text(path: str | Path, texts: dict[str, Words]) -> None:
    """Writes Kaldi `text`, one utterance a line, in the order of `texts`."""
    with atomic_text(path) as stream:
        for utt_id, words in texts.items():
            stream.write(" ".join((utt_id, *words)) + "\n")


def require_folder(path: str | Path) -> Path:
    """`path` as a Path, or a clear error if it is not a folder."""
    path = Path(path)
    if not path.is_dir():
        raise RescoreError(f"{path}: no such folder")
    return path
