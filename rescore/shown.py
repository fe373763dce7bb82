"""Results that show themselves as a table: in a notebook, on a terminal, as a data frame of pandas."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from rescore.errors import RescoreError
from rescore.tables import columns_of, left

if TYPE_CHECKING:
    import pandas

MOST_ROWS = 20  # of the HTML that a notebook shows; a data frame has all
Table = tuple[list[str], list[list[Any]]]  # heads, and rows of as many cells


class Shown:
    """A mixin: whoever has `_table` gets `_repr_html_`, `to_pandas` and `repr`."""

    def _table(self) -> Table:
        """Heads and rows; None is an empty cell."""
        raise NotImplementedError

    def _caption(self) -> str:
        """One line below the table."""
        return ""

    def _shown(self) -> Table:
        """As `_table`, of what is shown rather than computed with."""
        return self._table()

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a data frame; raises a RescoreError if pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            needs = f"a data frame needs the package pandas, which cannot be imported ({error})"
            raise RescoreError(f"{needs}; pip install 'rescore[pandas]'") from None
        heads, rows = self._table()
        return pandas.DataFrame(rows, columns=heads)

    def _repr_html_(self) -> str:
        """The first rows as an HTML table, and the caption; what comes from texts and names is escaped."""
        heads, rows = self._shown()
        lines = [_row("th", heads), *(_row("td", row) for row in rows[:MOST_ROWS])]
        more = f"<p>{len(rows) - MOST_ROWS} more rows</p>" if len(rows) > MOST_ROWS else ""
        caption = f"<p>{escape(self._caption())}</p>" if self._caption() else ""
        return f"<table>{''.join(lines)}</table>{more}{caption}"

    def __repr__(self) -> str:
        """The first rows in columns, and the caption."""
        heads, rows = self._shown()
        texts = [list(map(_text, row)) for row in [heads, *rows[:MOST_ROWS]]]
        widths = [max(map(columns_of, column)) for column in zip(*texts, strict=True)]
        lines = ["  ".join(left(cell, width) for cell, width in zip(row, widths, strict=True)) for row in texts]
        more = [f"{len(rows) - MOST_ROWS} more rows"] if len(rows) > MOST_ROWS else []
        return "\n".join([*map(str.rstrip, lines), *more, *filter(None, [self._caption()])])


def _row(tag: str, cells: list[Any]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(_text(cell))}</{tag}>' for cell in cells)}</tr>"


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
