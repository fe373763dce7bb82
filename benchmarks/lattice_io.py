"""Speed of reading and writing Kaldi lattice archives: MB of unpacked binary a second of CPU, best of three.

    python benchmarks/lattice_io.py ARCHIVE [--repeat 40]

Stages: unpacking and parsing records, records to lattices, lattices to records, writing records (not packed).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rescore.formats.kaldi_archive import read_records, write_records
from rescore.formats.kaldi_lattice import from_lattice, to_lattice
from rescore.formats.symbols import SymbolTable


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """The least CPU time of three runs, and what the last gives."""
    least = float("inf")
    for _ in range(3):
        begin = time.process_time()
        result = work()
        least = min(least, time.process_time() - begin)
    return least, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--repeat", type=int, default=20, help="copies of the archive to work on")
    arguments = parser.parse_args()
    originals = list(read_records(arguments.archive))
    table = SymbolTable()
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = Path(folder) / "lat.ark", Path(folder) / "lat.ark.gz"
        for path in (plain, packed):
            write_records(path, originals * arguments.repeat, {})
        size = plain.stat().st_size / 1e6
        print(f"{size:.1f} MB, {len(originals) * arguments.repeat} lattices")
        for name, path in (("read, plain", plain), ("read, gz", packed)):
            spent, raws = seconds(lambda path=path: list(read_records(path)))  # type: ignore[misc]
            print(f"{name:20} {size / spent:7.1f} MB/s")
        spent, lattices = seconds(lambda: [to_lattice(raw, table) for raw in raws])
        print(f"{'to lattices':20} {size / spent:7.1f} MB/s")
        spent, _ = seconds(lambda: [from_lattice(lattice, table) for lattice in lattices])
        print(f"{'from lattices':20} {size / spent:7.1f} MB/s")
        spent, _ = seconds(lambda: write_records(plain, raws, {}))
        print(f"{'write, plain':20} {size / spent:7.1f} MB/s")


if __name__ == "__main__":
    main()
