"""One utterance that memory does not suffice to read, do or write is named and left out; the rest goes on."""

from __future__ import annotations

import gzip
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lm_zoo import safe_unpickle
from lm_zoo.errors import ModelError
from rescore.cli.main import main
from rescore.errors import FormatError
from rescore.formats import kaldi_archive, openfst, read_lattices, read_nbest, write_lattices, write_nbest
from rescore.skipping import Skip
from rescore.types import Hypothesis, Lattice, NbestList
from tests.commands import run_line
from tests.rescore.workflows.test_skipping import LM, sausage

IDS = ("a", "monster", "z")
LEFT_OUT = "1 left out because of errors; all else is done (exit status 3)"
LATTICE_TARGETS = {  # what is to be written -> what makes an utterance of it
    "slf:out": "slf_write.format_lattice",
    "openfst:out.txt": "openfst._words",
    "kaldi-lat:out.ark": "kaldi_lattice.from_lattice",
    "kaldi-lat:out.ark.gz": "kaldi_archive.format_binary",
    "kaldi-lat:out.ark?text=yes": "kaldi_archive.format_text",
    "k2:out.pt": "k2_files.to_arcs",
}
LIST_TARGETS = {"jsonl:out.jsonl.gz": "jsonl._entry", "mlm:out.json": "mlm._line"}


def starve(patch: pytest.MonkeyPatch, name: str, wants: Callable[..., bool]) -> None:
    """Lets `MODULE.FUNCTION` of `rescore` find no memory where `wants` says so."""
    module, _, function = f"rescore.{name}".rpartition(".")
    real = getattr(importlib.import_module(module), function)

    def starved(*arguments: Any, **named: Any) -> Any:
        if wants(*arguments):
            raise MemoryError
        return real(*arguments, **named)

    patch.setattr(f"{module}.{function}", starved)


def is_monster(item: Any, *_: Any) -> bool:
    return bool(item.utt_id == "monster")


def made(*ids: str) -> list[Lattice]:
    return [sausage(np.random.default_rng(0), utt_id, 2, ["A", "B"]) for utt_id in ids]


def made_lists() -> list[NbestList]:
    return [NbestList(utt_id, [Hypothesis(("A",), {"score": -1.0})]) for utt_id in IDS]


