"""Files as others write them, each read into the lists that they say."""

from __future__ import annotations

import gzip
import json
import resource
from pathlib import Path

import pytest

from rescore import console
from rescore.errors import FormatError, RescoreError
from rescore.files import read_kaldi_text
from rescore.formats import espnet, mlm, read_nbest, write_nbest
from rescore.types import Hypothesis, NbestList, Weights
from rescore.workflows.columns import LMColumn
from rescore.workflows.combine import combine_list
from rescore.workflows.normalising import Normaliser
from rescore.workflows.scoring import score_batch
from tests.toy_lm import Toy


def read(spec: object) -> list[NbestList]:
    return list(read_nbest(str(spec)))


def plain(lists: list[NbestList]) -> list[tuple[str, list[tuple[str, dict[str, float]]]]]:
    return [(nbest.utt_id, [(" ".join(hyp.words), hyp.scores) for hyp in nbest.hyps]) for nbest in lists]


def write_tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def remarks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    monkeypatch.delenv(console.QUIET, raising=False)
    return capsys


# ---- JSON lines


def test_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"utt_id": "a", "ref": "HE  SAID", "hyps": [{"words": "HE SAID", "scores": {"am": -7.5, "lm": -3}},'
        ' {"words": ["HE"], "scores": {"lm": -2, "am": 0}}]}\n'
        '{"hyps": [{"words": "", "scores": {}}], "ref": null, "utt_id": "b"}\n'
        '{"utt_id": "c", "ref": "", "hyps": [{"words": [], "scores": {"am": 1e3}}]}\n'
    )
    lists = read(path)
    assert plain(lists) == [
        ("a", [("HE SAID", {"am": -7.5, "lm": -3.0}), ("HE", {"am": 0.0, "lm": -2.0})]),
        ("b", [("", {})]),
        ("c", [("", {"am": 1000.0})]),
    ]
    assert [nbest.ref for nbest in lists] == [("HE", "SAID"), None, ()]
    assert lists[0].hyps[0].words == ("HE", "SAID")
    assert all(type(value) is float for hyp in lists[0].hyps for value in hyp.scores.values())


def test_jsonl_in_the_style_of_hugging_face(tmp_path: Path, remarks: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"utt_id": "a", "nbest": [{"text": "he said", "score": -7.5, "tokens": [1]}, {"text": "he", "score": -9}]}\n'
        '{"utt_id": "b", "hyps": ["he said", ""], "audio": "b.wav"}\n'
    )
    assert plain(read(path)) == [
        ("a", [("he said", {"score": -7.5}), ("he", {"score": -9.0})]),
        ("b", [("he said", {}), ("", {})]),
    ]
    said = remarks.readouterr().err
    assert "keys that are kept for JSON lines, and not used: audio (1 times), tokens (1 times)" in said


WHISPER = (
    '{"id": "a", "start": 1.5, "nbest": [{"text": "he said", "sequences_scores": -0.5, "tokens": [1, 2]}, '
    '{"text": "he", "sequences_scores": -1, "tokens": [1]}]}\n'
    '{"id": "b", "start": 2.5, "nbest": ["so", "sow"], "sequences_scores": [-0.25, -2]}\n'
)


def test_jsonl_of_whisper(tmp_path: Path) -> None:
    """`id` and `sequences_scores` are read; what else there is goes through scoring and combining."""
    path, scored = tmp_path / "a.jsonl", tmp_path / "scores.jsonl"
    path.write_text(WHISPER)
    assert plain(read(path)) == [
        ("a", [("he said", {"score": -0.5}), ("he", {"score": -1.0})]),
        ("b", [("so", {"score": -0.25}), ("sow", {"score": -2.0})]),
    ]
    scorer = LMColumn("toy", Toy("he"))
    lists = score_batch(read(path), [scorer])
    write_nbest(str(scored), [combine_list(nbest, Weights({"toy": 1.0})) for nbest in lists])
    found = [json.loads(line) for line in scored.read_text().splitlines()]
    assert [line["start"] for line in found] == [1.5, 2.5]
    tokens = {hyp["words"]: hyp["tokens"] for hyp in found[0]["hyps"]}
    assert tokens == {"he said": [1, 2], "he": [1]}
    assert [nbest.extra for nbest in read(scored)] == [{"start": 1.5}, {"start": 2.5}]


