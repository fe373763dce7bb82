"""Small valid files that several readers need."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

WORDS = "<eps> 0\nA 1\nB 2\n'tis 3\n#0 4\n"


def text(name: str, content: str) -> Callable[[Path], Path]:
    """Writes a text file, `.gz` and `.xz` packed, and a words table beside it."""
    return data(name, content.encode())


def data(name: str, content: bytes) -> Callable[[Path], Path]:
    """As `text`, of bytes."""

    def make(folder: Path) -> Path:
        packed = {".gz": gzip.compress, ".xz": lzma.compress}.get(Path(name).suffix, bytes)
        (folder / "words.txt").write_text(WORDS)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(packed(content))
        return folder / name

    return make


def files(damaged: str, contents: dict[str, str]) -> Callable[[Path], Path]:
    """Writes several text files by name, of which one will be damaged."""

    def make(folder: Path) -> Path:
        for name, content in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        return folder / damaged

    return make
