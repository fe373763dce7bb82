"""Utterances that cannot be read or scored, or that memory does not suffice for: named, counted, left out."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lm_zoo.errors import LMError
from lm_zoo.inference.limits import parse_size
from rescore.cli.main import main
from rescore.errors import RescoreError
from rescore.formats import read_lattices, write_lattices
from rescore.formats.part_files import LISTS
from rescore.sharing.parts import Bite, Parts, Split, bites, cut, notes, parts_inside
from rescore.sharing.shares import MOST_DEATHS, Sharing, _Deaths, share_out
from rescore.sharing.work import do_parts, in_halves
from rescore.skipping import Skip, fail
from rescore.types import Lattice
from rescore.workers import WorkerDied
from rescore.workflows.combine import read_scores
from tests.commands import run_line
from tests.rescore.slow_worker import die, make_shares
from tests.rescore.workflows.test_scoring import lists, run

LM = "toy=tests.toy_lm:Toy?likes=A,B,HE,SAID"


def write_source(path: Path, utterances: int = 6, bad: dict[int, str] | None = None) -> Path:
    """Lists u0, u1, ...; `bad` has other lines in their place."""
    lines = []
    for number in range(utterances):
        hyps = [{"words": f"A B{' HE' * number}", "scores": {"am": -1.0}}, {"words": "A", "scores": {"am": -2.0}}]
        lines.append((bad or {}).get(number) or json.dumps({"utt_id": f"u{number}", "hyps": hyps}))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_lists_that_cannot_be_read(tmp_path: Path) -> None:
    bad = {1: "{", 3: '{"utt_id": "u3", "hyps": []}', 4: '{"utt_id": "u0", "hyps": ["A"]}'}
    source = write_source(tmp_path / "lists.jsonl", bad=bad)
    line = f"nbest --nbest {source} --lm {LM} --scale am=1 --out"
    assert run_line("rescore", main, f"{line} {tmp_path}/out")[0] == 2
    code, said = run_line("rescore", main, f"{line} {tmp_path}/out --on-error skip")
    assert (code, said) == (3, "3 left out because of errors; all else is done (exit status 3)")
    assert [nbest.utt_id for nbest in read_scores(tmp_path / "out")] == ["u0", "u2", "u5"]
    whole = f"nbest --nbest {source} --lm {LM} --on-error skip --out {tmp_path}/shared --split"
    assert [run_line("rescore", main, f"{whole} {share}/2")[0] for share in (1, 2)] == [3, 3]
    assert run_line("rescore", main, f"merge {tmp_path}/shared --scale am=1") == (3, said)
    for name in ("scores.jsonl.gz", "1best.txt"):
        assert (tmp_path / "shared" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    write_source(source)
    assert run_line("rescore", main, f"{line} {tmp_path}/fine --on-error skip")[0] == 0


@pytest.mark.parametrize("kind", ["lists", "lattices", "lattices to lists"])
def test_what_cannot_be_converted(tmp_path: Path, kind: str) -> None:
    dice, (source, target) = np.random.default_rng(0), (tmp_path / "source", tmp_path / "out.jsonl")
    if kind == "lists":
        names = f"{write_source(tmp_path / 'source.jsonl', bad={1: '{'})} {target}"
    else:
        write_lattices(f"slf:{source}", [sausage(dice, f"u{number}", 3, ["A", "B"]) for number in range(6)])
        (damaged,) = source.glob("u1.*")
        damaged.write_bytes(damaged.read_bytes()[:20])
        names = f"slf:{source} {f'openfst:{target}' if kind == 'lattices' else target}"
    line = f"convert {names} --case upper"
    assert run_line("rescore", main, line)[0] == 2 and not target.exists()
    said = "1 left out because of errors; all else is done (exit status 3)"
    assert run_line("rescore", main, f"{line} --on-error skip") == (3, said)
    alone = target.read_bytes()
    target.unlink()
    shares = [run_line("rescore", main, f"{line} --on-error skip --split {share}/2")[0] for share in (1, 2)]
    assert max(shares) == 3
    assert run_line("rescore", main, f"merge {target}") == (3, said)
    assert target.read_bytes() == alone


def test_a_cut_off_source_is_read_up_to_there(tmp_path: Path) -> None:
    source = tmp_path / "lists.tsv"
    source.write_text("A B\t-1\nA\t-2\nB\t-1\nB A\t")
    result = run("nbest", "--nbest", f"nemo:{source}?n=2", "--lm", LM, "--on-error", "skip", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.exception
    assert "read up to here, and no further" in result.output
    assert len(list(read_scores(tmp_path / "out"))) == 1


CUT_OFF = "1 left out because of errors, and with them an unknown number of others; all else is done (exit status 3)"


@pytest.mark.parametrize(
    "name", ["kaldi:lat.1.gz", "kaldi:lat.1", "openfst:lat.txt", "openfst:lat.txt.gz", "k2:zzz.pt"]
)
def test_what_is_lost_behind_the_end_of_a_file_is_not_called_done(tmp_path: Path, name: str) -> None:
    """It said `1 left out because of errors; all else is done`, of an archive that was cut off in the middle."""
    dice, (kind, file) = np.random.default_rng(0), name.split(":")
    made = [sausage(dice, f"u{number}", 9, ["A", "B"]) for number in range(9)]
    path = tmp_path / "lats" / file
    path.parent.mkdir()
    if kind == "k2":
        pytest.importorskip("k2")
        write_lattices(f"k2:{tmp_path}/lats/good.pt", made)
        path.write_bytes((tmp_path / "lats" / "good.pt").read_bytes()[:1000])
        name = f"k2:{tmp_path}/lats?words={tmp_path}/lats/good.words.txt"
    else:
        name = f"{kind}:{path}"
        write_lattices(name, made)
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 5])
    line = f"lattice nbest {name} {tmp_path}/out.jsonl --on-error skip"
    assert run_line("rescore", main, f"{line} --jobs 1") == (3, CUT_OFF)
    assert [run_line("rescore", main, f"{line} --split {share}/2")[0] for share in (1, 2)].count(3) == 1
    assert run_line("rescore", main, f"merge {tmp_path}/out.jsonl") == (3, CUT_OFF)


def test_a_record_whose_length_is_damaged_takes_no_others_along(tmp_path: Path) -> None:
    """The archive seems to end within it, but the next one is found."""
    path, dice = tmp_path / "lat.1", np.random.default_rng(0)
    write_lattices(f"kaldi:{path}", [sausage(dice, f"u{number}", 9, ["A", "B"]) for number in range(3)])
    data = path.read_bytes()
    states = (10).to_bytes(8, "little")  # in the header, behind which the number of arcs follows
    at = data.index(states, data.index(b"u1 ")) + 8 + 8 + 12  # and the first state's weight, without a string
    assert int.from_bytes(data[at : at + 8], "little") == 2
    path.write_bytes(data[:at] + (10**6).to_bytes(8, "little") + data[at + 8 :])
    line = f"lattice nbest kaldi:{path} {tmp_path}/out.jsonl --on-error skip --jobs 1"
    said = "1 left out because of errors; all else is done (exit status 3)"
    assert run_line("rescore", main, line) == (3, said)


def doubled(seen: list[int], most: int, bad: tuple[int, ...] = ()):  # type: ignore[no-untyped-def]
    """Doubles numbers, `most` at a time; what is `bad` never."""

    def do(items: list[int]) -> list[int]:
        seen.append(len(items))
        if len(items) > most or set(items) & set(bad):
            raise MemoryError
        return [2 * item for item in items]

    return do


def test_half_at_once_where_memory_does_not_suffice() -> None:
    seen: list[int] = []
    assert in_halves(doubled(seen, 2), list(range(5)), str, fail) == [0, 2, 4, 6, 8]
    assert seen == [5, 2, 3, 1, 2]
    skip = Skip()
    assert in_halves(doubled(seen, 9, bad=(3,)), list(range(5)), str, skip) == [0, 2, 4, 8]
    assert skip.take() == ["utterance 3: memory does not suffice for it"] and skip.count == 1
    with pytest.raises(RescoreError, match="utterance 3: memory does not suffice for it"):
        in_halves(doubled(seen, 9, bad=(3,)), list(range(5)), str, fail)


def test_an_utterance_that_an_lm_refuses_is_named() -> None:
    """Also where the LM knows no utterances, as in lattices, several of which it goes over together."""

    def do(items: list[str]) -> list[str]:
        if "c" in items:
            raise LMError("a sentence has 17 tokens, but the model takes 16")
        return items

    said = "utterance c: a sentence has 17 tokens, but the model takes 16"
    with pytest.raises(RescoreError, match=f"^{said}$"):
        in_halves(do, list("abcd"), str, fail)
    skip = Skip()
    assert in_halves(do, list("abcd"), str, skip) == ["a", "b", "d"] and skip.take() == [said]


def test_words_are_counted_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Though lists are scored in halves, as memory does not suffice for all."""
    from rescore.workflows import scoring
    from rescore.workflows.columns import open_scorers
    from rescore.workflows.scoring import write_scores

    scored = scoring._scored

    def little_memory(batch: list[object], *rest: object) -> object:
        if len(batch) > 1:
            raise MemoryError
        return scored(batch, *rest)  # type: ignore[arg-type]

    (scorer,) = open_scorers([LM], None)
    monkeypatch.setattr(scoring, "_scored", little_memory)
    assert write_scores(lists(4), [scorer], tmp_path, {"plan": 1}).total == 4
    assert scorer.coverage.words == 4 * 7


