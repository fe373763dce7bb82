"""`rescore lattice info | best-path | nbest`, and Kaldi's own results on real lattices."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rescore.cli.main import cli, main
from rescore.errors import ReferencesError, UsageError
from rescore.evaluation.wer import kaldi_lines, present_errors
from rescore.files import read_kaldi_text
from rescore.formats import read_lattices, read_nbest
from rescore.lattices.best_path import best_words
from tests.commands import run_line
from tests.rescore.formats.test_kaldi_lattice import TEXT, WORDS

Run = Callable[..., Result]
ABC = (
    "\\data\\\nngram 1=6\nngram 2=1\n\n\\1-grams:\n-9\t<s>\n-1\t</s>\n-2\t<unk>\n-0.5\tA\n-0.7\tB\n-0.9\tC\n\n"
    "\\2-grams:\n-0.1\tA C\n\n\\end\\\n"
)


@pytest.fixture
def run() -> Run:
    def invoke(*args: object) -> Result:
        result = CliRunner().invoke(cli, ["lattice", *map(str, args)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def decode(tmp_path: Path) -> Path:
    (tmp_path / "lat.1").write_text(TEXT)
    (tmp_path / "words.txt").write_text(WORDS)
    (tmp_path / "text").write_text("utt-a A C\nutt-b B B\nutt-c C\n")
    return tmp_path


def test_best_path(run: Run, decode: Path) -> None:
    arguments = ("best-path", f"kaldi:{decode}", "--words", decode / "words.txt")
    assert run(*arguments, "--lmwt", 1).stdout == "utt-a B C\nutt-b B\n"
    assert run(*arguments).stdout == "utt-a A C\nutt-b B\n"
    result = run(*arguments, "--ref", decode / "text", "--out", decode / "best")
    assert result.stdout.splitlines() == [
        "%WER 25.00 [ 1 / 4, 0 ins, 1 del, 0 sub ] [PARTIAL]",
        "%SER 50.00 [ 1 / 2 ]",
        "Scored 2 sentences, 1 not present in hyp.",
    ]
    assert "1 references without a lattice" in result.stderr
    assert (decode / "best").read_text() == "utt-a A C\nutt-b B\n"


def test_nothing_in_common(run: Run, decode: Path) -> None:
    (decode / "text").write_text("utt-x A\n")
    ids = r"in common \(references: utt-x; lattices: utt-a, utt-b.*\); check the ids"
    for command in ("best-path", "info"):
        with pytest.raises(ReferencesError, match=ids):
            run(command, f"kaldi:{decode}", "--words", decode / "words.txt", "--ref", decode / "text")


def test_word_penalty(decode: Path) -> None:
    """Of `A` at cost 1 and `A B` at cost 0.5, a penalty above 0.5 chooses the former."""
    (decode / "lat.1").write_text("u \n0 1 1 1,0,\n0 2 1 0.25,0,\n2 1 2 0.25,0,\n1\n\n")
    spec = f"kaldi:{decode}?words={decode / 'words.txt'}"
    assert best_words(read_lattices(spec), 10, 0.4) == {"u": ("A", "B")}
    assert best_words(read_lattices(spec), 10, 0.6) == {"u": ("A",)}


def test_weights_of_tune(run: Run, decode: Path) -> None:
    """The penalty of the test before, as a weights file; not together with Kaldi's own settings."""
    (decode / "lat.1").write_text("u \n0 1 1 1,0,\n0 2 1 0.25,0,\n2 1 2 0.25,0,\n1\n\n")
    source = ("best-path", f"kaldi:{decode}", "--words", decode / "words.txt", "--weights", decode / "w.json")
    for penalty, best in ((0.4, "u A B\n"), (0.6, "u A\n")):
        (decode / "w.json").write_text(json.dumps({"scales": {"am": 0.1, "graph": 1.0, "words": -penalty}}))
        assert run(*source).stdout == best
    with pytest.raises(UsageError, match="give either --weights FILE or --lmwt and --wip"):
        run(*source, "--lmwt", "10")


