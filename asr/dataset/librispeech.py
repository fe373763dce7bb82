"""The sets of LibriSpeech in one folder, with the names that icefall and `asr prepare` give them (--manifest-dir)."""

from __future__ import annotations

from pathlib import Path

from asr.errors import DataError

TRAIN_100, TRAIN_REST = "train-clean-100", ("train-clean-360", "train-other-500")
TRAIN_ALL = "train-all-shuf"  # all three, shuffled, where icefall's prepare.sh has made it
VALID, TEST = ("dev-clean", "dev-other"), ("test-clean", "test-other")


def cuts_file(folder: Path, part: str) -> Path:
    """The cuts of a part."""
    return folder / f"librispeech_cuts_{part}.jsonl.gz"


def training_cuts(folder: Path, full: bool) -> tuple[Path, ...]:
    """The cuts to train on: all 960 hours, or with `full` false train-clean-100.

    Raises:
      DataError: a file is missing.
    """
    if full and cuts_file(folder, TRAIN_ALL).is_file():
        return (cuts_file(folder, TRAIN_ALL),)
    parts = (TRAIN_100, *TRAIN_REST) if full else (TRAIN_100,)
    missing = [cuts_file(folder, part).name for part in parts if not cuts_file(folder, part).is_file()]
    if missing:
        advice = "; --full-libri false takes train-clean-100 alone" if full else ""
        raise DataError(f"{folder}: no {', '.join(missing)}; expected the manifests of icefall's prepare.sh{advice}")
    return tuple(cuts_file(folder, part) for part in parts)


def cuts_there(folder: Path, parts: tuple[str, ...]) -> tuple[Path, ...]:
    """The cuts of those of the parts that are there.

    Raises:
      DataError: none is.
    """
    found = tuple(file for part in parts if (file := cuts_file(folder, part)).is_file())
    if not found:
        names = " or ".join(cuts_file(folder, part).name for part in parts)
        raise DataError(f"{folder}: no {names}; expected the manifests of icefall's prepare.sh")
    return found