def test_what_a_process_dies_of_is_cut_down_to_one_utterance(tmp_path: Path) -> None:
    parts, split = Parts(tmp_path, {"plan": 1}, Split(1, 1)), Split(1, 1)
    deaths = _Deaths(tmp_path, skip=True)
    begin, end, died = 0, 8, 0
    while not parts.cuts(0)[1]:
        (found,) = [each for each in bites(range(8), None, parts.cuts(0)[0]) if 5 in each[1]]
        begin, end = found[0], found[0] + len(found[1])
        parts.begin(Bite(0, begin, end, f"u{begin}"))
        deaths.note(split)
        died += 1
    assert (begin, end) == (5, 6) and parts.cuts(0)[1] == {5}
    assert died == 5  # of eight at once twice, of four, two and one
    with pytest.raises(WorkerDied, match=r"utterance u5: a worker process dies of it alone.*--on-error skip"):
        _Deaths(tmp_path, False, Counter({0: 1})).note(split)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("end", [1, 30])
def test_what_a_killed_run_was_at_is_not_what_a_worker_dies_of(tmp_path: Path, end: int, skip: bool) -> None:
    """As its workers die before they begin: the run ends, and nothing is cut or left out."""
    parts = Parts(tmp_path / "parts", {"plan": 1}, Split(1, 1))
    parts.begin(Bite(0, 0, end, "utt0"))
    with pytest.raises(WorkerDied, match="has died again and again"):
        share_out(partial(die, tmp_path), Sharing("local", shards=1, workers=1), parts.folder, skip)
    assert len((tmp_path / "tries").read_text().split()) == MOST_DEATHS
    assert parts.cuts(0) == ([], set())