def test_info(run: Run, decode: Path) -> None:
    result = run("info", f"kaldi:{decode}", "--words", decode / "words.txt")
    lines = dict(re.split(r" {2,}|(?<=second) ", line, maxsplit=1) for line in result.stdout.splitlines())
    assert lines["lattices"] == "2" and lines["states"] == "7 (median 4, largest 4)"
    assert lines["arcs"] == "6 (median 3, largest 4)" and lines["different words"] == "3"
    assert lines["scores"] == "graph, am" and lines["seconds"] == "0.06" and lines["arcs a second"] == "100.00"
    assert lines["depth"] == "1.50 arcs cross a frame"
    (decode / "text").write_text("utt-a A A\nutt-b B B\n")
    result = run("info", f"kaldi:{decode}", "--words", decode / "words.txt", "--ref", decode / "text")
    assert "oracle WER       50.00 [ 2 / 4, 0 ins, 1 del, 1 sub ]" in result.stdout


@pytest.mark.parametrize("command", ["best-path", "oracle", "info", "mbr", "nbest"])
def test_another_table_of_words_is_asked_for(run: Run, tmp_path: Path, command: str) -> None:
    """Of two words each of ten lattices none is right where the numbers are those of another table."""
    (tmp_path / "lat.1").write_text("".join(f"u{n} \n0 1 1 1,10,\n1 2 2 2,20,\n1 2 3 2,21,\n2\n\n" for n in range(10)))
    (tmp_path / "text").write_text("".join(f"u{n} A B\n" for n in range(10)))
    (tmp_path / "right").write_text("<eps> 0\nA 1\nB 2\nC 3\nD 4\nE 5\nF 6\n")
    (tmp_path / "other").write_text("<eps> 0\nD 1\nE 2\nF 3\nA 4\nB 5\nC 6\n")
    target = [tmp_path / "lists.jsonl"] if command == "nbest" else []
    for table in ("right", "other"):
        source = f"kaldi:{tmp_path}/lat.1", *target, "--words", tmp_path / table, "--ref", tmp_path / "text"
        asked = "20 of 20 words of the references are wrong: are these the references" in run(command, *source).stderr
        assert asked == (table == "other")


def test_references_in_another_case(decode: Path, tmp_path: Path) -> None:
    """One refusal, whatever is asked."""
    (tmp_path / "text").write_text("utt-a A C\nutt-b B B\n")
    (tmp_path / "words.txt").write_text((decode / "words.txt").read_text().lower())
    for command in ("info", "oracle", "best-path"):
        line = f"lattice {command} kaldi:{decode} --words {tmp_path}/words.txt --ref {tmp_path}/text"
        code, said = run_line("rescore", main, line)
        assert code == 2 and "references and hypotheses differ in letter case" in said, command
        assert "or, where a command has it, take --normalise basic" in said


def test_a_scale_of_no_score_is_refused(decode: Path, tmp_path: Path) -> None:
    (tmp_path / "lm.arpa").write_text(ABC)
    line = f"lattice rescore kaldi:{decode} slf:{tmp_path}/out --words {decode}/words.txt --ngram {tmp_path}/lm.arpa"
    code, said = run_line("rescore", main, f"{line} --scale ngram=5 --scale wrods=-1")
    assert code == 2 and "lattice 'utt-a' has no score 'wrods'; it has: graph, am, ngram, words" in said
    assert not (tmp_path / "out").exists()
    (tmp_path / "w.json").write_text('{"scales": {"ngram": 5.0, "others": 2.0}}')  # of a file they may be
    code, said = run_line("rescore", main, f"{line} --weights {tmp_path}/w.json")
    assert code == 0 and said.startswith("ngram: 0 of 3 words")  # the last line: no count of 0 behind it


def test_nbest(run: Run, decode: Path) -> None:
    out = decode / "out.jsonl"
    result = run("nbest", f"kaldi:{decode}", out, "--words", decode / "words.txt", "-n", 2, "--scale", "graph=1")
    first, second = read_nbest(str(out))
    assert [hyp.words for hyp in first.hyps] == [("B", "C"), ("A", "C")]
    assert first.hyps[0].scores == {"graph": -1.875, "am": -11.0, "words": 2.0}
    assert [hyp.words for hyp in second.hyps] == [("B",)]
    assert "1 utterances with fewer hypotheses" in result.stderr