def test_ids_of_json_may_be_integers(tmp_path: Path) -> None:
    """Those of a row of a data set; what is written, and references of lists, have them as strings."""
    lists, manifest = tmp_path / "a.jsonl", tmp_path / "beams.json"
    lists.write_text('{"id": 0, "recording": 84, "ref": "he", "nbest": [{"text": "he said", "score": -0.5}]}\n')
    found = list(read(lists))
    assert plain(found) == [("0", [("he said", {"score": -0.5})])] and found[0].recording == "84"
    write_nbest(str(tmp_path / "b.jsonl"), found)
    assert plain(read(tmp_path / "b.jsonl")) == plain(found)
    assert read_kaldi_text(lists) == {"0": ("he",)}
    manifest.write_text('{"id": 7, "audio_filepath": "a.wav", "beams": [["so", -1.25]]}\n')
    assert plain(read_nbest(f"nemo:{manifest}")) == [("7", [("so", {"score": -1.25})])]


def test_extra_keys_stay_with_their_hypothesis_under_a_normaliser(tmp_path: Path) -> None:
    hyps = [Hypothesis((text,), {"am": am}, {"tokens": [am]}) for text, am in (("He.", -2.0), ("he", -1.0))]
    merged, written = Normaliser("basic").merge(NbestList("a", hyps, extra={"start": 0}))
    assert written == [("he",)] and merged.hyps[0].extra == {"tokens": [-1.0]} and merged.extra == {"start": 0}


@pytest.mark.parametrize(
    "line, message",
    [
        ('{"id": "b", "nbest": ["so", "sow"], "sequences_scores": [-0.25]}', "1 'sequences_scores' for 2 hypotheses"),
        ('{"id": "b", "nbest": ["so"], "sequences_scores": ["x"]}', "score 'score' 'x', expected a finite number"),
        ('{"id": "b", "nbest": ["so"], "start": 1e999}', "an infinite number in 'start', which is no JSON"),
        ('{"id": "b", "nbest": ["so"], "deep": ' + "[" * 60 + "]" * 60 + "}", "nested more than 50 deep in 'deep'"),
        ('{"nbest": ["so"]}', r"no 'utt_id' \(and no 'id'\); found: nbest"),
    ],
)
def test_jsonl_of_whisper_that_is_wrong(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(line + "\n")
    with pytest.raises(RescoreError, match=message):
        read(tmp_path / "a.jsonl")


def test_jsonl_as_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    nbest = NbestList("a", [Hypothesis(("É", '"'), {"am": -0.1, "words": 2})], ref=("É",))
    write_nbest(str(path), [nbest])
    assert path.read_text(encoding="utf-8") == (
        '{"utt_id": "a", "ref": "É", "hyps": [{"words": "É \\"", "scores": {"am": -0.1, "words": 2.0}}]}\n'
    )


# ---- mlm-scoring

MLM = {
    "a": {"hyp_1": {"score": -7.5, "text": " he said"}, "hyp_2": {"score": -8, "text": "he"}, "ref": "he said"},
    "b-1": {"hyp_1": {"score": -0.5, "text": ""}},
}
MLM_LISTS = [
    ("a", [("he said", {"score": -7.5}), ("he", {"score": -8.0})]),
    ("b-1", [("", {"score": -0.5})]),
]


@pytest.mark.parametrize("indent", [None, 0, 2, "\t"])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 16])
def test_mlm(tmp_path: Path, indent: str | int | None, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(MLM, indent=indent))
    chunks = mlm.read_chunks
    monkeypatch.setattr(mlm, "read_chunks", lambda path: chunks(path, chunk))
    lists = read(path)
    assert plain(lists) == MLM_LISTS
    assert [nbest.ref for nbest in lists] == [("he", "said"), None]


