"""Seconds of a frame of Kaldi's lattices: archives do not say them, the folder of the model may."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rescore.errors import UsageError
from rescore.formats import copy_lattices, read_lattices
from tests.rescore.formats.test_kaldi_lattice import write


@pytest.mark.parametrize(
    ("files", "last"),
    [
        ({}, 0.06),
        ({"frame_subsampling_factor": "3\n"}, 0.18),
        ({"frame_shift": "0.02", "frame_subsampling_factor": "3"}, 0.12),
    ],
)
def test_frames_are_those_of_the_model(tmp_path: Path, files: dict[str, str], last: float) -> None:
    """As Kaldi's `get_ctm.sh`, in the folder that the lattices' folder is in."""
    decode = tmp_path / "decode_dev"
    decode.mkdir()
    write(decode)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for place in (decode, decode / "lat.1"):
        times = next(read_lattices(f"kaldi:{place}?words=ids")).times
        assert times is not None and times[-1] == pytest.approx(last)
    copy_lattices(f"kaldi:{decode}?words=ids", f"openfst:{decode / 'text'}")
    for options, factor in (("", 1.0), ("&frame_shift=0.05", 0.05 / (last / 6))):
        again = next(read_lattices(f"openfst:{decode / 'text'}?words=ids{options}")).times
        assert again is not None and [*again[:-1], last * factor] == pytest.approx([*(factor * times), again[-1]])
    (tmp_path / "frame_subsampling_factor").write_text("three")
    with pytest.raises(UsageError, match="frame_subsampling_factor: found 'three', expected frames of features"):
        (tmp_path / "frame_shift").unlink(missing_ok=True)
        next(read_lattices(f"kaldi:{decode}?words=ids"))
    assert next(read_lattices(f"kaldi:{decode}?words=ids&frame_shift=0.01")).times is not None


@pytest.mark.parametrize("copied", [False, True])
def test_frames_that_would_be_read_as_others_are_remarked_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], copied: bool
) -> None:
    source, options = f"kaldi:{tmp_path / 'decode'}?words=ids", "?words=ids" if copied else "?words=ids&graph=graph"
    (tmp_path / "decode").mkdir()
    write(tmp_path / "decode")
    (tmp_path / "frame_subsampling_factor").write_text("3\n")
    times = next(read_lattices(source)).times
    for name, shift in (("new", ""), ("decode.si", ""), ("out.ark", "&frame_shift=0.03")):
        capsys.readouterr()
        copy_lattices(source, f"kaldi-lat:{tmp_path / name}{options}")
        said = (
            f"a frame is 0.03 s, but 0.01 s where it is written, and archives do not say it: read it with ?{shift[1:]}"
        )
        assert (said in capsys.readouterr().err.replace("\n", " ")) == bool(shift)
        assert np.array_equal(next(read_lattices(f"kaldi-lat:{tmp_path / name}?words=ids{shift}")).times, times)


def test_of_openfst_text_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    copy_lattices(f"kaldi:{tmp_path / 'lat.1'}?words=ids&frame_shift=0.03", f"openfst:{tmp_path / 'text'}")
    assert "read it with ?frame_shift=0.03" in capsys.readouterr().err.replace("\n", " ")


def test_openfst_text_without_transition_ids_has_no_times(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("u\n0 1 A 0.5,1\n1\n\n")
    assert next(read_lattices(f"openfst:{tmp_path / 'text'}?frame_shift=0.03")).times is None
    (tmp_path / "text").write_text("u\n0 1 A 0.5,1,3_3\n0 1 A 0.5,1,3\n1\n\n")
    assert next(read_lattices(f"openfst:{tmp_path / 'text'}")).times is None  # two ways of different length
