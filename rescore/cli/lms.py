"""`rescore lms`: what the zoo has."""

from __future__ import annotations

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def command(as_json: bool) -> None:
    """List the LMs that ship with the package and the kinds that can be trained.

    \b
    Example: rescore lms --json
    """
    import json

    from lm_zoo.registry import KINDS, describe

    rows = describe()
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "kind", "parameters", "MB", "ppl/word", "trained on", title="shipped, for --lm and --ngram")
    for row in rows:
        ppl = "" if row["word_ppl"] is None else f"{row['word_ppl']:.1f} ({row['word_ppl_text']})"
        size = f"{row['bytes'] / 1e6:.1f}"
        table.add_row(row["name"], row["kind"], f"{row['params']:,}", size, ppl, ", ".join(row["data"]))
    console = Console(width=max(100, Console().width))
    console.print(table)
    console.print("kinds: " + "; ".join(f"{kind} ({text})" for kind, (_, _, text) in KINDS.items()))
