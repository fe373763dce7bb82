"""A run of `asr train` that goes on from an earlier checkpoint leaves what its folder has of after it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from asr.model import checkpoint
from asr.training.run_identity import LAST
from lm_zoo.files import write_text
from lm_zoo.model_folder import CONFIG, WEIGHTS
from lm_zoo.training.run_log import Remark
from lm_zoo.training.runtime import Progress

BEST = ("best-train-loss.pt", "best-valid-loss.pt", f"model/{CONFIG}")


def remove_later(out: Path, start: Path | None, progress: Progress, remark: Remark) -> None:
    """Removes the checkpoints of after where the run stands: those of an older run, or of a way that is left.

    They would count as newer than those still to come.

    Args:
      start: the checkpoint that the run goes on from; None: it begins.
    """
    step, epoch = progress.step, progress.epoch
    if start is not None and start.parent == out:
        write_text(out / LAST, start.name + "\n")
    else:
        (out / LAST).unlink(missing_ok=True)
    later = [path for path in checkpoint.find_checkpoints(out) if _number(path) > step]
    later += [path for path in checkpoint.find_checkpoints(out, "epoch") if _number(path) >= epoch]
    if start is None:
        later += out.glob("best-*-loss.pt")
    if later:
        remark(f"{out}: removed {len(later)} checkpoints of an older run, of after batch {step}")
    for path in later:
        path.unlink()


def remove_best(out: Path, remark: Remark) -> None:
    """Removes the best model of an older run, which would pass for that of one that begins anew; other files stay."""
    folder = out / "model"
    found = [
        path for name in (CONFIG, WEIGHTS, checkpoint.PIECES, checkpoint.TOKENS) if (path := folder / name).exists()
    ]
    for path in found:
        path.unlink()
    if found:
        remark(f"{folder}: removed, it was of an older run")
        with suppress(OSError):
            folder.rmdir()


def of_later(out: Path, step: int) -> list[bool]:
    """Of each of `BEST` whether the one in the folder is of after this step."""
    return [_is_of_later(out / name, step) for name in BEST]


def _is_of_later(path: Path, step: int) -> bool:
    """Whether a checkpoint, or the `config.json` of a model folder, is of after this step; False for none."""
    if not path.exists():
        return False
    if path.name == CONFIG:
        trained = checkpoint.read_info(path.parent).get("trained")
        found = trained.get("steps") if isinstance(trained, dict) else None
    else:
        found = checkpoint.read_checkpoint(path).get("batch_idx_train")
    return isinstance(found, int) and found > step


def _number(path: Path) -> int:
    """That of `epoch-N.pt` or `checkpoint-N.pt`."""
    return int(path.stem.rpartition("-")[2])
