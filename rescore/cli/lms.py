"""`rescore lms`: what the zoo has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path), metavar="[DIR]...")
@click.option("--best", is_flag=True, help="Print the folder with the lowest validation loss, nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def command(folders: tuple[Path, ...], best: bool, as_json: bool) -> None:
    """List the LMs that ship with the package and the kinds that can be trained; or the trained LMs in the folders DIR.

    \b
    Example: rescore lms
    Example: rescore lms exp/dropout-* --best
    """
    import json

    from lm_zoo.plugins import installed
    from lm_zoo.registry import KINDS, describe

    rows = describe(folders)
    if best:
        click.echo(_best(rows, folders))
        return
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console

    console = Console(width=max(100, Console().width))
    console.print(_table(rows, bool(folders)))
    if not folders:
        console.print("kinds: " + "; ".join(f"{kind} ({text})" for kind, (_, _, text) in KINDS.items()))
        if installed():
            console.print("of other packages: " + "; ".join(f"{name} ({where})" for name, where in installed().items()))


def _table(rows: list[dict[str, Any]], runs: bool) -> Any:
    from rich.table import Table

    table = Table("name", "kind", "parameters", "MB", "valid loss" if runs else "ppl/word", "trained on")
    table.title = None if runs else "shipped, for --lm and --ngram"
    for row in rows:
        ppl = "" if row["word_ppl"] is None else f"{row['word_ppl']:.1f} ({row['word_ppl_text']})"
        loss = "" if row["valid_loss"] is None else f"{row['valid_loss']:.4f}"
        size, params = f"{row['bytes'] / 1e6:.1f}", f"{row['params']:,}" if row["params"] else ""
        table.add_row(row["name"], row["kind"], params, size, loss if runs else ppl, ", ".join(row["data"]))
    return table


def _best(rows: list[dict[str, Any]], folders: tuple[Path, ...]) -> str:
    from rescore.errors import UsageError

    known = [row for row in rows if row["valid_loss"] is not None]
    if not folders or len(known) < len(rows):
        raise UsageError("--best needs folders of rescore train-lm, each with a validation loss in its config.json")
    return min(known, key=lambda row: row["valid_loss"])["name"]
