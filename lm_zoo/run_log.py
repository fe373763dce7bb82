"""The logs of a training run, beside `log.jsonl`: TensorBoard's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def summary_writer(folder: Path, remark: Callable[[str], None]) -> Any:
    """A TensorBoard writer; None, and a remark that says why, where TensorBoard cannot be imported."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        remark(f"no TensorBoard logs: {error} (pip install tensorboard six); log.jsonl has the same figures")
        return None
    return SummaryWriter(str(folder))
