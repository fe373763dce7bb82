"""The logs of a training run: `log.jsonl`, a record a line, TensorBoard's, and what the user sees of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lm_zoo.errors import ModelError
from lm_zoo.files import append_line, write_text
from lm_zoo.model_folder import LOG
from lm_zoo.reading import parse_json, read_text

Reporter = Callable[[dict[str, Any]], None]
Remark = Callable[[str], None]


class RunLog:
    """The logs of the run in a folder; nothing is written before `open`."""

    def __init__(self, folder: Path, report: Reporter, remark: Remark) -> None:
        """
        Args:
          report: gets every record: where the run stands, and its figures.
          remark: gets lines for the user.
        """
        self.folder, self.report, self.remark = folder, report, remark
        self.writer: Any = None  # TensorBoard's

    def open(self, step: int, epoch: int | None = None, again: str | None = None) -> None:
        """Goes on behind `step`: records after it will be made again and are dropped, as is one that a kill cut off.

        Args:
          epoch: of the checkpoint; what was found behind the last step of an epoch is of the next one, and found again.
          again: a figure that is found at `step` itself again.
        """
        path = self.folder / LOG
        write_text(path, "".join(f"{line}\n" for line in lines_before(path, step, epoch, again)))
        self.writer = summary_writer(self.folder / "tensorboard", self.remark, step + 1)

    def write(self, stand: dict[str, Any], figures: dict[str, Any]) -> None:
        """Adds a record.

        Args:
          stand:   where the run stands: its `step`, what else there is.
          figures: name -> number; these are TensorBoard's curves.
        """
        record = {**stand, **figures}
        append_line(self.folder / LOG, json.dumps(record))
        if self.writer is not None:
            for name, value in figures.items():
                self.writer.add_scalar(name, value, stand["step"])
        self.report(record)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def lines_before(path: Path, step: int, epoch: int | None, again: str | None = None) -> list[str]:
    """The records of a log that are kept when its run goes on behind `step`; arguments as of `RunLog.open`.

    Raises:
      ModelError: the log is damaged.
    """
    if not path.exists():
        return []
    try:
        whole = read_text(path).split("\n")[:-1]
        return [line for line in whole if _is_before(parse_json(line), step, epoch, again)]
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ModelError(f"{path}: damaged ({error}); remove it to go on with a new log") from None


def _is_before(record: dict[str, Any], step: int, epoch: int | None, again: str | None) -> bool:
    behind = epoch is not None and record.get("epoch", epoch) > epoch
    return bool(record["step"] < step or (record["step"] == step and not behind and again not in record))


def summary_writer(folder: Path, remark: Remark, first: int = 0) -> Any:
    """A TensorBoard writer; None, and a remark that says why, where TensorBoard cannot be imported.

    Args:
      first: what the folder has of this step and later ones is shown no more.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        remark(f"no TensorBoard logs: {error} (pip install tensorboard six); log.jsonl has the same figures")
        return None
    return SummaryWriter(str(folder), purge_step=first)
