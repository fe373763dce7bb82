"""Manifests that cannot be decoded are refused before the work, lhotse's Shar too."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from asr.decoding.sets import cuts_to_decode
from asr.errors import DataError
from rescore.errors import FormatError

pytest.importorskip("lhotse")


def shar(folder: Path, *ids: str) -> Path:
    """A Shar folder of two shards, without audio."""
    for number, chosen in enumerate((ids[:1], ids[1:])):
        lines = [{"id": each, "start": 0, "duration": 1.0, "channel": 0, "type": "MonoCut"} for each in chosen]
        with gzip.open(folder / f"cuts.{number:06d}.jsonl.gz", "wt") as stream:
            stream.writelines(json.dumps(line) + "\n" for line in lines)
    return folder


@pytest.mark.parametrize(
    ("ids", "problem"),
    [(("a", "b c"), "the id 'b c' has blanks"), (("a", "b", "a"), "found 2 cuts with the id 'a'")],
)
def test_ids_of_shar_are_looked_at_first(ids: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path}: {problem}"):
        cuts_to_decode(shar(tmp_path, *ids), False)


def test_ids_of_shar_that_are_good(tmp_path: Path) -> None:
    cuts = cuts_to_decode(shar(tmp_path, "a", "b", "c"), False)
    assert cuts.is_lazy and [cut.id for cut in cuts] == ["a", "b", "c"]


def test_a_damaged_manifest_of_shar_is_named(tmp_path: Path) -> None:
    (shar(tmp_path, "a", "b") / "cuts.000001.jsonl.gz").write_bytes(gzip.compress(b'{"id": \n'))
    with pytest.raises(FormatError, match=r"cuts\.000001\.jsonl\.gz:1: not a lhotse cut"):
        cuts_to_decode(tmp_path, False)
