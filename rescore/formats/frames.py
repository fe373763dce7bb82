"""Seconds of the frames that transition ids stand for: lattices of Kaldi do not say them, the model's folder may."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lm_zoo.reading import is_read_once
from rescore.console import remark, remark_on_source
from rescore.errors import UsageError
from rescore.formats.symbols import is_folder
from rescore.lattices.paths import best_arcs
from rescore.types import Lattice

FRAME_SHIFT = 0.01  # seconds; of Kaldi's features


def given_shift(options: Mapping[str, str]) -> float | None:
    """The option, or None."""
    text = options.get("frame_shift")
    return None if text is None else _seconds(text, f"frame_shift={text}")


def usual_shift(path: Path) -> float:
    """As in Kaldi's `get_ctm.sh`: what the folder above, the model's, says; else, and of a pipe, `FRAME_SHIFT`."""
    if is_read_once(path):
        return FRAME_SHIFT
    shift, file = stated_shift((path if path.is_dir() else path.parent) / "..")
    if file is not None:
        remark_on_source(f"{path}: a frame is {shift:g} s, by {file} (else: PATH?frame_shift=SECONDS)")
    return shift


def stated_shift(model: Path) -> tuple[float, Path | None]:
    """Seconds of a frame, and the file in a model's folder that says so; `FRAME_SHIFT` and None if none does."""
    for name, unit in (("frame_shift", 1.0), ("frame_subsampling_factor", FRAME_SHIFT)):
        file = model / name
        if file.is_file():
            text = file.read_text(encoding="utf-8").strip()
            return round(_seconds(text, f"{file}: found {text!r}", unit), 6), file
    return FRAME_SHIFT, None


def say_lost_shift(path: Path, shift: float | None) -> None:
    """Remarks if the archives `path`, which have no place for it, would be read with another one (None: unknown)."""
    usual = FRAME_SHIFT
    if not is_read_once(path):
        usual, _ = stated_shift(path.parent if is_folder(path) else path.parent / "..")
    if shift is not None and abs(shift - usual) > 1e-6:
        remark(
            f"{path}: a frame is {shift:g} s, but {usual:g} s where it is written, and archives do not say it: read it "
            f"with ?frame_shift={shift:g}"
        )


def shift_of(lattice: Lattice) -> float | None:
    """Seconds for each transition id of a path; None without times or ids."""
    if lattice.times is None or lattice.alignments is None:
        return None
    path = best_arcs(lattice, np.zeros(lattice.num_arcs))
    frames = int(lattice.alignments.lengths[path].sum())
    return round(float(lattice.times[-1] - lattice.times[0]) / frames, 6) if frames else None


def _seconds(text: str, what: str, unit: float = 1.0) -> float:
    """Seconds a frame, from a number of units."""
    try:
        shift = float(text) * unit
    except ValueError:
        shift = 0.0
    if not 0.0 < shift < 1.0:
        expected = "seconds a frame, such as 0.01 or 0.03" if unit == 1.0 else "frames of features, such as 3"
        raise UsageError(f"{what}, expected {expected}")
    return shift


def frame_times(lattice: Lattice, frame_shift: float) -> np.ndarray | None:
    """Seconds of the states, a frame for each id; None where two paths into a state differ in length."""
    assert lattice.alignments is not None
    frames = [0] * lattice.num_states
    lengths = lattice.alignments.lengths
    for source, target, length in zip(lattice.src.tolist(), lattice.dst.tolist(), lengths.tolist(), strict=True):
        frames[target] = frames[source] + length  # states are in topological order
    found = np.array(frames)
    if not (found[lattice.dst] == found[lattice.src] + lengths).all():
        return None
    return found * frame_shift