def test_mlm_ranks_are_numbers_though_keys_are_sorted_as_text(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    entry = {f"hyp_{rank}": {"score": -rank, "text": f"w{rank}"} for rank in range(1, 13)}
    path.write_text(json.dumps({"a": entry}, indent=2, sort_keys=True))
    assert [hyp.scores["score"] for hyp in read(path)[0].hyps] == [-float(rank) for rank in range(1, 13)]


def test_mlm_as_written(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_nbest(
        str(path),
        [NbestList("a", [Hypothesis(("É",), {"am": -0.5})], ref=()), NbestList("b", [Hypothesis((), {"am": 1})])],
    )
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "a": {"hyp_1": {"score": -0.5, "text": "É"}, "ref": ""},
        "b": {"hyp_1": {"score": 1.0, "text": ""}},
    }


# ---- Kaldi

KALDI = {
    "archives.1/words_text": "a-b-1 HE SAID\na-b-2 HE\nc-1 \n",
    "archives.1/words": "a-b-1 3 4\na-b-2 3\nc-1 \n",
    "archives.1/acwt": "a-b-1 100.5\na-b-2 101\nc-1 -3\n",
    "archives.1/lmwt.nolm": "a-b-1 1\na-b-2 2\nc-1 0\n",
    "archives.1/lmwt.withlm": "a-b-1 11\na-b-2 14.5\nc-1 2\n",
    "archives.1/lmwt.lmonly": "a-b-1 10\na-b-2 12.5\nc-1 2\n",
    "archives.1/lmwt.nn": "a-b-1 4 5.5 0.5\na-b-2 7 8\nc-1 0.25\n",
    "archives.1/lmwt.nn.sum": "a-b-1 10\na-b-2 15\nc-1 0.25\n",
    "archives.1/lmwt.interp.0.8": "a-b-1 1\na-b-2 1\nc-1 1\n",
}
KALDI_LISTS = [
    (
        "a-b",
        [
            ("HE SAID", {"am": -100.5, "nolm": -1.0, "lm": -10.0, "nn": -10.0}),
            ("HE", {"am": -101.0, "nolm": -2.0, "lm": -12.5, "nn": -15.0}),
        ],
    ),
    ("c", [("", {"am": 3.0, "nolm": 0.0, "lm": -2.0, "nn": -0.25})]),
]


def test_kaldi(tmp_path: Path, remarks: pytest.CaptureFixture[str]) -> None:
    folder = write_tree(tmp_path, KALDI)
    assert plain(read(folder)) == KALDI_LISTS
    assert "they follow from the others: lmwt.interp.0.8, lmwt.nn.sum, lmwt.withlm" in remarks.readouterr().err
    assert plain(read(folder / "archives.1")) == KALDI_LISTS


def test_kaldi_lm_is_the_difference_where_lmonly_is_missing(tmp_path: Path) -> None:
    folder = write_tree(tmp_path, {name: text for name, text in KALDI.items() if "lmonly" not in name})
    assert plain(read(folder)) == KALDI_LISTS


def test_kaldi_files_in_different_orders(tmp_path: Path) -> None:
    """The words say the order; scores are joined by key."""
    files = {
        name: "".join(reversed(text.splitlines(keepends=True))) if "lmwt" in name else text
        for name, text in KALDI.items()
    }
    assert plain(read(write_tree(tmp_path, files))) == KALDI_LISTS


def test_kaldi_jobs_in_the_order_of_their_numbers_and_packed(
    tmp_path: Path, remarks: pytest.CaptureFixture[str]
) -> None:
    files = {f"archives.{job}/words_text.gz": f"u{job}-1 A\n" for job in range(1, 11)}
    files |= {f"archives.{job}/acwt.gz": f"u{job}-1 {job}\n" for job in range(1, 11)}
    files |= {f"archives.{job}/lmwt.nn.sum.gz": f"u{job}-1 0\n" for job in range(1, 11)}
    files |= {f"archives.{job}/lmwt.interp.0.8": f"u{job}-1 0\n" for job in range(1, 11)}
    lists = read(write_tree(tmp_path, files))
    assert plain(lists) == [(f"u{job}", [("A", {"am": -float(job), "nn": 0.0})]) for job in range(1, 11)]
    assert remarks.readouterr().err.count("not read") == 1


def test_hypotheses_stay_in_the_order_of_the_file(tmp_path: Path) -> None:
    files = {"words_text": "a-1 A\na-10 B\na-2 C\n", "acwt": "a-1 1\na-2 2\na-10 10\n"}
    hyps = read(write_tree(tmp_path, files))[0].hyps
    assert [(hyp.words, hyp.scores) for hyp in hyps] == [
        (("A",), {"am": -1}),
        (("B",), {"am": -10}),
        (("C",), {"am": -2}),
    ]


def test_kaldi_as_written(tmp_path: Path) -> None:
    scores = {"am": -100.5, "nolm": -1.0, "lm": -10.0, "transfornn": 3.0}
    write_nbest(f"kaldi:{tmp_path}/x", [NbestList("a", [Hypothesis(("HE", "SAID"), scores)])])
    found = {file.name: file.read_text() for file in (tmp_path / "x/archives.1").iterdir()}
    assert found == {
        "words_text": "a-1 HE SAID\n",
        "acwt": "a-1 100.5\n",
        "lmwt.nolm": "a-1 1.0\n",
        "lmwt.lmonly": "a-1 10.0\n",
        "lmwt.transfornn": "a-1 -3.0\n",
    }


# ---- ESPnet

ESPNET = {
    "1best_recog/text": "a HE SAID\nb\nc YES\n",
    "1best_recog/score": "a tensor(-7.5000)\nb -1\nc tensor(-3.25, device='cuda:0')\n",
    "1best_recog/token": "a HE SA ID\nb \nc YES\n",
    "2best_recog/text": "a HE\nc NO\n",
    "2best_recog/score": "c -4\na tensor(-8.)\n",
    "3best_recog/text": "a SHE\n",
    "3best_recog/score": "a -9\n",
}
ESPNET_LISTS = [
    ("a", [("HE SAID", {"score": -7.5}), ("HE", {"score": -8.0}), ("SHE", {"score": -9.0})]),
    ("b", [("", {"score": -1.0})]),
    ("c", [("YES", {"score": -3.25}), ("NO", {"score": -4.0})]),
]


def test_espnet(tmp_path: Path) -> None:
    assert plain(read(write_tree(tmp_path, ESPNET))) == ESPNET_LISTS


@pytest.mark.parametrize("parent", ["", "logdir/"])
def test_espnet_jobs(tmp_path: Path, parent: str) -> None:
    files = {f"{parent}output.{job}/1best_recog/text": f"u{job} A\n" for job in range(1, 11)}
    files |= {f"{parent}output.{job}/1best_recog/score": f"u{job} -1\n" for job in range(1, 11)}
    assert [nbest.utt_id for nbest in read(write_tree(tmp_path, files))] == [f"u{job}" for job in range(1, 11)]


@pytest.mark.parametrize(("prefix", "inner"), [("output.", "1best_recog/"), ("archives.", "")])
def test_a_missing_job(tmp_path: Path, prefix: str, inner: str) -> None:
    names = ("text", "score") if inner else ("words_text", "acwt")
    files = {f"{prefix}{job}/{inner}{name}": f"u{job}-1 1\n" for job in (1, 3, 4) for name in names}
    with pytest.raises(FormatError, match=rf"{prefix}2 is missing, expected {prefix}1 to {prefix}4, of all jobs"):
        read(write_tree(tmp_path, files))
    write_tree(tmp_path, {f"{prefix}02/{inner}x": "", f"{prefix}2/{inner}x": ""})
    with pytest.raises(FormatError, match=rf"two of one job: {prefix}02 and {prefix}2"):
        read(tmp_path)


def test_espnet_words_without_tokens_of_its_multilingual_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `s2t_inference` (OWSM) writes them."""
    files = {
        "1best_recog/text": "a <eng><asr><0.00> he said<1.24><1.30> so<2.00>\n",
        "1best_recog/text_nospecial": "a  he said so\n",
        "1best_recog/score": "a tensor(-7.5)\n",
    }
    assert plain(read(write_tree(tmp_path, files))) == [("a", [("he said so", {"score": -7.5})])]
    assert capsys.readouterr().err.count("words are those of text_nospecial") == 1


def test_espnet_lists_of_more_hypotheses_than_files_can_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    hyps = [Hypothesis((f"W{rank}",), {"score": -float(rank)}) for rank in range(150)]
    lists = [NbestList("a", hyps), NbestList("b", hyps[:3]), NbestList("c", hyps[1:])]
    monkeypatch.setattr(espnet, "_BYTES", 1000)  # write often
    monkeypatch.setattr(espnet, "_LINES", 600)  # two lines of a file at a time
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, before[0]), before[1]))
    try:
        assert write_nbest(f"espnet:{tmp_path / 'lists'}", lists) == 3
        assert list(read_nbest(f"espnet:{tmp_path / 'lists'}")) == lists
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# ---- NeMo


def test_nemo(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("he said\t-7.5\nhe\t-8\n\t-0.5\nyes\t-1e1\n")
    lists = [("he said", {"score": -7.5}), ("he", {"score": -8.0}), ("", {"score": -0.5}), ("yes", {"score": -10.0})]
    assert plain(read(f"{path}?n=2")) == [("utt000001", lists[:2]), ("utt000002", lists[2:])]
    manifest = tmp_path / "manifest.json"
    manifest.write_text(
        '{"audio_filepath": "/audio/x.1/a-1.wav", "duration": 1.5, "text": "he said"}\n{"utt_id": "b", "text": ""}\n'
    )
    read_lists = read(f"nemo:{path}?n=2&manifest={manifest}&score=am")
    assert [(nbest.utt_id, nbest.ref) for nbest in read_lists] == [("a-1", ("he", "said")), ("b", ())]
    assert read_lists[0].hyps[0].scores == {"am": -7.5}
    manifest.write_text(
        '{"id": 7, "audio_filepath": "a.wav", "text": "he said"}\n{"id": "b", "audio_filepath": "b.wav", "text": ""}\n'
    )
    ids = [nbest.utt_id for nbest in read(f"nemo:{path}?n=2&manifest={manifest}")]
    assert ids == list(read_kaldi_text(manifest)) == ["7", "b"]


# ---- SRILM


@pytest.mark.parametrize(
    ("text", "options", "hyps"),
    [
        ("a-1 -7.5 -3 2 HE SAID\na-2 -8 -4 0\n", "", [("HE SAID", [-7.5, -3, 2]), ("", [-8, -4, 0])]),
        ("a-1  -7.5\t-3  HE  SAID\na-2 -8 -4\n", "", [("HE SAID", [-7.5, -3]), ("", [-8, -4])]),
        ("a-1 -7.5 HE SAID\na-2 +8. 2 MEN\n", "", [("HE SAID", [-7.5]), ("2 MEN", [8])]),
        ("a-1 -1 -2 3 4 MEN\na-2 -1 -2 3 5 MEN\n", "", [("4 MEN", [-1, -2, 3]), ("5 MEN", [-1, -2, 3])]),
        ("a-1 -1 -2 3 MEN\n", "?scores=am,lm", [("3 MEN", [-1, -2])]),
        ("a-1 -1 -2 -3 -4 A\n", "?scores=am,lm,words,x", [("A", [-1, -2, -3, -4])]),
    ],
)
def test_srilm(tmp_path: Path, text: str, options: str, hyps: list[tuple[str, list[float]]]) -> None:
    path = tmp_path / "a.nbest"
    path.write_text(text)
    names = {1: ["score"], 2: ["am", "lm"], 3: ["am", "lm", "words"], 4: ["am", "lm", "words", "x"]}[len(hyps[0][1])]
    expected = [(words, dict(zip(names, scores, strict=True))) for words, scores in hyps]
    assert plain(read(f"{path}{options}")) == [("a", expected)]


def test_srilm_log10(tmp_path: Path) -> None:
    path = tmp_path / "a.nbest"
    path.write_text("a-1 -1 -2 2 HE SAID\n")
    scores = read(f"{path}?base=10")[0].hyps[0].scores
    assert scores == pytest.approx({"am": -2.302585092994046, "lm": -4.605170185988092, "words": 2.0}, rel=1e-15)
    write_nbest(f"{path}?base=10", [NbestList("a", [Hypothesis(("HE",), scores)])])
    assert path.read_text() == "a-1 -1.0 -2.0 2.0 HE\n"


def test_srilm_as_written(tmp_path: Path) -> None:
    path = tmp_path / "a.nbest"
    hyps = [
        Hypothesis(("HE",), {"words": 1.0, "lm": -2.0, "am": -1.0}),
        Hypothesis((), {"lm": 0.0, "am": 0, "words": 0}),
    ]
    write_nbest(str(path), [NbestList("a", hyps)])
    assert path.read_text() == "a-1 -1.0 -2.0 1.0 HE\na-2 0.0 0.0 0.0\n"
