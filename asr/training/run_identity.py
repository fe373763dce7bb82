"""What a run of `asr train` goes on from, and whether that is the run which it was."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from asr.errors import CheckpointError
from asr.model import checkpoint
from asr.model.config import TransducerConfig
from asr.training.config import TransducerTrainConfig

LAST = "last-checkpoint"  # the file that names the newest checkpoint
# Settings that may change when a run goes on: how long it is, what is kept and looked at on the way.  "optimizer" is
# the name of the optimisers' states in a checkpoint.
FREE = {"num_epochs", "max_steps", "max_minutes", "save_every_n", "keep_last_k", "valid_every", "log_every"}
FREE |= {"loss_backend", "optimizer", "dtype"}
AUGMENTED_BY = {"enable_spec_aug", "musan_cuts"}  # of the data of a run: what leaves batches of the same utterances


def newest(out: Path) -> Path | None:
    """The newest checkpoint of the run in `out`, if there is one."""
    marker = out / LAST
    return out / marker.read_text(encoding="utf-8").strip() if marker.exists() else None


def check_free(out: Path) -> None:
    """Raises CheckpointError where `out` has checkpoints of a run that cannot go on by itself."""
    found = [path for kind in ("epoch", "checkpoint") for path in checkpoint.find_checkpoints(out, kind)]
    if found and newest(out) is None:
        raise CheckpointError(
            f"{out}: has {len(found)} checkpoints, such as {found[0].name}, but no {LAST} to go on from; choose "
            "another --exp-dir, or go on from one with --start-epoch N or --start-batch N; --start-epoch 1 removes all"
        )


def check_configuration(path: Path, contents: dict[str, Any], config: TransducerConfig) -> None:
    """Raises CheckpointError unless the checkpoint is of a run with this configuration; tells what differs."""
    choose = "choose another --exp-dir, or the run's own --config and --set"
    if "progress" not in contents or not isinstance(contents.get("model_config"), dict):
        raise CheckpointError(f"{path}: not of a run of asr train; {choose}")
    before, now = TransducerConfig.from_dict(contents["model_config"], path).flat(), config.flat()
    if differ := _differences(before, now):
        raise CheckpointError(f"{path}: not of a run with this configuration: it has {differ}; {choose}")


def check_settings(path: Path, contents: dict[str, Any], config: TransducerTrainConfig) -> None:
    """Raises CheckpointError unless the checkpoint is of a run with these settings, but for those in `FREE`."""
    now = {name: value for name, value in asdict(config).items() if name not in FREE and name in contents}
    if differ := _differences(contents, now):
        raise CheckpointError(
            f"{path}: not of a run with these settings: it has {differ}; choose another --exp-dir, where --init takes "
            "a model folder to start from, or the run's own settings"
        )


def other_data(before: dict[str, Any], now: dict[str, Any]) -> tuple[str, bool]:
    """What of a run's data was another one, as far as its checkpoint tells, and whether its batches were others."""
    known = {name: value for name, value in now.items() if name in before}
    differ = {name for name in known if before[name] != known[name]}
    return _differences(before, known), bool(differ - AUGMENTED_BY)


def _differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    """`NAME OLD, now NEW`, of each value of `now` that was another one."""
    differ = (name for name in now if before[name] != now[name])
    return "; ".join(f"{name} {json.dumps(before[name])}, now {json.dumps(now[name])}" for name in differ)