def test_nbest_by_weights(run: Run, decode: Path) -> None:
    """Scores without a weight count nothing, not what they count by default."""
    weights, out = decode / "weights.json", decode / "out.jsonl"
    for scales in ({"graph": 1.0}, {"am": 1.0, "graph": 1.0}):
        weights.write_text(json.dumps({"scales": scales}))
        run("nbest", f"kaldi:{decode}", out, "-n", 2, "--weights", weights)
        first = next(read_nbest(str(out)))
        assert [hyp.words for hyp in first.hyps] == [("A", "C"), ("B", "C")][:: -1 if "am" in scales else 1]
    with pytest.raises(UsageError, match="either --weights FILE or --scale"):
        run("nbest", f"kaldi:{decode}", out, "--weights", weights, "--scale", "am=1")


@pytest.mark.parametrize("jobs", [1, 2])
def test_skipping(run: Run, decode: Path, jobs: int) -> None:
    (decode / "lat.1").write_text(f"bad \n0 1 x 1,2,\n1\n\n{TEXT}")
    out = decode / "out.jsonl"
    words = ("--words", decode / "words.txt")
    result = run("nbest", f"kaldi:{decode}", out, *words, "--on-error", "skip", "--jobs", jobs)
    assert len(list(read_nbest(str(out)))) == 2
    assert "skipped: " in result.stderr and "utterance 'bad' at byte 0" in result.stderr
    assert "skipped: " in run("best-path", f"kaldi:{decode}", *words, "--on-error", "skip").stderr


def test_kaldi_to_kaldi_keeps_every_byte(run: Run, decode: Path) -> None:
    binary, text = decode / "lat.ark.gz", decode / "lat.txt"
    assert "2 lattices written to" in run("convert", f"kaldi:{decode}", f"kaldi:{binary}").stderr
    run("convert", f"kaldi:{binary}", f"kaldi:{text}?text=yes")
    assert text.read_text() == (
        "utt-a \n0\t2\t1\t0.5,10.0,7_7_8\n0\t2\t2\t1.5,8.0,7_9_9\n1\t0.125,0.5,6_6\n2\t1\t3\t0.25,2.5,5\n\n"
        "utt-b \n0\t1\t2\t1.0,2.0,\n1\t0.0,0.0,\n\n"
    )
    run("convert", f"kaldi:{binary}", f"kaldi:{decode / 'new'}")
    again = gzip.decompress((decode / "new" / "lat.1.gz").read_bytes())
    assert again == gzip.decompress(binary.read_bytes())


def test_convert_normalises(run: Run, decode: Path) -> None:
    (decode / "words.txt").write_text(WORDS + "b 4\na 5\nc 6\n")
    words = ("--words", decode / "words.txt")
    run("convert", f"kaldi:{decode}", f"kaldi:{decode / 'low.ark'}", *words, "--case", "lower")
    assert run("best-path", f"kaldi:{decode / 'low.ark'}", *words).stdout == "utt-a a c\nutt-b b\n"


def test_kaldis_own_results(shared_data: Path) -> None:
    """All 33 files wer_LMWT_WIP that Kaldi wrote for these lattices: error rate, errors of each kind, words."""
    folder = shared_data / "kaldi_lattices" / "indonesian"
    lattices = list(read_lattices(f"kaldi:{folder / 'decode'}?words={folder / 'words.txt'}"))
    refs = read_kaldi_text(folder / "text")
    results = sorted((folder / "decode").glob("wer_*"))
    assert len(results) == 33
    for file in results:
        lmwt, wip = map(float, file.name.split("_")[1:])
        counts, absent = present_errors(refs, best_words(lattices, lmwt, wip))
        found = [*kaldi_lines(counts), f"Scored {counts.sentences} sentences, {absent} not present in hyp."]
        assert found == file.read_text().splitlines()[1:4]
