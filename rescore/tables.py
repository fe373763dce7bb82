"""Tables as text that fit a terminal: 80 columns, or its own width if that is more."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence

WIDTH = 80  # columns
LONGEST = 40  # of a text in a column; longer ones go on in the next line
LONGEST_HEAD = 24  # of a word in a heading; longer ones are broken
GAP = "  "


def width() -> int:
    """Columns of the terminal, at least WIDTH; WIDTH where there is none."""
    return max(WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDTH


def columns_of(text: str) -> int:
    """Columns of a terminal that a text takes: two a character of Chinese, Japanese or Korean."""
    from rich.cells import cell_len

    return len(text) if text.isascii() else cell_len(text)


def left(text: str, width: int) -> str:
    """The text and blanks up to as many columns."""
    return text + " " * (width - columns_of(text))


def table_lines(
    heads: Sequence[str], rows: Sequence[Sequence[str]], most: int = WIDTH, texts: Collection[int] = (0,)
) -> list[str]:
    """Lines of a table, at most `most` columns wide.

    If need be, headings go on in further lines at their blanks, and columns that do not fit stand in a further table
    below, behind the first column again.

    Args:
      texts: columns that hold texts: they are at the left, and go on in further lines; others are at the right.
    """
    columns = [_Column(head, [row[k] for row in rows], k in texts) for k, head in enumerate(heads)]
    if _width(columns) > most:
        for column in columns:
            column.squeeze()
    lines: list[str] = []
    for block in _blocks(columns, most):
        lines += [""] if lines else []
        lines += _block_lines(block)
    return lines


class _Column:
    """A heading and cells, each a list of lines."""

    def __init__(self, head: str, cells: list[str], text: bool) -> None:
        self.head, self.text = [head], text
        self.cells = [_wrapped(cell, LONGEST) if text else [cell] for cell in cells]

    @property
    def width(self) -> int:
        return max(columns_of(line) for cell in [self.head, *self.cells] for line in cell)

    def squeeze(self) -> None:
        """The heading in as many lines as it has words and parts of them, or fewer where the cells are wide."""
        cells = max((columns_of(line) for cell in self.cells for line in cell), default=0)
        longest = max(map(len, re.split(r"(?<=-)|\s", self.head[0])))
        most = max(1, cells, min(longest, LONGEST_HEAD))
        self.head = textwrap.wrap(self.head[0], most) or [""]

    def line(self, cell: list[str], number: int) -> str:
        text = cell[number] if 0 <= number < len(cell) else ""
        return left(text, self.width) if self.text else " " * (self.width - columns_of(text)) + text


def _wrapped(text: str, most: int) -> list[str]:
    narrow = columns_of(text) <= len(text)
    return textwrap.wrap(text, most if narrow else most // 2, break_on_hyphens=False) or [""]


def _width(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)


def _blocks(columns: Sequence[_Column], most: int) -> list[list[_Column]]:
    blocks = [[columns[0]]]
    for column in columns[1:]:
        if len(blocks[-1]) > 1 and _width([*blocks[-1], column]) > most:
            blocks.append([columns[0]])
        blocks[-1].append(column)
    return blocks


def _block_lines(columns: list[_Column]) -> list[str]:
    height = max(len(column.head) for column in columns)
    lines = [[column.line(column.head, k - height + len(column.head)) for column in columns] for k in range(height)]
    lines.append(["-" * column.width for column in columns])
    for row in range(len(columns[0].cells)):
        cells = [column.cells[row] for column in columns]
        for k in range(max(map(len, cells))):
            lines.append([column.line(cell, k) for column, cell in zip(columns, cells, strict=True)])
    return [GAP.join(line).rstrip() for line in lines]
