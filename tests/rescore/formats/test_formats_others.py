"""N-best lists of other toolkits that have a form of their own: lattice-rescore, SRILM's folders, ESPnet 1, NeMo."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from rescore.errors import FormatError, RescoreError, ScoreError, UsageError
from rescore.formats import parse_spec, read_nbest, write_nbest
from rescore.formats.srilm_folder import BYTELOG
from rescore.types import Hypothesis, NbestList
from tests.rescore.formats.test_formats_read import plain, read, write_tree


def message(spec: object) -> str:
    with pytest.raises(RescoreError) as caught:
        read(spec)
    assert isinstance(caught.value, FormatError | ScoreError | UsageError)
    return re.sub(r"/\S*/pytest-[^/]*/(?:popen-[^/]*/)?[^/]*/", "", str(caught.value))


# ---- lattice-rescore

LISTS = {
    "b.nbest": "b-0     172.140   -11.734    -9.304 |    HERE WE GO\nb-1    176.8   -17.031   -17.053 |  HERE | WE\n",
    "a.nbest": "a-0       1.000    -2.000    -3.000 |    \n",
}


def test_lattice_rescore(tmp_path: Path) -> None:
    folder = write_tree(tmp_path / "lists", LISTS)
    assert parse_spec(str(folder))[0] == "lattice-rescore"
    expected = [
        ("a", [("", {"am": 1.0, "lm": -2.0, "x3": -3.0})]),
        (
            "b",
            [
                ("HERE WE GO", {"am": 172.14, "lm": -11.734, "x3": -9.304}),
                ("HERE | WE", {"am": 176.8, "lm": -17.031, "x3": -17.053}),
            ],
        ),
    ]
    assert plain(read(folder)) == expected
    assert plain(read(f"lattice-rescore:{folder}/b.nbest")) == expected[1:]
    (tmp_path / "all").write_text(LISTS["a.nbest"] + LISTS["b.nbest"])
    assert plain(read(f"lattice-rescore:{tmp_path}/all")) == expected
    named = read(f"lattice-rescore:{folder}?scores=am,lm,rnn")[0].hyps[0].scores
    assert named == {"am": 1.0, "lm": -2.0, "rnn": -3.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "u.nbest: empty file, expected a hypothesis a line: 'UTT-K score ... | words'"),
        ("u-0 1 2 A\n", "u.nbest:1: found 'u-0 1 2 A', expected 'UTT-K score ... | words'"),
        ("u-1 1 2 | A\n", "u.nbest:1: utterance 'u': hypothesis 1, expected 0: they are counted from 0"),
        ("u-0 1 2 | A\nu-0 1 2 | A\n", "u.nbest:2: utterance 'u': hypothesis 0, expected 1"),
        ("u-0 1 | A\nv-0 1 | A\nu-0 1 | A\n", "u.nbest:3: utterance 'u': this utterance id occurs a second time"),
        ("u-0 1 x | A\n", "u.nbest:1: utterance 'u': hypothesis 1 has score 'lm' 'x', expected a finite number"),
        ("u-0 1 nan | A\n", "hypothesis 1 has score 'lm' nan, expected a finite number"),
        ("u-0 | A\n", "hypothesis 1 has 0 scores, expected one at least"),
        ("u-0 1 2 | A\nu-1 1 | B\n", "hypothesis 2 has no score 'lm'; hypothesis 1 has am, lm"),
    ],
)
def test_damaged_lattice_rescore(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "u.nbest").write_text(text)
    assert expected in message(f"lattice-rescore:{tmp_path / 'u.nbest'}")


def test_lattice_rescore_as_another_format_and_named_scores(tmp_path: Path) -> None:
    path = write_tree(tmp_path, LISTS) / "b.nbest"
    assert "if ' | ' stands before the words, it is lattice-rescore:PATH" in message(path)
    assert "hypothesis 1 has 3 scores, expected 2 (a, b)" in message(f"lattice-rescore:{path}?scores=a,b")
    assert "expected different names with commas" in message(f"lattice-rescore:{path}?scores=a,a,b")
    (tmp_path / "none").mkdir()
    assert "no N-best list in this folder" in message(f"lattice-rescore:{tmp_path / 'none'}")
    with pytest.raises(UsageError, match="lattice-rescore is read only; write another format, such as jsonl:PATH"):
        write_nbest(f"lattice-rescore:{tmp_path / 'out'}", [NbestList("u", [Hypothesis((), {"am": 0.0})])])


# ---- SRILM's own files

ONE = "NBestList1.0\n(-1000) HE SAID\n(-2000)\n"
WORD = "{} ( st: {} et: {} g: {} a: {} )"
TWO = "NBestList2.0\n(-100) " + " ".join(
    (
        WORD.format("HE", 0, 0.3, -10, -20),
        WORD.format("hh", 0, 0.1, 0, -15),
        WORD.format("iy", 0.11, 0.3, 0, -5),
        WORD.format("SAID", 0.31, 0.6, -30, -40),
    )
)


def test_states_of_hmms_are_no_words(tmp_path: Path) -> None:
    """As in SRILM, whatever their times: `-` and a digit at the end tell them."""
    state = WORD.format("iy-1", 0.305, 0.307, -1, -2)
    phone = WORD.format("iy", 0.3, 0.307, -1, -2)  # begins in the last frame of HE
    for unit in (state, phone):
        (tmp_path / "u").write_text(TWO.replace(" SAID", f" {unit} SAID") + "\n")
        hyp = read(f"srilm:{tmp_path / 'u'}")[0].hyps[0]
        assert hyp.words == ("HE", "SAID")
        assert hyp.scores == pytest.approx({"score": -100 * BYTELOG, "am": -60 * BYTELOG, "lm": -40 * BYTELOG})


def test_folder_of_srilm(tmp_path: Path) -> None:
    files = {"b.gz": ONE, "a.score.gz": "-100 -2.5 2 HE SAID\n-99.5 -3 0\n", "c": TWO + "\n"}
    folder = write_tree(tmp_path / "lists", files)
    log10 = math.log(10)
    found = read(f"srilm:{folder}")
    assert plain(found[:1]) == [
        (
            "a",
            [
                ("HE SAID", {"am": -100 * log10, "lm": -2.5 * log10, "words": 2.0}),
                ("", {"am": -99.5 * log10, "lm": -3 * log10, "words": 0.0}),
            ],
        )
    ]
    assert plain(found[1:2]) == [("b", [("HE SAID", {"score": -1000 * BYTELOG}), ("", {"score": -2000 * BYTELOG})])]
    timed = found[2].hyps[0]  # without the phones of HE, which lie within it
    assert timed.words == ("HE", "SAID")
    assert timed.scores == pytest.approx({"score": -100 * BYTELOG, "am": -60 * BYTELOG, "lm": -40 * BYTELOG})
    assert math.isclose(BYTELOG, 1024 * math.log(1.0001), rel_tol=1e-4)
    assert plain(read(f"srilm:{folder / 'b.gz'}")) == plain(found[1:2])
    assert read(f"srilm:{folder}?base=e")[0].hyps[0].scores == {"am": -100.0, "lm": -2.5, "words": 2.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "u.gz: no hypotheses, expected at least one"),
        ("-1 -2\n", "u.gz:1: utterance 'u': found '-1 -2', expected 'am lm words w1 w2 ...' or a header NBestList"),
        ("-1 x 2 A B\n", "u.gz:1: utterance 'u': hypothesis 1 has score 'lm' 'x', expected a finite number"),
        ("NBestList1.0\n", "no hypotheses, expected at least one"),
        ("NBestList1.0\n-10 A\n", "u.gz:2: utterance 'u': found '-10 A', expected '(score) words'"),
        ("NBestList1.0\n\n", "u.gz:2: utterance 'u': found '', expected '(score) words'"),
        (TWO.removesuffix(" )") + "\n", "expected 'word ( st: T et: T g: LM a: AM )'"),
        (
            TWO.replace("et: 0.6", "e: 0.6") + "\n",
            "found 'SAID ( st: 0.31 e: 0.6 g: -30 a: -40 )', expected 'word ( st: T",
        ),
        (TWO.replace("0.31", "x") + "\n", "hypothesis 1 has score 'st:' 'x', expected a finite number"),
    ],
)
def test_damaged_folder_of_srilm(tmp_path: Path, text: str, expected: str) -> None:
    write_tree(tmp_path / "lists", {"u.gz": text})
    assert expected in message(f"srilm:{tmp_path / 'lists'}")


def test_folders_that_are_not_srilm(tmp_path: Path) -> None:
    folder = write_tree(tmp_path / "lists", {"u.gz": ONE, "u.score": ONE})
    assert "two files for utterance 'u'" in message(f"srilm:{folder}")
    assert "scores= is for files of lines 'utt-k score... words'" in message(f"srilm:{folder}?scores=a")
    (tmp_path / "none").mkdir()
    assert "no file in this folder, expected an N-best list of SRILM" in message(f"srilm:{tmp_path / 'none'}")


# ---- ESPnet 1


def output(rec_text: str, score: object, **more: object) -> dict[str, object]:
    return {"name": "target1[1]", "text": "HE SAID", "rec_text": rec_text, "rec_token": "x", "score": score, **more}


def data_json(outputs: object, **more: object) -> str:
    return json.dumps({**more, "utts": {"u": {"utt2spk": "s", "output": outputs}}}, indent=4)


def test_espnet1(tmp_path: Path) -> None:
    utts = {
        "u2": {"output": [output("▁HE▁SA", -1.5), output("▁HE▁SAID<eos>", -2), output("<eos>", -3.0)]},
        "u1": {"output": [output("HE SAID<eos>", -1.0, text="")]},
    }
    (tmp_path / "data.json").write_text(json.dumps({"other": [1], "utts": utts}, indent=4, ensure_ascii=False))
    spec = f"espnet:{tmp_path / 'data.json'}"
    assert plain(read(spec)) == [
        ("u2", [("HE SA", {"score": -1.5}), ("HE SAID", {"score": -2.0}), ("", {"score": -3.0})]),
        ("u1", [("HE SAID", {"score": -1.0})]),
    ]
    assert [nbest.ref for nbest in read(spec)] == [("HE", "SAID"), ()]
    assert read(f"{spec}?score=e2e")[1].hyps[0].scores == {"e2e": -1.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "data.json: empty file, expected ESPnet's data.json: an object with 'utts'"),
        ("[]", "data.json:1: not JSON: '[', expected '{'"),
        ("{}", "data.json: no 'utts' in it, expected ESPnet's data.json"),
        ('{"utts": {}}', "data.json: no utterance in the JSON object"),
        ('{"utts": 3}', "data.json:1: not JSON: '3', expected '{'"),
        (data_json([]), "utterance 'u': no hypotheses, expected at least one"),
        (data_json(3), "utterance 'u': {'output': 3, 'utt2spk': 's'}, expected an object with 'output'"),
        (
            data_json([{"text": "A"}]),
            "'u': hypothesis 1 has no 'rec_text'; expected the data.json of a decoding folder",
        ),
        (data_json([output("A", None)]), "utterance 'u': hypothesis 1 has no score 'score'"),
        (data_json([output("A", "x")]), "hypothesis 1 has score 'score' 'x', expected a finite number"),
        (data_json([output("A", 1)])[:-3], "data.json:"),
        (data_json([output("A", 1)]) + "x", "text after the end of the JSON object"),
        ('{"utts": {"u": {"output": [1]}, "u": {"output": [1]}}}', "hypothesis 1 has no 'rec_text'"),
    ],
)
def test_damaged_espnet1(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "data.json").write_text(text)
    assert expected in message(f"espnet:{tmp_path / 'data.json'}")


def test_espnet1_taken_for_another_format(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(data_json([output("A", 1)]))
    assert "(ESPnet's data.json is read as espnet:data.json)" in message(tmp_path / "data.json")


@pytest.mark.parametrize("line", ['{"id": "a", "nbest": ["A"]}', '{"hyps": ["A"], "utt_id": "a"}'])
def test_json_lines_taken_for_mlm(tmp_path: Path, line: str) -> None:
    (tmp_path / "dev.json").write_text(f"{line}\n{line}\n")
    assert "(JSON lines are read as jsonl:dev.json)" in message(tmp_path / "dev.json")


# ---- NeMo


def manifest(path: Path, *entries: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def test_manifest_with_beams(tmp_path: Path) -> None:
    """As `transcribe_speech.py` writes it; of a folder of audio there is no text."""
    path = manifest(
        tmp_path / "a.json",
        {
            "audio_filepath": "/x/a1.wav",
            "text": "il a été",
            "pred_text": "il a été",
            "beams": [["il a été", -3.5], ["", -4]],
        },
        {"audio_filepath": "a2.flac", "pred_text": "so", "beams": [["so", -1.25]]},
    )
    lists = read(f"nemo:{path}")
    assert plain(lists) == [
        ("a1", [("il a été", {"score": -3.5}), ("", {"score": -4.0})]),
        ("a2", [("so", {"score": -1.25})]),
    ]
    assert [nbest.ref for nbest in lists] == [("il", "a", "été"), None]
    assert read(f"nemo:{path}?score=am&characters=yes")[0].hyps[0].scores == {"am": -3.5, "characters": 8.0}
    assert "n= is for TSV files, and this is a manifest" in message(f"nemo:{path}?n=2")
    assert "(NeMo's manifest with beams is read as nemo:a.json)" in message(path)


@pytest.mark.parametrize(
    ("beams", "expected"),
    [
        ({}, "a.json:1: utterance 'a': no 'beams' in this line of a manifest; transcribe_speech.py writes them with"),
        ({"beams": []}, "a.json:1: utterance 'a': no hypotheses, expected at least one"),
        ({"beams": ["so"]}, "utterance 'a': hypothesis 1 is 'so', expected [text, score]"),
        ({"beams": [["so", None]]}, "utterance 'a': hypothesis 1 has no score 'score'"),
        ({"beams": [["so", math.nan]]}, "hypothesis 1 has score 'score' nan, expected a finite number"),
    ],
)
def test_damaged_manifest_with_beams(tmp_path: Path, beams: dict[str, object], expected: str) -> None:
    assert expected in message(f"nemo:{manifest(tmp_path / 'a.json', {'audio_filepath': 'a.wav', **beams})}")


def test_length_in_characters(tmp_path: Path) -> None:
    """As NeMo counts it, blanks too."""
    path = tmp_path / "beams.tsv"
    path.write_text("he said\t-1.5\n\t-2\n")
    found = read(f"{path}?n=2&characters=yes")[0]
    assert [hyp.scores for hyp in found.hyps] == [
        {"score": -1.5, "characters": 7.0},
        {"score": -2.0, "characters": 0.0},
    ]
    assert "characters is 'no', expected yes" in message(f"{path}?n=2&characters=no")
    with pytest.raises(UsageError, match="characters= is for reading nemo alone"):
        write_nbest(f"{tmp_path / 'x.tsv'}?score=score&characters=yes", read_nbest(f"{path}?n=2"))


def test_tags_of_sentences_are_no_words(tmp_path: Path) -> None:
    """As SRILM's lattice-tool writes them with -out-nbest-dir; others than those at the ends are words."""
    one = "NBestList1.0\n(-1000) <s> HE </s> SAID </s>\n(-2000) <s> </s>\n"
    timed = TWO.replace("(-100) ", f"(-100) {WORD.format('<s>', -1, -0.5, 0, 0)} ")
    timed += f" {WORD.format('</s>', 0.61, 0.61, -5, 0)}"
    files = {"a": "-100.5 -5.2 4 <s> HELLO WORLD </s>\n", "b": one, "c": timed + "\n"}
    found = read(f"srilm:{write_tree(tmp_path / 'lists', files)}")
    words = [[hyp.words for hyp in nbest.hyps] for nbest in found]
    assert words == [[("HELLO", "WORLD")], [("HE", "</s>", "SAID"), ()], [("HE", "SAID")]]
    assert found[2].hyps[0].scores["lm"] == pytest.approx(-45 * BYTELOG)  # with that of the end
