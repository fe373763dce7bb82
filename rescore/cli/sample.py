"""`rescore sample`: N-best lists to try the commands on."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.outputs import OutputPath

SAMPLE = Path(__file__).resolve().parents[1] / "sample"


@click.command()
@click.argument("folder", type=OutputPath(folder=True), metavar="DIR")
def command(folder: Path) -> None:
    """Write a small sample of N-best lists and references to DIR, a new folder: 20 utterances to tune on, 20 to test.

    Synthetic speech, recognised by the S4former that ships. It shows how the commands work, and nothing about LMs.

    \b
    Example: rescore sample sample
    """
    import shutil

    from lm_zoo.files import atomic_folder

    with atomic_folder(folder) as made:
        for file in sorted(SAMPLE.iterdir()):
            shutil.copyfile(file, made / file.name)
    click.echo(f"written to {folder}: dev.jsonl.gz and dev.txt to tune on, test.jsonl.gz and test.txt to test on")
