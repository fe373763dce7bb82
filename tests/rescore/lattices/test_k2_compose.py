"""Composition with G in k2 against the expansion by histories."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescore.errors import FormatError
from rescore.formats.k2 import to_dict, to_lattices
from rescore.formats.symbols import SymbolTable
from rescore.lattices.k2_compose import rescore_with_ngram
from rescore.lattices.ngram_lm import expand_ngram
from rescore.lattices.paths import best_path
from rescore.types import Alignments, Lattice
from tests.rescore.lattices.test_ngram_lm import ARPA, ToyTrigram
from tests.rescore.lattices.test_paths import best_by_words, lattices

k2 = pytest.importorskip("k2")
torch = pytest.importorskip("torch")

IDS = {7: "a", 3: "b", 12: "c"}
TABLE = SymbolTable(Path("words.txt"), IDS, {word: number for number, word in IDS.items()})
SCALES = {"am": 1.0, "lm": 0.75, "words": 0.25}


def fsas_of(found: list[Lattice], old: bool) -> object:
    """The lattices in k2, with arcs' numbers as labels."""
    for number, lattice in enumerate(found):
        lattice.utt_id = f"u{number}"
        lattice.alignments = Alignments.of_lengths(np.arange(lattice.num_arcs) + 1, np.ones(lattice.num_arcs, int))
        if not old:
            del lattice.scores["lm"]
    return k2.Fsa.from_dict(to_dict(found, TABLE))


@settings(max_examples=60, deadline=None)
@given(st.lists(lattices(("", "a", "b", "c")), min_size=1, max_size=3), st.booleans())
def test_composition_is_the_exact_expansion(found: list[Lattice], old: bool) -> None:
    fsas = fsas_of(found, old)
    result = rescore_with_ngram(fsas, ToyTrigram(), IDS, max_unknown=1)
    assert result.shape[0] == len(found)
    composed = list(to_lattices(result, [lattice.utt_id for lattice in found], TABLE))
    for lattice, new in zip(found, composed, strict=True):
        lattice.scores.pop("lm", None)  # that of the old LM
        expected = best_by_words(expand_ngram(lattice, ToyTrigram(), "lm", SCALES), SCALES)
        assert best_by_words(new, SCALES) == pytest.approx(expected, abs=1e-4)
        best = best_path(new, SCALES)
        assert best.scores["lm"] == pytest.approx(ToyTrigram().score(best.words), abs=1e-4)
        assert new.alignments is not None and set(new.alignments.ids.tolist()) <= set(range(lattice.num_arcs + 1))


def test_ragged_words_and_a_real_lm(tmp_path: Path) -> None:
    """Golden values by hand from the ARPA file: log10 p(a b </s>) = -0.25 - 0.375 - 0.625."""
    pytest.importorskip("kenlm")
    from lm_zoo.ngram.kenlm_lm import NgramLM

    (tmp_path / "toy.arpa").write_text(ARPA)
    fsa = k2.create_fsa_vec([k2.Fsa.from_str("0 1 5 -0.5\n1 2 6 -0.25\n2 3 -1 0\n3")])
    fsa.aux_labels = k2.RaggedTensor([[7, 3], [], [-1]])
    result = rescore_with_ngram(fsa, NgramLM(tmp_path / "toy.arpa"), IDS)
    (lattice,) = to_lattices(result, ["u"], TABLE)
    best = best_path(lattice, {"am": 1.0, "lm": 1.0})
    assert best.words == ("a", "b")
    assert best.scores == pytest.approx({"am": -0.75, "lm": -1.25 * np.log(10), "words": 2.0})


def test_a_single_arc_and_no_path() -> None:
    fsa = k2.create_fsa_vec([k2.Fsa.from_str("0 1 -1 0.5\n1")])
    fsa.aux_labels = torch.tensor([-1], dtype=torch.int32)
    result = rescore_with_ngram(fsa, ToyTrigram(), IDS)
    assert result.shape[0] == 1
    assert result.scores.tolist() == pytest.approx([0.5 + ToyTrigram().score(())])
    empty = k2.Fsa.from_str("0 1 3 0.5\n2")
    for several in ([empty, k2.Fsa.from_str("0 1 -1 0.5\n1")], [k2.Fsa.from_str("0 1 -1 0.5\n1"), empty, empty]):
        fsas = k2.create_fsa_vec(several)
        fsas.aux_labels = torch.where(fsas.labels > 0, 7, -1).to(torch.int32)
        result = rescore_with_ngram(fsas, ToyTrigram(), IDS)
        arcs = [result[number].num_arcs for number in range(result.shape[0])]
        assert arcs == [0 if fsa is empty else 1 for fsa in several]
        assert result.scores.tolist() == pytest.approx([0.5 + ToyTrigram().score(())])
    fsa = k2.create_fsa_vec([k2.Fsa.from_str("0 1 3 0.5\n2 3 -1 0\n3")])
    fsa.aux_labels = torch.tensor([7, -1], dtype=torch.int32)
    with pytest.raises(FormatError, match="no lattice has a path from its start to its end"):
        rescore_with_ngram(fsa, ToyTrigram(), IDS)


def test_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    fsa = k2.create_fsa_vec([k2.Fsa.from_str("0 1 5 -0.5\n1 2 -1 0\n2")])
    with pytest.raises(FormatError, match="expected an FsaVec with aux_labels"):
        rescore_with_ngram(fsa, ToyTrigram(), IDS)
    with pytest.raises(FormatError, match="expected an FsaVec"):
        rescore_with_ngram(SimpleNamespace(shape=(3, None)), ToyTrigram(), IDS)
    fsa.aux_labels = torch.tensor([8, -1], dtype=torch.int32)
    with pytest.raises(FormatError, match="word id 8 is not among the words"):
        rescore_with_ngram(fsa, ToyTrigram(), IDS)
    assert "nothing is taken out" in capsys.readouterr().err
    loop = k2.create_fsa_vec([k2.Fsa.from_str("0 1 5 7 -0.5\n1 1 6 3 -0.25\n1 2 -1 -1 0\n2", num_aux_labels=1)])
    with pytest.raises(FormatError, match="a lattice has a cycle"):
        rescore_with_ngram(loop, ToyTrigram(), IDS)
