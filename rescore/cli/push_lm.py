"""`rescore push-lm`: a trained LM to the hub of Hugging Face."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("push-lm")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("repository", metavar="USER/NAME")
@click.option("--private", is_flag=True, help="Make the repository a private one, if there is none yet.")
@click.option("--message", default="Model folder of rescore", show_default=True, help="Of the commit.")
@click.option("--dry-run", is_flag=True, help="List the files with their sizes, and bring nothing anywhere.")
def command(folder: Path, repository: str, private: bool, message: str, dry_run: bool) -> None:
    """Bring the neural LM in DIR to the hub: its configuration, weights, vocabulary, model card and losses.

    The LM is loaded first; what is damaged is not brought.  Log in once with: hf auth login.  The LM is then
    `--lm hf:USER/NAME` for everybody.

    \b
    Example: rescore push-lm exp/transfornn me/transfornn-books --dry-run
    """
    from rescore.console import remark
    from rescore.workflows.push_lm import files_to_push, push_lm

    if dry_run:
        for file in files_to_push(folder):
            click.echo(f"{file.stat().st_size:>14,}  {file.relative_to(folder)}")
        return
    address = push_lm(folder, repository, private, message)
    remark(f"{folder} is at {address}; name it with --lm hf:{repository}")