@pytest.mark.parametrize("spec", LATTICE_TARGETS)
def test_a_lattice_that_is_too_large_to_be_written(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    starve(monkeypatch, f"formats.{LATTICE_TARGETS[spec]}", is_monster)
    skip = Skip()
    assert write_lattices(spec, made(*IDS), skip) == 2
    assert skip.take() == [f"{spec.partition(':')[2].partition('?')[0]}: utterance 'monster': {WRITING}"]
    source = spec.partition("?")[0]
    assert [lattice.utt_id for lattice in read_lattices(source)] == ["a", "z"]
    refused(
        spec.replace("out", "none"), lambda spec: write_lattices(spec, made("monster"), skip), "no lattice to write"
    )
    refused(spec.replace("out", "none"), lambda spec: write_lattices(spec, made(*IDS)), WRITING)


WRITING = "memory does not suffice to write it"


def refused(spec: str, write: Callable[[str], object], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        write(spec)
    assert not list(Path().glob("*none*"))


@pytest.mark.parametrize("spec", LIST_TARGETS)
def test_a_list_that_is_too_large_to_be_written(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    starve(monkeypatch, f"formats.{LIST_TARGETS[spec]}", is_monster)
    skip = Skip()
    assert write_nbest(spec, made_lists(), skip) == 2
    assert [nbest.utt_id for nbest in read_nbest(spec)] == ["a", "z"]
    assert skip.count == 1
    none = spec.replace("out", "none")
    refused(none, lambda spec: write_nbest(spec, made_lists()[1:2], skip), "no utterance to write")
    refused(none, lambda spec: write_nbest(spec, made_lists()), WRITING)


def test_all_of_them_are_too_large_for_one_file_of_k2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starve(monkeypatch, "formats.k2_files.joined", lambda _: True)
    with pytest.raises(
        FormatError, match=r"out.pt: memory does not suffice for all lattices in one file.*another format"
    ):
        write_lattices(f"k2:{tmp_path}/out.pt", made(*IDS))


def test_lattices_of_k2_that_are_too_large_to_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a file, and a file as a whole."""
    (tmp_path / "in").mkdir()
    for number, ids in enumerate((IDS, ("b", "c"), ("d",)), start=1):
        write_lattices(f"k2:{tmp_path}/in/{number}.pt", made(*ids))
    starve(monkeypatch, "formats.k2._to_lattice", lambda utt_id, *_: utt_id == "monster")
    starve(monkeypatch, "formats.k2_files.load", lambda path: path.name == "2.pt")
    skip = Skip()
    assert [lattice.utt_id for lattice in read_lattices(f"k2:{tmp_path}/in?words=ids", skip)] == ["a", "z", "d"]
    lattice, file = skip.take()
    assert lattice.endswith("1.pt: utterance 'monster': memory does not suffice for this lattice")
    assert file.endswith(
        "2.pt: memory does not suffice for this lattice; how many others are lost with it is not known"
    )


def test_a_file_of_torch_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(*_: object) -> None:
        raise MemoryError

    torch.save({"a": torch.zeros(3)}, tmp_path / "a.pt")
    monkeypatch.setattr(safe_unpickle.Archive, "numbers", starved)
    with pytest.raises(ModelError, match=r"a.pt: .*, or memory does not suffice for it"):
        safe_unpickle.read_torch_file(tmp_path / "a.pt")


@pytest.mark.parametrize("text", ["no", "yes"])
@pytest.mark.parametrize("suffix", ["ark", "ark.gz"])
def test_a_record_that_does_not_fit_into_memory(
    suffix: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is found without all of it, and the places behind it are the right ones."""
    monkeypatch.chdir(tmp_path)
    sizes = {"a": 2, "monster": 400, "z": 2, "damaged": 2}
    dice = np.random.default_rng(0)
    lattices = [sausage(dice, utt_id, size, ["A", "B"]) for utt_id, size in sizes.items()]
    write_lattices(f"kaldi-lat:whole.ark?text={text}", lattices)
    data = Path("whole.ark").read_bytes()
    places = {utt_id: data.index(f"{utt_id} ".encode()) for utt_id in ("monster", "damaged")}
    bad = places["damaged"] + len("damaged ") + 4
    data = data[:bad] + b"?" + data[bad + 1 :]
    Path(f"in.{suffix}").write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    piece = kaldi_archive._Archive._piece

    def little(archive: kaldi_archive._Archive) -> bytes:
        if len(archive.data) > 4000:
            raise MemoryError
        return piece(archive)

    monkeypatch.setattr(kaldi_archive._Archive, "_piece", little)
    for size, constant in ((500, "_CHUNK"), (50, "_LONGEST_KEY"), (100, "_LONGEST_HEAD")):
        monkeypatch.setattr(kaldi_archive, constant, size)
    skip = Skip()
    assert [found.utt_id for found in read_lattices(f"kaldi-lat:in.{suffix}?words=ids", skip)] == ["a", "z"]
    monster, damaged = skip.take()
    where = f"in.{suffix}: utterance 'monster' at byte {places['monster']}"
    assert monster == f"{where}: memory does not suffice for this lattice"
    assert damaged.startswith(f"in.{suffix}: utterance 'damaged' at byte {places['damaged']}:")


def test_a_text_whose_lines_do_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenFst's: the file is read again up to there."""
    monkeypatch.chdir(tmp_path)
    write_lattices("openfst:in.txt", made(*IDS))

    class Rows(list):  # type: ignore[type-arg]
        def append(self, row: list[str]) -> None:
            if len(self) == 2 and not refused_once:
                refused_once.append(True)
                raise MemoryError
            super().append(row)

    refused_once: list[bool] = []
    entry = openfst._Entry
    monkeypatch.setattr(openfst, "_Entry", lambda utt_id, line: entry(utt_id, line, Rows() if line > 1 else []))
    skip = Skip()
    assert [lattice.utt_id for lattice in read_lattices("openfst:in.txt", skip)] == ["a", "z"]
    assert skip.take() == ["in.txt:8: utterance 'monster': memory does not suffice for this lattice"]


COMMANDS = ["lattice rescore slf:in --ngram a.arpa --scale am=1 --scale ngram=1 -n 2", "lattice nbest slf:in --jobs 2"]
COMMANDS += ["lattice nbest slf:in --jobs 1", "lattice nbest kaldi-lat:in.ark --jobs 2"]


@pytest.mark.parametrize("command", COMMANDS)
def test_lists_of_lattices(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not suffice to make the list, or to write it."""
    sources(tmp_path, monkeypatch)
    module = "lattice_rescore" if "rescore" in command else "lattice_nbest"
    for number, starved in enumerate((f"workflows.{module}.exact_nbest", "formats.jsonl._entry")):
        with pytest.MonkeyPatch.context() as patch:
            starve(patch, starved, is_monster)
            end = run_line("rescore", main, f"{command} --on-error skip {number}.jsonl")
        assert end == (3, LEFT_OUT)
        assert [nbest.utt_id for nbest in read_nbest(f"{number}.jsonl")] == ["a", "z"]


@pytest.mark.parametrize("starved", ["formats.slf_write.format_lattice", "formats.part_files.lattice_to_json"])
def test_lattices_alone_and_in_shares(starved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources(tmp_path, monkeypatch)
    starve(monkeypatch, starved, is_monster)
    line = "lattice rescore slf:in --ngram a.arpa --scale am=1 --scale ngram=1 --on-error skip slf:out"
    if "slf" in starved:
        assert run_line("rescore", main, line) == (3, LEFT_OUT)
        (tmp_path / "out").rename(tmp_path / "alone")
    codes = [run_line("rescore", main, f"{line} --split {number}/2")[0] for number in (1, 2)]
    assert sorted(codes) == ([0, 0] if "slf" in starved else [0, 3])
    assert run_line("rescore", main, "merge out") == (3, LEFT_OUT)
    assert sorted(path.name for path in Path("out").iterdir()) == ["a.slf.gz", "z.slf.gz"]


def sources(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lattices in two formats, and an n-gram, in the working directory."""
    monkeypatch.chdir(folder)
    write_lattices("slf:in", made(*IDS))
    write_lattices("kaldi-lat:in.ark", made(*IDS))
    Path("text").write_text("A B\nB A\nA A B\n" * 3)
    assert run_line("rescore", main, "train-ngram --text text --order 2 --discount-fallback --out a.arpa")[0] == 0


@pytest.mark.parametrize("monster", ["a", "monster", "z"])
def test_scored_lists_that_are_too_large_to_be_written(
    monster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone and in shares; and a run that is stopped behind that goes on without it."""
    monkeypatch.chdir(tmp_path)
    write_nbest("jsonl:in.jsonl", made_lists())
    starve(monkeypatch, "formats.jsonl._entry", lambda nbest, _: nbest.utt_id == monster)
    line = f"nbest --nbest in.jsonl --lm {LM} --on-error skip"
    code, said = run_line("rescore", main, f"{line.replace('skip', 'stop')} --out stop")
    assert code == 2 and said.endswith(f"utterance '{monster}': {WRITING}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rescore.workflows.scoring.join_parts", stopped)
        assert run_line("rescore", main, f"{line} --out out") == (1, "Aborted!")
    assert run_line("rescore", main, f"{line} --out out") == (3, LEFT_OUT)
    assert run_line("rescore", main, f"{line} --out shared --split 1/1")[0] == 3
    assert run_line("rescore", main, "merge shared") == (3, LEFT_OUT)
    for name in ("scores.jsonl.gz", "nbest.jsonl.gz", "1best.txt"):
        assert Path("out", name).read_bytes() == Path("shared", name).read_bytes()
    assert [nbest.utt_id for nbest in read_nbest("jsonl:out/nbest.jsonl.gz")] == [i for i in IDS if i != monster]


def stopped(*_: object) -> None:
    raise KeyboardInterrupt
