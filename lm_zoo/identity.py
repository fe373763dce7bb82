"""Who is who, by content: files and LMs that were replaced under the same name are told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from lm_zoo.errors import ModelError

BLOCK = 1 << 20
SIZE = 16  # bytes of a digest


class Hash(Protocol):
    """An object of hashlib."""

    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...

    def hexdigest(self) -> str: ...


def content(paths: Iterable[Path], names: Iterable[str] = ()) -> str:
    """A digest of files, their names below the folder that is given, and of some text; no file is held in memory.

    Args:
      paths: files, or folders for all that is in and below them; what is neither is left out.
    Raises:
      ModelError: a file that cannot be read.
    """
    total = hashlib.blake2b("\0".join(names).encode(), digest_size=SIZE)
    for path in paths:
        for file in _files(path):
            name = file.relative_to(path) if file != path else Path(file.name)
            found = feed(hashlib.blake2b(digest_size=SIZE), file).digest()
            total.update(f"\0{name}\0".encode(errors="surrogateescape") + found)
    return total.hexdigest()


def feed(found: Hash, file: Path) -> Hash:
    """Gives a file's bytes to one of hashlib's objects, and gives that back.

    Raises:
      ModelError: the file cannot be read.
    """
    try:
        with open(file, "rb") as stream:
            while block := stream.read(BLOCK):
                found.update(block)
    except OSError as error:
        raise ModelError(f"{file}: cannot be read ({error.strerror})") from None
    return found


def lm_identity(name: str) -> str:
    """Of the LM that a name means to `lm_zoo.registry.load`: its options, and a digest of config, weights, vocabulary.

    Raises:
      ModelError: there is no such LM, or a file of it that cannot be read.
    """
    options = name.partition("?")[2]
    return content(files_of_lm(name), [options])


def files_of_lm(name: str) -> list[Path]:
    """The files that the LM is made of; some that it may have are not there.  Raises as `lm_identity`."""
    from lm_zoo.hub import find_folders
    from lm_zoo.model_folder import CONFIG, WEIGHTS
    from lm_zoo.registry import GRAMMAR, find, foreign, read_config
    from lm_zoo.text.vocabulary import PieceVocabulary, WordVocabulary

    if (found := find_folders(name)) is not None:
        folders = [found.folder, *([found.adapter] if found.adapter else [])]
        return [file for folder in folders for file in ([folder] if folder.is_file() else sorted(folder.iterdir()))]
    if (other := foreign(name)) is not None:
        return list(other.files())
    path = find(name.partition("?")[0])
    if path.is_file():
        return [path, path.with_name("words.txt")] if path.name.endswith(GRAMMAR) else [path]
    config = read_config(path)
    parts = [CONFIG, str(config["file"])] if config["kind"] == "ngram" and "file" in config else [CONFIG, WEIGHTS]
    return [path / part for part in (*parts, PieceVocabulary.FILE, PieceVocabulary.LIST, WordVocabulary.FILE)]


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in sorted(path.rglob("*")) if file.is_file())
    elif path.is_file():
        yield path