def test_cuts_in_vain_end_the_run(tmp_path: Path) -> None:
    parts, split, deaths = Parts(tmp_path, {"plan": 1}, Split(1, 1)), Split(1, 1), _Deaths(tmp_path, skip=True)
    for death in range(MOST_DEATHS):
        parts.begin(Bite(0, 0, 1, "u0"))
        if death < MOST_DEATHS - 1:
            deaths.note(split)
    assert parts.cuts(0)[1] == {0}
    with pytest.raises(WorkerDied, match="has died again and again"):
        deaths.note(split)


def test_a_part_leaves_out_what_processes_die_of(tmp_path: Path) -> None:
    parts, skip = Parts(tmp_path, {"plan": 1}, Split(1, 1)), Skip()
    cut(tmp_path, Bite(0, 1, 2, "utt1"), leave_out=True)
    seen: list[list[str]] = []

    def do(items):  # type: ignore[no-untyped-def]
        seen.append([item.utt_id for item in items])
        return items

    assert do_parts(parts, [lists(3)], do, LISTS.write, lambda nbest: nbest.utt_id, skip, Counter) == 1
    assert seen == [["utt0"], ["utt2"]]
    assert [nbest.utt_id for nbest in LISTS.read(parts.path(0))] == ["utt0", "utt2"]
    assert notes(tmp_path, 1).skipped == ["utterance utt1: worker processes die of it, perhaps for want of memory"]


@pytest.mark.slow
def test_workers_that_die_of_one_utterance(tmp_path: Path) -> None:
    """One that is killed, and one that runs out of a limit of memory: the rest is done, these are named."""
    share_out(make_shares(tmp_path), Sharing("local", shards=2, workers=1), tmp_path, skip=True, max_memory=3 << 30)
    found = [item for index in range(4) for item in LISTS.read(Parts(tmp_path, {"plan": 1}).path(index))]
    assert [nbest.utt_id for nbest in found] == [f"u{number}" for number in range(16) if number not in (6, 13)]
    assert [message.partition(",")[0] for message in notes(tmp_path, 4).skipped] == [
        "utterance u6: worker processes die of it",
        "utterance u13: memory does not suffice for it",
    ]


