"""Commands over lattices and lists, shared out: the bytes of one process, whatever the shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copy, copytree

import numpy as np
import pytest

from lm_zoo.registry import build, save_folder
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary
from rescore.cli.main import main
from rescore.errors import FormatError, RescoreError, UsageError
from rescore.formats import read_lattices, write_lattices
from rescore.formats.part_files import LATTICES
from rescore.types import Alignments, Lattice
from tests.commands import run_line
from tests.faults.commands import make_inputs
from tests.rescore.formats.test_slf import HTK_NODES
from tests.rescore.workflows.test_scoring import run

LMS = "--ngram text.arpa --lm nn=cats --scale ngram=1 --scale nn=1"
LATTICE_RESCORE = f"lattice rescore slf:lattices {LMS} --case upper --in-flight 2"
COMMANDS = {
    "lattice rescore": f"{LATTICE_RESCORE} slf:{{target}}",
    "n best of it": f"{LATTICE_RESCORE} -n 3 {{target}}.jsonl.gz",
    "lattice nbest": "lattice nbest slf:many -n 3 {target}.jsonl",
    "archives": "lattice nbest kaldi:archives --words words.txt {target}.jsonl",
    "index": "lattice nbest kaldi-lat:archives/lat.scp --words words.txt {target}.jsonl",
    "one archive": "lattice nbest kaldi:archives/lat.2.gz --words words.txt {target}.jsonl",
    "convert lattices": "convert slf:many --case upper slf:{target}",
    "with an n-gram": "convert slf:lattices --ngram text.arpa --case upper {target}.jsonl",
    "ppl": "ppl --lm small --ngram abc.arpa --text abc.txt --mix mix.json --tail counts --json {target}.json",
    "convert lists": "convert lists.jsonl --case lower {target}.jsonl.gz",
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of `tests.faults.commands`, forty lattices, and archives of them."""
    folder = tmp_path_factory.mktemp("inputs")
    make_inputs(folder)
    (folder / "many").mkdir()
    for number in range(40):
        (folder / f"many/u{number:02d}.slf").write_text(HTK_NODES)
    lattices = list(read_lattices(f"slf:{folder / 'many'}"))
    (folder / "archives").mkdir()
    for job in (1, 2, 3):
        write_lattices(f"kaldi-lat:{folder}/archives/lat.{job}.gz?words={folder}/words.txt", lattices[job::3])
    plain = folder / "archives/plain.ark"
    write_lattices(f"kaldi-lat:{plain}?words={folder}/words.txt", lattices[:5])
    data = plain.read_bytes()
    places = [(f"u{number:02d}", data.index(f"u{number:02d} ".encode()) + 4) for number in range(5)]
    (folder / "archives/lat.scp").write_text("".join(f"{name} {plain}:{place}\n" for name, place in places))
    vocab = WordVocabulary([SOS_EOS, UNK, "THE", "A", "CAT", "SAT", "MAT"], "upper")
    save_folder(folder / "cats", build("lstm", vocab, {"dim": 8}), "lstm", {})
    (folder / "abc.txt").write_text("A B C\nB A\n\nC ZZZ\n" * 900)  # more than a part
    done(f"count --text {folder}/abc.txt --out {folder}/counts".split())
    (folder / "mix.json").write_text('{"scales": {"small": 0.25, "ngram": 0.75}}')
    return folder


def contents(path: Path) -> dict[str, bytes]:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {file.name if file != path else "": file.read_bytes() for file in files}


def line(name: str, target: Path) -> tuple[list[str], Path]:
    """The arguments of a command, and what it writes."""
    words = COMMANDS[name].format(target=target).split()
    return words, Path(words[-1].removeprefix("slf:"))


