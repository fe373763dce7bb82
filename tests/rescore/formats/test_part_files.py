"""Files of the parts of shared work."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from asr.decoding import shares, shares_written
from rescore.errors import FormatError
from rescore.formats.part_files import PARTS

READERS = {
    **{name: part.read for name, part in PARTS.items() if name != "lists"},  # those are our JSON lines
    "asr decode": shares._read,
    "asr decode, written": shares_written.read_written,
}


@pytest.mark.parametrize("line", ['{"utt_id": "a", ', '{"utt_id": "a", "text": "x", "hyps": 5}', "[1, {}]", "5", "{}"])
@pytest.mark.parametrize("reader", READERS)
def test_damage_is_told(reader: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "000000.gz"
    path.write_bytes(gzip.compress(f"{line}\n".encode()))
    with pytest.raises(FormatError, match=r"000000.gz:1: damaged \(.*\); remove it and run its share again"):
        list(READERS[reader](path))
