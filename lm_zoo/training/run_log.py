"""The logs of a training run: `log.jsonl`, a record a line, and TensorBoard's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lm_zoo.files import append_line, write_text

LOG = "log.jsonl"


def append_record(folder: Path, record: dict[str, Any]) -> None:
    append_line(folder / LOG, json.dumps(record))


def cut_records(folder: Path, step: int) -> None:
    """Drops the records after a checkpoint, which will be made again, and one that a kill has cut off."""
    path = folder / LOG
    whole = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    write_text(path, "".join(line + "\n" for line in whole if json.loads(line)["step"] <= step))


def summary_writer(folder: Path, remark: Callable[[str], None]) -> Any:
    """A TensorBoard writer; None, and a remark that says why, where TensorBoard cannot be imported."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        remark(f"no TensorBoard logs: {error} (pip install tensorboard six); log.jsonl has the same figures")
        return None
    return SummaryWriter(str(folder))
