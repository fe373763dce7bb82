"""Bad input: the message names file, line and utterance, what was found, and what was expected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rescore.errors import FormatError, RescoreError, ScoreError, UsageError
from rescore.files import atomic_text
from rescore.formats import copy_lattices, lattice_pieces, read_lattices, read_nbest, write_lattices, write_nbest
from rescore.types import Hypothesis, NbestList
from tests.rescore.formats.test_formats_read import ESPNET, KALDI, write_tree


def message(spec: object, error: type[RescoreError]) -> str:
    """The message of the error, folders cut off."""
    with pytest.raises(RescoreError) as caught:
        list(read_nbest(str(spec)))
    assert type(caught.value) is error
    return re.sub(r"/\S*/pytest-[^/]*/(?:popen-[^/]*/)?[^/]*/", "", str(caught.value))


def line(utt_id: str = "b", hyps: str = '[{"words": "A", "scores": {"am": 0.0}}]') -> str:
    return f'{{"utt_id": "{utt_id}", "hyps": {hyps}}}\n'


JSONL = [
    ("", FormatError, "a: empty file, expected a JSON object a line"),
    (line() + "\n", FormatError, "a:2: empty line, expected a JSON object"),
    (
        line() + "A B C\n",
        FormatError,
        "a:2: not JSON (Expecting value: line 1 column 1 (char 0)), expected one JSON object",
    ),
    (line()[:-9] + "\n", FormatError, "a:1: not JSON ("),
    ("[" * 100000 + "\n", FormatError, "a:1: not JSON ("),
    ("[1]\n", FormatError, "a:1: a JSON list, expected an object with 'utt_id' and 'hyps'"),
    ('{"hyps": []}\n', FormatError, "a:1: no 'utt_id' (and no 'id'); found: hyps"),
    ('{"utt_id": "b"}\n', FormatError, "a:1: utterance 'b': no 'hyps' (and no 'nbest'); found: utt_id"),
    (line(utt_id="b c"), FormatError, "a:1: utterance id 'b c', expected a string without white space"),
    ('{"utt_id": 3.5, "hyps": []}\n', FormatError, "a:1: utterance id 3.5, expected a string"),
    ('{"utt_id": true, "hyps": []}\n', FormatError, "a:1: utterance id True, expected a string"),
    (line() + line("c") + line(), FormatError, "a:3: utterance 'b': this utterance id occurs a second time"),
    (line(hyps="[]"), FormatError, "a:1: utterance 'b': no hypotheses, expected at least one"),
    (line(hyps="3"), FormatError, "a:1: utterance 'b': 'hyps' is 3, expected a list of hypotheses"),
    (line(hyps="[3]"), FormatError, "a:1: utterance 'b': hypothesis 1 is 3, expected an object with 'words'"),
    (line(hyps='[{"scores": {}}]'), FormatError, "a:1: utterance 'b': hypothesis 1 has no 'words' (and no 'text')"),
    (line(hyps='[{"words": 3, "scores": {}}]'), FormatError, "hypothesis 1 is 3, expected a string or a list of words"),
    (line(hyps='[{"words": ["A B"], "scores": {}}]'), FormatError, "hypothesis 1 has the word 'A B', expected"),
    (line(hyps='[{"words": "A"}]'), ScoreError, "a:1: utterance 'b': hypothesis 1 has no score: neither 'scores' nor"),
    (
        line(hyps='[{"text": "A", "confidence": 0.9}]'),
        ScoreError,
        'nor \'score\'; found: text, confidence; name it: "scores": {"am": -7.1}, natural logs',
    ),
    (line(hyps='[{"words": "A", "scores": 3}]'), FormatError, "hypothesis 1 has scores 3, expected an object of named"),
    (line(hyps='[{"words": "A", "scores": {"am": null}}]'), ScoreError, "'b': hypothesis 1 has no score 'am'"),
    (
        line(hyps='[{"words": "A", "scores": {"am": "-3"}}]'),
        ScoreError,
        "has score 'am' '-3', expected a finite number",
    ),
    (
        line(hyps='[{"words": "A", "scores": {"am": true}}]'),
        ScoreError,
        "has score 'am' True, expected a finite number",
    ),
    (
        line(hyps='[{"words": "A", "scores": {"am": NaN}}]'),
        ScoreError,
        "a:1: utterance 'b': hypothesis 1 has score 'am' nan",
    ),
    (line(hyps='[{"words": "A", "scores": {"am": -Infinity}}]'), ScoreError, "has score 'am' -inf, expected a finite"),
    (
        line(hyps='[{"words": "A", "scores": {"am": 1e999}}]'),
        ScoreError,
        "has score 'am' inf, expected a finite number",
    ),
    (line(hyps='[{"text": "A", "score": NaN}]'), ScoreError, "has score 'score' nan, expected a finite number"),
    (line(hyps=f'[{{"text": "A", "score": 1{"0" * 400}}}]'), ScoreError, "has score 'score' 1000"),
    (
        line(hyps='[{"words": "A", "scores": {"am": 0, "lm": 0}}, {"words": "A", "scores": {"am": 0}}]'),
        ScoreError,
        "a:1: utterance 'b': hypothesis 2 has no score 'lm'; hypothesis 1 has am, lm",
    ),
    (
        line(hyps='["A", {"text": "A", "score": 0}]'),
        ScoreError,
        "hypothesis 2 has a score 'score' that hypothesis 1 does not have; it has none",
    ),
]

ENTRY = '"hyp_1": {"score": -1, "text": "A"}'
MLM = [
    ("", FormatError, "a: empty file, expected a JSON object"),
    (" \n", FormatError, "a: empty file, expected a JSON object"),
    ("A B\n", FormatError, "a:1: not JSON: 'A', expected '{'"),
    ("[]", FormatError, "a:1: not JSON: '[', expected '{'"),
    ("{}", FormatError, "a: no utterance in the JSON object"),
    (f'{{"b":\n{{{ENTRY}}}', FormatError, "a:2: not JSON"),
    (f'{{"b": {{{ENTRY}', FormatError, "a:1: not JSON or cut off (Expecting ',' delimiter)"),
    (f'{{"b": {{{ENTRY}}} "c"', FormatError, "a:1: not JSON: '\"', expected ','"),
    (f'{{"b": {{{ENTRY}}},\n}}', FormatError, "a:2: not JSON: '}', expected '\"'"),
    (f'{{"b" {{{ENTRY}}}}}', FormatError, "a:1: not JSON: '{', expected ':'"),
    (f'{{"b": {{{ENTRY}}}}} x', FormatError, "a:1: text after the end of the JSON object"),
    (
        f'{{"b": {{{ENTRY}}},\n"b": {{{ENTRY}}}}}',
        FormatError,
        "a:2: utterance 'b': this utterance id occurs a second time",
    ),
    (f'{{"b": {{{ENTRY}, {ENTRY}}}}}', FormatError, "a:1: utterance 'b': 'hyp_1' occurs a second time"),
    ('{"b": {}}', FormatError, "a:1: utterance 'b': no hypotheses"),
    ('{"b": [["hyp_1", 1]]}', FormatError, "a:1: utterance 'b': [['hyp_1', 1]], expected an object with 'hyp_1'"),
    (
        f'{{"b": {{{ENTRY}, "x": 3}}}}',
        FormatError,
        "a:1: utterance 'b': 'x': 3, expected 'hyp_1', 'hyp_2', ... and 'ref'",
    ),
    (f'{{"b": {{{ENTRY.replace("1", "3", 1)}}}}}', FormatError, "'b': 'hyp_1' is missing; 'hyp_3' is there"),
    ('{"b": {"hyp_1": {"score": -1}}}', FormatError, "'b': 'hyp_1' has no 'text', expected 'score' and 'text'"),
    ('{"b": {"hyp_1": {"text": "A"}}}', ScoreError, "a:1: utterance 'b': hypothesis 1 has no score 'score'"),
    (
        '{"b": {"hyp_1": {"score": NaN, "text": ""}}}',
        ScoreError,
        "hypothesis 1 has score 'score' nan, expected a finite",
    ),
    (
        '{"b": {"hyp_1": {"score": "-1", "text": ""}}}',
        ScoreError,
        "hypothesis 1 has score 'score' '-1', expected a finite",
    ),
]

SRILM = [
    ("", FormatError, "a: empty file, expected a hypothesis a line: 'utt-k ...'"),
    ("b-1 -3 A\n\n", FormatError, "a:2: empty line, expected 'key ...'"),
    ("b -3 A\n", FormatError, "a:1: key 'b', expected 'utt-k' with k from 1"),
    ("b-0 -3 A\n", FormatError, "a:1: key 'b-0', expected 'utt-k' with k from 1"),
    ("b-1 -3 A\nb-1 -3 A\n", FormatError, "a:2: key 'b-1' occurs a second time"),
    (
        "b-1 -3 A\nc-1 -3 A\nb-2 -3 A\n",
        FormatError,
        "a:3: utterance 'b': this utterance id occurs a second time; the lines of",
    ),
    ("b-1 -3 A\nb-2 A\n", ScoreError, "a:2: utterance 'b': no score behind the key, expected 'utt-k score... words'"),
    (
        "b-1 -3 -4 A\nc-1 -3 A\n",
        ScoreError,
        "a:2: utterance 'c': hypothesis 1 has score 'lm' 'A', expected a finite number",
    ),
    ("b-1 -3 -4 A\nc-1 -3 -4 A\nc-2\n", ScoreError, "a:3: utterance 'c': hypothesis 2 has no score 'am'"),
    (
        "b-1 -3 nan A\nb-2 -3 -4 A\n",
        ScoreError,
        "a:1: utterance 'b': hypothesis 1 has score 'lm' nan, expected a finite",
    ),
    (
        "b-1 -3 A\nc-1 -inf A\n",
        ScoreError,
        "a:2: utterance 'c': hypothesis 1 has score 'score' -inf, expected a finite",
    ),
]

NEMO = [
    ("", FormatError, "a: empty file, expected text<TAB>score a line"),
    (
        "A\t-1\nA\t-2\nA\t-3\n",
        FormatError,
        "a:3: utterance 'utt000002': the last utterance has 1 lines, expected n=2; is n",
    ),
    ("A\t-1\nA -2\n", ScoreError, "a:2: utterance 'utt000001': hypothesis 2 has no score, expected text<TAB>score"),
    ("A\t-1\nA\t\n", ScoreError, "a:2: utterance 'utt000001': hypothesis 2 has no score 'score'"),
    (
        "A\t-1\nA\tnan\n",
        ScoreError,
        "a:2: utterance 'utt000001': hypothesis 2 has score 'score' nan, expected a finite",
    ),
    ("A\t-1\nA\tB\n", ScoreError, "a:2: utterance 'utt000001': hypothesis 2 has score 'score' 'B', expected a finite"),
]

CASES = [
    (name, options, *case)
    for name, options, cases in (("jsonl", "", JSONL), ("mlm", "", MLM), ("srilm", "", SRILM), ("nemo", "?n=2", NEMO))
    for case in cases
]


@pytest.mark.parametrize(("name", "options", "text", "error", "problem"), CASES)
def test_bad_file(tmp_path: Path, name: str, options: str, text: str, error: type[RescoreError], problem: str) -> None:
    (tmp_path / "a").write_text(text)
    assert problem in message(f"{name}:{tmp_path}/a{options}", error)


@pytest.mark.parametrize("name", ["jsonl", "mlm", "srilm", "nemo"])
def test_files_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    options = "?n=2" if name == "nemo" else ""
    assert message(f"{name}:{tmp_path}/none{options}", FormatError) == "none: no such file"
    lists = [NbestList(f"u{utt}", [Hypothesis((f"W{utt}",), {"score": utt / 7})] * 2) for utt in range(2000)]
    write_nbest(f"{name}:{tmp_path}/a.gz{options}", lists)
    packed = (tmp_path / "a.gz").read_bytes()
    (tmp_path / "a.gz").write_bytes(packed[: len(packed) // 2])
    found = message(f"{name}:{tmp_path}/a.gz{options}", FormatError)
    assert re.match(r"a.gz: compressed file is truncated or damaged after line \d+", found)
    (tmp_path / "a").write_bytes("É".encode("latin-1"))
    assert "a: not UTF-8 text" in message(f"{name}:{tmp_path}/a{options}", FormatError)


def test_lists_before_the_bad_line_are_given(tmp_path: Path) -> None:
    with atomic_text(tmp_path / "a.jsonl") as stream:
        stream.write(line("a") + line("b") + "bad\n")
    lists = read_nbest(f"{tmp_path}/a.jsonl")
    assert [next(lists).utt_id, next(lists).utt_id] == ["a", "b"]
    with pytest.raises(FormatError, match=r"a\.jsonl:3"):
        next(lists)


def test_long_values_are_cut_in_messages(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line(hyps=f'{{"x": "{"y" * 10000}"}}'))
    assert len(message(tmp_path / "a.jsonl", FormatError)) < 250


# ---- folders


@pytest.mark.parametrize(
    ("file", "text", "error", "problem"),
    [
        ("words_text", None, FormatError, "archives.1: no words_text; make it with utils/int2sym.pl"),
        ("words_text", "", FormatError, "archives.1/words_text: empty file"),
        (
            "words_text",
            KALDI["archives.1/words_text"] + "a-b-3 A\n",
            FormatError,
            "words_text:4: utterance 'a-b': this utt",
        ),
        ("words_text", "a-b-1 A\na-b-1 B\n", FormatError, "words_text:2: key 'a-b-1' occurs a second time"),
        ("words_text", "a A\n", FormatError, "words_text:1: key 'a', expected 'utt-k' with k from 1"),
        (
            "acwt",
            "a-b-1 1\nc-1 1\n",
            ScoreError,
            "acwt: utterance 'a-b': hypothesis 2 has no score 'am': key 'a-b-2' of",
        ),
        ("acwt", "a-b-1 1\na-b-2\nc-1 1\n", ScoreError, "acwt:2: utterance 'a-b': hypothesis 2 has no score 'am'"),
        ("acwt", "a-b-1 1\na-b-2 nan\nc-1 1\n", ScoreError, "acwt:2: utterance 'a-b': hypothesis 2 has score 'am' nan"),
        (
            "lmwt.nn",
            "a-b-1 1\na-b-2 1 inf\nc-1 1\n",
            ScoreError,
            "lmwt.nn:2: utterance 'a-b': hypothesis 2 has score 'nn' inf",
        ),
        ("acwt", "a-b-1 1\na-b-2 x\nc-1 1\n", ScoreError, "acwt:2: utterance 'a-b': hypothesis 2 has score 'am' 'x'"),
        (
            "acwt",
            "a-b-1 1\na-b-2 1\nc-1 1\nd-1 1\n",
            FormatError,
            "acwt:4: key 'd-1' is not in archives.1/words_text, or",
        ),
        ("acwt", "a-b-1 1\na-b-1 1\na-b-2 1\nc-1 1\n", FormatError, "acwt:2: key 'a-b-1' is not in"),
        ("acwt", "c-1 1\nc-1 1\na-b-1 1\na-b-2 1\n", FormatError, "acwt:2: key 'c-1' occurs a second time"),
        ("acwt", "a-b-1 1\n\na-b-2 1\nc-1 1\n", FormatError, "acwt:2: empty line"),
    ],
)
def test_bad_kaldi_folder(tmp_path: Path, file: str, text: str | None, error: type[RescoreError], problem: str) -> None:
    folder = write_tree(tmp_path / "x", KALDI)
    (folder / "archives.1" / file).unlink()
    if text is not None:
        (folder / "archives.1" / file).write_text(text)
    assert problem in message(f"kaldi:{folder}", error).replace("x/archives", "archives")


def test_kaldi_folders_without_what_is_needed(tmp_path: Path) -> None:
    assert "no such folder" in message(f"kaldi:{tmp_path}/none", FormatError)
    assert "no archives.JOB and no words_text" in message(f"kaldi:{tmp_path}", FormatError)
    (tmp_path / "words_text").write_text("a-1 A\n")
    assert "no scores: neither acwt nor lmwt.* in this folder" in message(tmp_path, ScoreError)


def test_an_utterance_in_two_jobs(tmp_path: Path) -> None:
    files = {f"archives.{job}/{file}": "a-1 1\n" for job in (1, 2) for file in ("words_text", "acwt")}
    folder = write_tree(tmp_path / "x", files)
    assert "archives.2/words_text:1: utterance 'a': this utterance id occurs a second time" in message(
        folder, FormatError
    )


@pytest.mark.parametrize("name", ["withlm", "lmonly", "interp.0.5", "nn.sum", "a b", "a/b", "x.gz", "acwt/.."])
def test_score_names_that_kaldi_files_cannot_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(RescoreError, match=f"a score cannot be called '{name}' in this format"):
        write_nbest(f"kaldi:{tmp_path}/x", [NbestList("a", [Hypothesis((), {name: 0.0})])])


def test_kaldi_scores_that_change(tmp_path: Path) -> None:
    lists = [NbestList("a", [Hypothesis((), {"am": 0.0})]), NbestList("b", [Hypothesis((), {"lm": 0.0})])]
    with pytest.raises(ScoreError, match="utterance 'b': scores lm, expected am"):
        write_nbest(f"kaldi:{tmp_path}/x", lists)
    with pytest.raises(ScoreError, match="utterance 'a': scores none, expected some"):
        write_nbest(f"kaldi:{tmp_path}/x", [NbestList("a", [Hypothesis(())])])


@pytest.mark.parametrize(
    ("file", "text", "error", "problem"),
    [
        ("1best_recog/text", None, FormatError, "1best_recog: no file 'text', expected 'text' and 'score'"),
        ("2best_recog/score", None, FormatError, "2best_recog: no file 'score', expected 'text' and 'score'"),
        ("1best_recog/text", "", FormatError, "1best_recog/text: empty file"),
        (
            "1best_recog/text",
            "a A\na A\n",
            FormatError,
            "1best_recog/text:2: utterance 'a': this utterance id occurs a second",
        ),
        (
            "1best_recog/score",
            "a -1\nc -1\n",
            ScoreError,
            "text:2: utterance 'b': hypothesis 1 has no score: no line in",
        ),
        (
            "1best_recog/score",
            "a -1\nb tensor(nan)\nc 1\n",
            ScoreError,
            "score:2: utterance 'b': hypothesis 1 has score 'score' nan",
        ),
        (
            "1best_recog/score",
            "a -1\nb\nc 1\n",
            ScoreError,
            "score:2: utterance 'b': hypothesis 1 has no score 'score'",
        ),
        ("1best_recog/score", "a 1\nb 1\nc 1\nd 1\n", FormatError, "1best_recog/score:4: key 'd' is not in"),
        (
            "2best_recog/text",
            "c NO\na HE\n",
            FormatError,
            "3best_recog/text:1: utterance 'a': hypothesis 3 is here, 2 is not",
        ),
        ("3best_recog/text", "x SHE\n", FormatError, "3best_recog/text:1: utterance 'x': not where"),
    ],
)
def test_bad_espnet_folder(
    tmp_path: Path, file: str, text: str | None, error: type[RescoreError], problem: str
) -> None:
    folder = write_tree(tmp_path / "x", ESPNET)
    (folder / file).unlink()
    if text is not None:
        (folder / file).write_text(text)
    assert problem in message(f"espnet:{folder}", error)


def test_espnet_folders_without_what_is_needed(tmp_path: Path) -> None:
    assert "no such folder" in message(f"espnet:{tmp_path}/none", FormatError)
    said = message(f"espnet:{tmp_path}", FormatError)
    assert "neither 1best_recog nor output.JOB in this folder or its logdir; expected that of one set" in said
    write_tree(tmp_path, {name: text for name, text in ESPNET.items() if not name.startswith("2")})
    assert "2 folders up to 3best_recog, expected 1best_recog, 2best_recog, ... without a gap" in message(
        tmp_path, FormatError
    )


# ---- options


def test_nemo_options(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("A\t-1\nA\t-2\n")
    assert "the number of lines an utterance must be given: nemo:" in message(path, UsageError)
    assert "n is '0', expected a number from 1" in message(f"{path}?n=0", UsageError)
    manifest = tmp_path / "m.json"
    for text, size, problem in (
        ('{"utt_id": "a"}\n', 1, "a.tsv:2: more than the 1 utterances of m.json at n=1"),
        ('{"utt_id": "a"}\n{"utt_id": "b"}\n', 2, "a.tsv: 1 utterances at n=2, but m.json has more"),
        ('{"utt_id": "a"}\n{"utt_id": "a"}\n', 1, "m.json:2: utterance 'a': utterance id occurs"),
        ('{"audio_filepath": "a.wav"}\n' * 2, 1, "utterance id occurs; parts of one audio file need an 'utt_id' each"),
        ('{"audio_filepath": "a.wav", "utt_id": 1.5}\n', 1, "m.json:1: utterance id 1.5, expected a string"),
        ("a\n", 1, "m.json:1: not JSON"),
        ('{"text": "a"}\n', 1, "m.json:1: no 'utt_id' and no 'audio_filepath'"),
        ('{"audio_filepath": "x/a b.wav"}\n', 1, "m.json:1: utterance id 'a b', expected"),
    ):
        manifest.write_text(text)
        found = message(f"{path}?n={size}&manifest={manifest}", FormatError)
        assert problem.replace("utterance id occurs", "this utterance id occurs a second time") in found
    lists = [NbestList("a", [Hypothesis((), {"am": 0.0})]), NbestList("b", [Hypothesis((), {"am": 0.0})] * 2)]
    with pytest.raises(FormatError, match="utterance 'b': 2 hypotheses, expected 1"):
        write_nbest(str(path), lists)
    with pytest.raises(UsageError, match="manifest= is for reading nemo alone"):
        write_nbest(f"{path}?manifest=x", lists)


def test_srilm_options(tmp_path: Path) -> None:
    path = tmp_path / "a.nbest"
    path.write_text("a-1 -1 -2 A\n")
    assert "base is '2', expected e or 10" in message(f"{path}?base=2", UsageError)
    for names in ("am,am", "am,,lm", ","):
        assert "expected different names with commas" in message(f"{path}?scores={names}", UsageError)
    assert "scores= has no value" in message(f"{path}?scores=", UsageError)
    assert "hypothesis 1 has score 'words' 'A', expected a finite" in message(f"{path}?scores=am,lm,words", ScoreError)
    lists = [NbestList("a", [Hypothesis((), {"am": 0.0, "x": 1.0})])]
    with pytest.raises(ScoreError, match=r"'a': scores are: am, x; say which columns to write: srilm:PATH\?scores="):
        write_nbest(str(path), lists)
    with pytest.raises(ScoreError, match="'a': no score 'lm'; there are: am, x"):
        write_nbest(f"{path}?scores=am,lm", lists)


def test_srilm_words_that_would_be_read_as_scores(tmp_path: Path) -> None:
    path = tmp_path / "a.nbest"
    lists = [NbestList("a", [Hypothesis(("5", "MEN"), {"am": 0.0, "lm": 1.0})])]
    with pytest.raises(FormatError, match=r"words that look like scores; write and read with srilm:PATH\?scores=am,lm"):
        write_nbest(str(path), lists)
    write_nbest(f"{path}?scores=am,lm", lists)
    assert list(read_nbest(f"{path}?scores=am,lm")) == lists


@pytest.mark.parametrize(
    "spec",
    [
        "kaldi-lat:x.ark?weights=w.json",
        "kaldi-lat:x.ark?graph=lm",
        "openfst:x.fst.txt?score=lm",
        "k2:x.pt?tokens=yes",
        "kaldi:x.ark?text=yes",
    ],
)
def test_options_of_writing_are_refused_in_reading(spec: str) -> None:
    """They did nothing: no scores were weighted, or renamed."""
    problem = r"(weights|graph|score|tokens|text)= is for writing .* alone, and does nothing here; leave it out"
    for use in (read_lattices, lattice_pieces, lambda spec: copy_lattices(spec, "kaldi-lat:y.ark")):
        with pytest.raises(UsageError, match=problem):
            use(spec)


@pytest.mark.parametrize(
    "spec",
    [
        "k2:x.pt?ids=i",
        "kaldi:x.ark?frame_shift=0.03",
        "openfst:x?frame_shift=0.03",
        "slf:x?utterance=yes",
        "nemo:x.tsv?manifest=m",
    ],
)
def test_options_of_reading_are_refused_in_writing(tmp_path: Path, spec: str) -> None:
    write = write_nbest if spec.startswith("nemo") else write_lattices
    with pytest.raises(
        UsageError, match=r"(ids|frame_shift|utterance|manifest)= is for reading .* alone, and does nothing here"
    ):
        write(spec.replace(":", f":{tmp_path}/"), [])
    assert not any(tmp_path.iterdir())
