"""Files of a decoding run: icefall's, and those that `rescore` reads back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from asr.decoding.decode import Decoded, nbest_list
from asr.decoding.lattice_search import AM, lattice_search, word_lattice
from asr.decoding.options import LATTICE_FORMATS
from asr.decoding.prefixes import SearchHypothesis
from asr.decoding.results import (
    Outputs,
    Results,
    Spool,
    empty_lattice,
    empty_nbest,
    save_lattices,
    save_nbest,
    write_icefall,
    write_recogs,
)
from rescore.errors import ReferencesError
from rescore.formats import read_lattices, read_nbest
from rescore.lattices.nbest import exact_nbest
from rescore.types import Hypothesis, NbestList
from tests.asr.tiny import Tiny, pieces, vocabulary

FULL = Path("/dev/full")
REFS = {"b-2": ("THE", "CAT"), "a-1": ("IT'S", "SO")}
HYPS = {"a-1": ("IT'S",), "b-2": ("THE", "HAT")}


def test_recogs_are_icefalls(tmp_path: Path) -> None:
    write_recogs(tmp_path / "recogs.txt", REFS, HYPS)
    assert (tmp_path / "recogs.txt").read_text() == (
        "a-1:\tref=[\"IT'S\", 'SO']\na-1:\thyp=[\"IT'S\"]\nb-2:\tref=['THE', 'CAT']\nb-2:\thyp=['THE', 'HAT']\n"
    )


def test_three_files_of_icefall(tmp_path: Path) -> None:
    suffix = "epoch-30-avg-15-modified_beam_search-beam-size-4"
    counts = write_icefall(tmp_path / "exp", "test", suffix, "beam_size_4", REFS, HYPS)
    assert counts.errors == 2 and counts.wer == 50.0
    assert sorted(path.name for path in (tmp_path / "exp").iterdir()) == [
        f"errs-test-{suffix}.txt",
        f"recogs-test-{suffix}.txt",
        f"wer-summary-test-{suffix}.txt",
    ]
    assert (tmp_path / f"exp/wer-summary-test-{suffix}.txt").read_text() == "settings\tWER\nbeam_size_4\t50.00\n"
    assert (
        (tmp_path / f"exp/errs-test-{suffix}.txt").read_text().startswith("%WER = 50.00\nErrors: 0 insertions, 1 del")
    )
    with pytest.raises(ReferencesError, match="differ in letter case"):
        lower = {utt_id: tuple(word.lower() for word in words) for utt_id, words in HYPS.items()}
        write_icefall(tmp_path, "test", suffix, "beam_size_4", REFS, lower)


def test_without_references_no_texts_of_an_earlier_decoding_stay(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path, "test", "greedy_search", "greedy_search")
    for text, there in (("THE CAT", True), ("", False)):
        results = Results(tmp_path)
        results.add(Decoded(NbestList("u", [Hypothesis(("THE",), {"am": -1.0})]), None), text)
        counts, written = results.write(outputs)
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {Path(name).name for name in written} and (counts is not None) == there
        assert ("recogs-test-greedy_search.txt" in left) == there


def test_nbest_keeps_every_score_and_one_of_like_words(tmp_path: Path) -> None:
    cat = vocabulary().encode_word("CAT")
    spelled = [token for letter in "CAT" for token in vocabulary().encode_word(letter)[1:]]
    again = (*vocabulary().encode_word("CAT")[:1], *spelled)
    hyps = [
        SearchHypothesis(cat, (1,) * len(cat), {"am": -1.0, "lm": -2.0}),
        SearchHypothesis((1, *cat), (), {"am": -1.5, "lm": -2.5}),
        SearchHypothesis(again[:1], (3,), {"am": -3.0, "lm": -4.0}),
        SearchHypothesis((), (), {"am": -5.0, "lm": -0.5}),
    ]
    nbest = replace(nbest_list("a", hyps, pieces()), ref=("CAT",))
    assert nbest.hyps[0].words == ("CAT",)
    assert nbest.hyps[0].scores == {"am": -1.0, "lm": -2.0, "words": 1.0}
    assert nbest.hyps[-1].words == () and nbest.hyps[-1].scores["words"] == 0.0
    assert len(nbest.hyps) == len({hyp.words for hyp in nbest.hyps}) < len(hyps)
    save_nbest(tmp_path / "n.jsonl.gz", [nbest, empty_nbest("b", nbest.hyps[0].scores)])
    back = list(read_nbest(str(tmp_path / "n.jsonl.gz")))
    assert back[0] == nbest and back[1].hyps[0].words == ()


@pytest.mark.parametrize("kind", LATTICE_FORMATS)
def test_lattices_are_read_back(kind: str, tmp_path: Path) -> None:
    model = Tiny(18, "lstm", seed=11)
    encoded, lengths = model.encoded(8, 5)
    tokens = lattice_search(model, encoded, lengths, ["a", "b"], pieces(), beam=12.0, max_contexts=6)
    lattices = [*(word_lattice(lattice, pieces(), 5.0) for lattice in tokens), empty_lattice("c", ["am"])]
    words = {word for lattice in lattices for word in lattice.symbols} - {""}
    save_lattices(kind, tmp_path / "lattices-test", lattices[:1], words)  # is replaced, like all results of a set
    spec = save_lattices(kind, tmp_path / "lattices-test", lattices, words)
    back = {lattice.utt_id: lattice for lattice in read_lattices(spec)}
    for lattice in lattices:
        one, other = (exact_nbest(found, AM, 5).hyps for found in (lattice, back[lattice.utt_id]))
        assert [hyp.words for hyp in one] == [hyp.words for hyp in other]
        assert [hyp.scores["am"] for hyp in one] == pytest.approx([hyp.scores["am"] for hyp in other], abs=1e-3)


@pytest.mark.skipif(not FULL.exists(), reason="no device that is full")
def test_a_spool_on_a_full_disk_keeps_nothing_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.13 on what a file could not write is told again when it is thrown away."""
    monkeypatch.setattr("tempfile.TemporaryFile", lambda dir: FULL.open("w+b"))
    spool = Spool(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        spool.add("a", "x")
    assert spool._stream.closed
