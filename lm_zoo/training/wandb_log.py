"""Records of a run for Weights & Biases, beside `log.jsonl`, where a project is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lm_zoo.errors import ModelError
from lm_zoo.files import write_text
from lm_zoo.training.run_log import Reporter

ID = "wandb.id"  # in the folder of a run: who it is there, for when it goes on


def find_wandb() -> Any:
    """The package wandb.

    Raises:
      ModelError: it is not installed.
    """
    try:
        import wandb
    except ImportError as error:
        advice = "pip install wandb, or leave --train wandb=PROJECT out"
        raise ModelError(f"records for Weights & Biases need the package wandb ({error}); {advice}") from None
    return wandb


@contextmanager
def with_wandb(project: str, folder: Path, made_of: dict[str, Any], report: Reporter) -> Iterator[Reporter]:
    """`report`, and with a project one that hands every record on to it as well, until the run ends.

    Args:
      made_of: kind, settings and the like, which are shown there.
    """
    if not project:
        yield report
        return
    path = folder / ID
    wandb = find_wandb()
    known = path.read_text(encoding="utf-8").strip() if path.exists() else None
    run = wandb.init(
        project=project, name=folder.resolve().name, id=known, resume="allow", dir=str(folder), config=made_of
    )
    write_text(path, run.id + "\n")

    def reported(record: dict[str, Any]) -> None:
        run.log({name: value for name, value in record.items() if name != "step"}, step=record["step"])
        report(record)

    try:
        yield reported
    finally:
        run.finish()