def test_sizes() -> None:
    assert [parse_size(text) for text in ("800M", "2g", "1.5GB", "4096")] == [800 << 20, 2 << 30, 3 << 29, 4096]
    for text in ("", "2 apples", "-1G", "0"):
        with pytest.raises(LMError, match="expected a number with K, M, G or T"):
            parse_size(text)


def test_parts_of_nbest_are_inside() -> None:
    assert parts_inside(Path("exp/test")) == Path("exp/test/.parts")


BOUNDED = """
import sys
from lm_zoo.inference.limits import limit_memory, taken
import torch
from rescore.workflows import columns, lattice_rescore, nbest, scoring
limit_memory(int(taken()) + (60 << 20))
from rescore.cli.main import main
main()
"""


@pytest.mark.slow
def test_a_monstrous_utterance_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    """1,000 hypotheses of 1,000 words, in a process that may take 60 MB more than it has."""
    source = write_source(tmp_path / "lists.jsonl")
    hyps = [{"words": f"A{' B' * 999}", "scores": {"am": -float(rank)}} for rank in range(1000)]
    with open(source, "a") as stream:
        stream.write(json.dumps({"utt_id": "monster", "hyps": hyps}) + "\n")
    line = f"nbest --nbest {source} --lm {LM} --scale am=1 --on-error skip --out {tmp_path}/out"
    done = subprocess.run([sys.executable, "-c", BOUNDED, *line.split()], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "memory does not suffice for" in done.stderr and "6 utterances scored" in done.stderr
    assert len(list(read_scores(tmp_path / "out"))) == 6


@pytest.mark.slow
def test_a_monstrous_lattice_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    """45,000 arcs, 300 between every two states, each with another history: far too many to be scored."""
    dice, words = np.random.default_rng(0), [f"W{number}" for number in range(300)]
    (tmp_path / "text").write_text("".join(f"{one} {other}\n" for one in words for other in words[:9]))
    train = f"train-ngram --text {tmp_path}/text --order 2 --discount-fallback --out {tmp_path}/a.arpa"
    assert run_line("rescore", main, train)[0] == 0
    made = [sausage(dice, utt_id, length, words) for utt_id, length in (("a", 2), ("monster", 150), ("z", 2))]
    write_lattices(f"slf:{tmp_path}/in", made)
    line = f"lattice rescore slf:{tmp_path}/in --ngram {tmp_path}/a.arpa --scale am=1 --scale ngram=1 --on-error skip"
    line += f" slf:{tmp_path}/out"
    bounded = BOUNDED.replace("import torch\n", "").replace("60 << 20", "120 << 20")  # it can be read
    done = subprocess.run([sys.executable, "-c", bounded, *line.split()], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "utterance monster: memory does not suffice for it" in done.stderr
    assert sorted(path.name.partition(".")[0] for path in (tmp_path / "out").iterdir()) == ["a", "z"]


def sausage(dice: np.random.Generator, utt_id: str, length: int, words: list[str]) -> Lattice:
    """All words between every two states."""
    src = np.repeat(np.arange(length, dtype=np.int32), len(words))
    labels = np.tile(np.arange(1, len(words) + 1, dtype=np.int32), length)
    scores = {"am": -10 * dice.random(len(src))}
    return Lattice(utt_id, length + 1, src, src + 1, labels, scores, ["", *words], np.arange(length + 1) * 0.3)


@pytest.mark.parametrize("spec", ["slf:in", "openfst:in.txt", "kaldi-lat:in.ark"])
def test_a_lattice_that_is_too_large_to_be_read_is_named(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, kind = np.random.default_rng(0), spec.partition(":")[0]
    monkeypatch.chdir(tmp_path)
    made = [sausage(dice, utt_id, 2, ["A", "B"]) for utt_id in ("a", "monster", "z")]
    write_lattices(spec, made)
    module = importlib.import_module(f"rescore.formats.{kind.replace('kaldi-lat', 'kaldi_lattice')}")
    name = "to_lattice" if kind == "kaldi-lat" else "_to_lattice" if kind == "openfst" else "read_lattice"
    real, calls = getattr(module, name), list[int]()

    def little_memory(*arguments: object, **named: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError
        return real(*arguments, **named)

    monkeypatch.setattr(module, name, little_memory)
    skip = Skip()
    assert [lattice.utt_id for lattice in read_lattices(spec, skip)] == ["a", "z"]
    (said,) = skip.take()
    assert "memory does not suffice for this lattice" in said
