"""What a long decoding has found so far, on disk, so that a run that was killed goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from asr.errors import DataError
from lm_zoo.files import append_line, write_text
from lm_zoo.reading import parse_json, read_text
from rescore.console import remark


class Journal:
    """What a decoding has found so far, on disk; it goes when the results are written."""

    def __init__(self, path: Path, made_by: dict[str, Any]) -> None:
        """Keeps the whole lines of an earlier run by the same settings; begins anew where they were others.

        Raises:
          DataError: what is there is no journal.
        """
        self.path, self._head = path, json.dumps(made_by, sort_keys=True)
        lines: list[str] = []
        try:
            with suppress(FileNotFoundError):
                lines = read_text(path).split("\n")[:-1]  # what does not end was cut off
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read ({error}); remove it to decode from the beginning") from None
        if lines and lines[0] != self._head:
            remark(f"{path}: of a run with other settings or cuts; begun anew")
            lines = []
        write_text(path, "".join(f"{line}\n" for line in lines or [self._head]))
        self.count = max(0, len(lines) - 1)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The entries that were there, each with an `id`.

        Raises:
          DataError: a damaged line.
        """
        with open(self.path, encoding="utf-8", newline="\n") as stream:
            next(stream)
            for number, line in zip(range(2, self.count + 2), stream, strict=False):
                yield self._entry(line, number)

    def _entry(self, line: str, number: int) -> dict[str, Any]:
        try:
            entry = parse_json(line)
            if not isinstance(entry, dict) or not isinstance(entry["id"], str):
                raise ValueError("no object with an 'id'")
        except (ValueError, KeyError) as error:
            problem = f"damaged ({error}); remove the file to decode from the beginning"
            raise DataError(f"{self.path}:{number}: {problem}") from None
        return entry

    def add(self, entry: dict[str, Any]) -> None:
        append_line(self.path, json.dumps(entry, ensure_ascii=False))

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
