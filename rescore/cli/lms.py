"""`rescore lms`: what the zoo has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rescore.cli.results import json_option


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path), metavar="[DIR]...")
@click.option(
    "--best",
    is_flag=True,
    help="Print the folder with the lowest validation loss, nothing else; losses of other data, tokens or windows are "
    "refused.",
)
@json_option
def command(folders: tuple[Path, ...], best: bool, json_file: Path | None) -> None:
    """List the LMs that ship with the package and the kinds that can be trained; or the trained LMs in the folders DIR.

    \b
    Example: rescore lms
    Example: rescore lms exp/dropout-* --best
    """
    from lm_zoo.registry import describe
    from lm_zoo.training.run_identity import measured_on
    from rescore.cli.results import show

    rows = describe(folders)
    for row in rows:
        row["valid_loss_of"] = measured_on(Path(row["name"])).get("loss") if folders else None
    listed = [_best(rows, folders)] if best else [*_table(rows, bool(folders)), *([] if folders else _kinds())]
    show(rows, listed, json_file)


def _table(rows: list[dict[str, Any]], runs: bool) -> list[str]:
    from lm_zoo.training.run_identity import LISTS
    from rescore.tables import table_lines, width

    heads = ["name", "kind", "parameters", "MB", "valid loss" if runs else "ppl/word", "trained on"]
    cells = []
    for row in rows:
        ppl = "" if row["word_ppl"] is None else f"{row['word_ppl']:.1f} ({row['word_ppl_text']})"
        loss = "" if row["valid_loss"] is None else f"{row['valid_loss']:.4f}"
        loss += " errors" if row["valid_loss_of"] == LISTS else ""
        size, params = f"{row['bytes'] / 1e6:.1f}", f"{row['params']:,}" if row["params"] else ""
        cells.append([row["name"], row["kind"], params, size, loss if runs else ppl, ", ".join(row["data"])])
    lines = table_lines(heads, cells, width(), texts=(0, 1, 5))
    return lines if runs else ["shipped, for --lm and --ngram", "", *lines]


def _kinds() -> list[str]:
    """The kinds that can be trained, and the LMs of other packages."""
    from textwrap import wrap

    from lm_zoo.plugins import installed
    from lm_zoo.registry import KINDS
    from rescore.tables import width

    said = ["kinds: " + "; ".join(f"{kind} ({text})" for kind, (_, _, text) in KINDS.items())]
    if installed():
        said.append("of other packages: " + "; ".join(f"{name} ({where})" for name, where in installed().items()))
    return ["", *(line for text in said for line in wrap(text, width(), break_on_hyphens=False))]


def _best(rows: list[dict[str, Any]], folders: tuple[Path, ...]) -> str:
    from rescore.errors import UsageError

    if not folders:
        raise UsageError("--best needs folders of rescore train-lm")
    if unknown := [row["name"] for row in rows if row["valid_loss"] is None]:
        raise UsageError(f"--best: {unknown[0]} has no validation loss in config.json; rescore train-lm writes it")
    _check_comparable(list(folders))
    return min(rows, key=lambda row: row["valid_loss"])["name"]


def _check_comparable(folders: list[Path]) -> None:
    """Raises UsageError where the validation losses are of other data or of other kinds."""
    from lm_zoo.training.run_identity import first_incomparable
    from rescore.errors import UsageError

    if found := first_incomparable(folders):
        raise UsageError(
            f"--best: found {folders[0]} and {found[0]}, which have another {found[1]}, so that their validation "
            "losses say nothing of which is better; compare them by rescore ppl, or rescore compare"
        )