def done(words: list[str]) -> str:
    result = run(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return str(result.output)


@pytest.mark.parametrize("name", COMMANDS)
def test_shares_give_the_bytes_of_one_process(
    name: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(inputs)
    words, whole = line(name, tmp_path / "whole")
    said = done(words)
    words, out = line(name, tmp_path / "out")
    for share in ("3/3", "1/3", "2/3"):
        assert not out.exists()
        done([*words, "--split", share])
    merged = done(["merge", words[-1]])
    assert contents(out) == contents(whole)
    assert {path.name for path in tmp_path.iterdir()} == {out.name, whole.name}
    told = [line.replace("/whole", "/out") for line in said.splitlines() if " written to " in line or "unknown" in line]
    assert (told or name == "ppl") and all(line in merged for line in told)


@pytest.fixture(scope="module")
def ray_here() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lattice rescore", "lattice nbest", "convert lists", "ppl"])
def test_ray_gives_the_bytes_of_one_process(
    name: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_here: None
) -> None:
    monkeypatch.chdir(inputs)
    words, whole = line(name, tmp_path / "whole")
    done(words)
    words, out = line(name, tmp_path / "out")
    done([*words, "--executor", "ray", "--workers", "1", "--shards", "2"])
    assert contents(out) == contents(whole)
    assert {path.name for path in tmp_path.iterdir()} == {out.name, whole.name}


def test_a_share_goes_on_where_it_was_killed(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(inputs)
    words, out = line("lattice nbest", tmp_path / "out")
    done([*words, "--split", "1/1"])
    parts = sorted((tmp_path / ".out.jsonl.parts").glob("0*.jsonl.gz"))
    assert len(parts) == 3  # of 16 lattices each
    kept = parts[0].stat().st_mtime_ns
    parts[1].unlink()
    (tmp_path / ".out.jsonl.parts/split-1-of-1.json").unlink()
    unfinished = run("merge", out)
    assert isinstance(unfinished.exception, FormatError) and "no finished share" in str(unfinished.exception)
    done([*words, "--split", "1/1"])
    assert parts[0].stat().st_mtime_ns == kept
    done(["merge", str(out)])
    words, whole = line("lattice nbest", tmp_path / "whole")
    done(words)
    assert contents(out) == contents(whole)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("lattice rescore", "--scale nn=1", "--scale am=1"),
        ("convert lists", "lists.jsonl", "list.jsonl"),
        ("lattice nbest", "slf:many", "slf:none"),
        ("ppl", "abc.txt", "ab.txt"),
    ],
)
def test_a_share_that_cannot_begin_leaves_no_plan(
    name: str, right: str, wrong: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(inputs)
    words = [*line(name, tmp_path / "out")[0], "--split", "1/1"]
    refused = run(*" ".join(words).replace(right, wrong).split())
    assert refused.exception is not None and not list(tmp_path.iterdir())
    done(words)


def test_shares_of_another_plan_are_refused(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(inputs)
    words, _ = line("lattice nbest", tmp_path / "out")
    done([*words, "--split", "1/2"])
    for more, differs in ((["--scale", "am=2"], "scales"), (["-n", "4"], "n"), (["--on-error", "skip"], "--on-error")):
        refused = run(*words[:2], *words[2:], *more, "--split", "2/2")
        assert isinstance(refused.exception, UsageError)
        assert f"parts of a run with another {differs};" in str(refused.exception)


@pytest.mark.parametrize("name", ["lattice nbest", "ppl"])
def test_a_damaged_plan_is_one_line(name: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(inputs)
    words, out = line(name, tmp_path / "out")
    done([*words, "--split", "1/1"])
    (plan,) = tmp_path.glob(".*/plan.json")
    plan.write_text("{")
    found = run("merge", str(out))
    assert isinstance(found.exception, FormatError) and not out.exists()
    assert str(found.exception).startswith(f"{plan}: damaged or removed (no ")


def test_what_cannot_be_shared_is_refused(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(inputs)
    for arguments, message in (
        ("convert kaldi-lat:archives --words words.txt kaldi-lat:OUT.gz --split 1/2", "No such option"),
        ("convert kaldi-lat:archives?words=words.txt kaldi-lat:OUT.gz?words=words.txt --split 1/2", "copied as it is"),
        ("lattice nbest slf:/dev/stdin OUT.jsonl --split 1/2", "is a pipe"),
        ("lattice nbest slf:many --jobs 2 OUT.jsonl --executor local", "with --executor: --workers"),
        ("ppl --lm small --text kaldi:- --json OUT --split 1/2", "is no file"),
        ("convert lists.jsonl OUT.jsonl --split -", "to split words: --split-words"),
        ("convert lists.jsonl OUT.jsonl --workers 2", "need --executor"),
    ):
        result = run(*arguments.replace("OUT", str(tmp_path / "out")).split())
        assert result.exit_code != 0 and message in f"{result.exception}{result.output}", arguments


def test_a_folder_that_is_there_is_refused_before_the_work(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All was done, the folder refused at the end, and the parts stayed beside it."""
    monkeypatch.chdir(inputs)
    words, out = line("lattice rescore", tmp_path / "out")
    out.mkdir()
    (out / "mine").write_text("")
    result = run(*words, "--executor", "local", "--workers", "1")
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == f"{out}: exists already; remove it first, or name a new folder"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("command", "target", "message"),
    [
        ("lattice rescore", "pfsg:OUT.pfsg", "pfsg is read only; write another format, such as slf:PATH"),
        ("lattice rescore", "kaldi-lat:OUT.scp", "an index is read, not written"),
        ("lattice rescore", "kaldi-lat:OUT.ark?weights=no.json", "no.json: no such file"),
        ("lattice rescore", "k2:OUT.pt?tokens=maybe", "tokens=maybe, expected yes or no"),
        ("lattice rescore", "openfst:OUT.fst.txt?words=no.txt", "no.txt: no such file"),
        ("lattice nbest", "nemo:OUT.tsv?n=0", "n is '0', expected a number from 1"),
        ("lattice nbest", "lattice-rescore:OUT", "lattice-rescore is read only; write another format, such as jsonl"),
        ("convert lists", "srilm:OUT.nbest?base=2", "base is '2', expected e or 10"),
    ],
)
@pytest.mark.parametrize("sharing", ["--split 1/2", "--executor local --workers 1"])
def test_a_target_that_cannot_be_written_is_refused_before_the_work(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sharing: str, command: str, target: str, message: str
) -> None:
    """All shares were done, the merge failed, and the target could not be changed any more."""
    monkeypatch.chdir(inputs)
    words, _ = line(command, tmp_path / "out")
    result = run(*words[:-1], target.replace("OUT", str(tmp_path / "out")), *sharing.split())
    assert isinstance(result.exception, RescoreError) and message in str(result.exception)
    assert not any(tmp_path.iterdir())


def test_what_is_left_out_is_named_by_the_merge(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 3 of the share that met it, and of the merge."""
    (tmp_path / "lattices").mkdir()
    for number in range(20):
        (tmp_path / f"lattices/u{number:02d}.slf").write_text(HTK_NODES if number != 17 else HTK_NODES[:100])
    line = f"lattice nbest slf:{tmp_path}/lattices --on-error skip -n 3"
    codes = [run_line("rescore", main, f"{line} --split {share}/2 {tmp_path}/out.jsonl")[0] for share in (1, 2)]
    assert codes == [0, 3]
    code, said = run_line("rescore", main, f"merge {tmp_path}/out.jsonl")
    assert code == 3 and said == "1 left out because of errors; all else is done (exit status 3)"
    assert run_line("rescore", main, f"{line} --jobs 1 {tmp_path}/whole.jsonl")[0] == 3
    assert (tmp_path / "whole.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()


def test_what_all_archives_have_in_common_is_said_once(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of words was looked for, read and named for each archive, and for each sixteen lines of an index."""
    monkeypatch.chdir(tmp_path)
    copytree(inputs / "archives", tmp_path / "copy")
    copy(inputs / "words.txt", tmp_path / "copy")
    (tmp_path / "frame_shift").write_text("0.03\n")
    said = done(["convert", "kaldi-lat:copy", "slf:out", "--case", "upper"])
    assert said.count("words are those of copy/words.txt") == 1 == said.count("a frame is 0.03 s")


def test_what_is_done_again_is_counted_once(tmp_path: Path) -> None:
    """Sixteen hypotheses of four lattices with two each: those of a group were counted with each of its halves."""
    (tmp_path / "lattices").mkdir()
    for number in range(5):
        text = HTK_NODES if number != 3 else HTK_NODES.replace(" l=", " n=")
        (tmp_path / f"lattices/u{number}.slf").write_text(text)
    out = f"{tmp_path}/out.jsonl"
    run_line("rescore", main, f"lattice nbest slf:{tmp_path}/lattices --on-error skip --scale lm=3 --split 1/1 {out}")
    said = done(["merge", out])
    assert f"4 utterances, 8 hypotheses written to {out}" in said
    assert "4 utterances with fewer hypotheses than asked for" in said


def test_parts_hold_lattices_whole(tmp_path: Path) -> None:
    (lattice,) = read_lattices(f"slf:{_slf(tmp_path)}")
    arcs = lattice.num_arcs
    strings = Alignments.of_lengths(np.arange(2 * arcs), np.full(arcs, 2))
    lattice = Lattice(**{**vars(lattice), "alignments": strings, "counts": {"removed_arcs": 3}})
    lattice.scores["third"] = np.arange(arcs) / 3
    LATTICES.write(tmp_path / "part.gz", [lattice])
    (again,) = LATTICES.read(tmp_path / "part.gz")
    for name in ("src", "dst", "labels", "times"):
        one, other = getattr(lattice, name), getattr(again, name)
        assert one is other is None or (one.dtype == other.dtype and one.tobytes() == other.tobytes())
    assert {name: found.tobytes() for name, found in again.scores.items()} == {
        name: found.tobytes() for name, found in lattice.scores.items()
    }
    assert again.alignments.ids.tolist() == strings.ids.tolist()
    assert (again.utt_id, again.symbols, again.counts) == (lattice.utt_id, lattice.symbols, lattice.counts)


def _slf(folder: Path) -> Path:
    (folder / "a.slf").write_text(HTK_NODES)
    return folder / "a.slf"


@pytest.mark.slow
def test_processes_give_the_bytes_of_one(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(inputs)
    words, whole = line("with an n-gram", tmp_path / "whole")
    done(words)
    words, out = line("with an n-gram", tmp_path / "out")
    assert "4 utterances, " in done([*words, "--executor", "local", "--workers", "2", "--shards", "3"])
    assert contents(out) == contents(whole)
