"""`rescore sample`: what ships, and that it is fit for a quick start."""

from __future__ import annotations

from pathlib import Path

import rescore as rs
from rescore.cli.sample import SAMPLE
from tests.commands import run_line


def run(line: str) -> tuple[int, str]:
    from rescore.cli.main import main

    return run_line("rescore", main, line)


def test_it_is_small_and_whole(tmp_path: Path) -> None:
    assert run(f"sample {tmp_path / 'sample'}")[0] == 0
    files = {path.name: path.read_bytes() for path in (tmp_path / "sample").iterdir()}
    assert files == {path.name: path.read_bytes() for path in SAMPLE.iterdir()}
    assert sum(map(len, files.values())) < 200_000
    said = set()
    for name in ("dev", "test"):
        lists, references = rs.read_nbest(SAMPLE / f"{name}.jsonl.gz"), rs.read_text(SAMPLE / f"{name}.txt")
        assert len(lists) == 20 and {item.utt_id for item in lists} == set(references)
        assert min(len(item.hyps) for item in lists) > 5
        said |= {tuple(words) for words in references.values()}
    assert len(said) == 40  # what is tested on was not tuned on


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    code, said = run(f"sample {tmp_path}")
    assert code == 2 and "exists already; remove it first, or name a new folder" in said
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_it_is_part_of_the_package() -> None:
    setup = Path(__file__).parents[3] / "setup.py"
    assert '"sample/*"' in setup.read_text()
