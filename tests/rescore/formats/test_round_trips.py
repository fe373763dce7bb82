"""Whatever words, ids and scores there are: what was written is read the same, or was refused at writing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescore.errors import RescoreError
from rescore.formats import parse_spec, read_lattices, read_nbest, write_lattices, write_nbest
from rescore.formats.table import FORMATS
from rescore.types import Alignments, Hypothesis, Lattice, NbestList
from tests.rescore.formats.test_formats import SPECS, spec_in
from tests.rescore.lattices.test_paths import lattices, score_sums

ODD = (
    '\\ \\\\ \\101 \\303\\251 \' " \'\' "a" a"b \'tis W="x" a=\'b = == a=b',
    '# ## #0 | || , : ; - -- _ . .. [ ] [] {} ( a(2) / { } {"a":1} null true "a":',
    "<eps> <epsilon> !NULL NULL !SENT_START !SENT_END <s> </s> <unk> <sil> <blk> J=1 I=2 N= utt-1 u-0 NBestList1.0",
    "0 1 -1 00 01 1.5 -7.25 .5 1e5 1e400 nan NaN inf -inf Infinity 0x10 1_000 1,2 1.5,2.5,3_4 ٣ ² \uff11 4294967297",
    "é e\u0301 \u0301 ß İ \u0131 漢 हिन्दी אב\u200fג 😀 👩\u200d👧 \ufeff \ufeffa a\ufeff ▁ ▁a",
    "\u200b \u2028 \u00a0 \u3000 \x1c a\x85b \x00 \x7f \ufffe",
)
WORDS = [word for line in ODD for word in line.split(" ")]
CHARACTER = st.characters(blacklist_categories=("Cs",), blacklist_characters=" \t\n\r\v\f")
WORD = st.sampled_from(WORDS) | st.text(CHARACTER, min_size=1, max_size=4)
SCORE = st.sampled_from([0.0, -0.0, 5e-324, -1e100, 1e100, 1e39, -1e-45, -1 / 3]) | st.floats(-1e4, 0)
UTT_IDS = 'a a-1 a-1-2 0 é 漢字 a/b a.b .a {"a" [a] #a <s> a:b a=b a\u3000b \'a\' "a" \\ ref utts nodes \ufeffa'
UTT_ID = st.sampled_from(UTT_IDS.split(" "))


@st.composite
def nbest_lists(draw: st.DrawFn, name: str) -> list[NbestList]:
    size = st.just(3) if "nemo" in name else st.integers(1, 3)
    words = st.lists(WORD, max_size=3).map(tuple)
    lists = []
    for utt_id in draw(st.lists(UTT_ID, unique=True, min_size=1, max_size=3)):
        hyps = [Hypothesis(draw(words), {score: draw(SCORE) for score in SPECS[name][1]}) for _ in range(draw(size))]
        lists.append(NbestList(utt_id, hyps, draw(st.none() | words)))
    return lists


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_lists(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    lists = data.draw(nbest_lists(name))
    spec = spec_in(tmp_path_factory.mktemp("x"), name)
    try:
        assert write_nbest(spec, lists) == len(lists)
    except RescoreError as error:  # of all that is drawn, no format refuses more
        assert "byte order mark" in str(error)
        return
    back = list(read_nbest(spec))
    assert [nbest.hyps for nbest in back] == [nbest.hyps for nbest in lists]
    entry = FORMATS[parse_spec(spec)[0]]
    if entry.name != "nemo":
        assert [nbest.utt_id for nbest in back] == [nbest.utt_id for nbest in lists]
    if entry.keeps_refs:
        assert [nbest.ref for nbest in back] == [nbest.ref for nbest in lists]


LATTICES = {
    "slf": ("slf:{}/out", ("am", "lm", "any/é")),
    "openfst": ("openfst:{}/out?words=ids", ("score",)),
    "openfst, Kaldi's weights": ("openfst:{}/out.fst.txt?words=ids", ("graph", "am")),
    "openfst, numbers": ("openfst:{0}/out?words={0}/words.txt", ("score",)),
    "kaldi": ("kaldi:{}/out", ("graph", "am")),
    "kaldi, numbers": ("kaldi:{0}/out?words={0}/words.txt", ("graph", "am")),
    "kaldi, text": ("kaldi:{}/out.ark?text=yes", ("graph", "am")),
    "k2": ("k2:{}/out.pt", ("am", "lm", "any/é")),
    "k2, numbers": ("k2:{0}/out.pt?words={0}/words.txt", ("am", "lm")),
}
REFUSED = ("byte order mark", "name of a file", "is HTK's for no word", "would be read back as no word")


@st.composite
def odd_lattices(draw: st.DrawFn, names: tuple[str, ...]) -> Lattice:
    """Scores are such that float32 holds sums of them."""
    symbols = ("", *draw(st.lists(WORD, min_size=1, max_size=4, unique=True)))
    lattice = draw(lattices(symbols))
    lattice.scores = {name: next(iter(lattice.scores.values())) - place / 4 for place, name in enumerate(names)}
    lattice.utt_id = draw(UTT_ID)
    lattice.times = np.sort(np.array(draw(st.lists(st.floats(0, 99), min_size=9, max_size=9))))[: lattice.num_states]
    if draw(st.booleans()):
        lengths = np.array(draw(st.lists(st.integers(0, 2), min_size=lattice.num_arcs, max_size=lattice.num_arcs)))
        lattice.alignments = Alignments.of_lengths(np.arange(1, lengths.sum() + 1), lengths)
    return lattice


@pytest.mark.slow
@pytest.mark.parametrize("name", LATTICES)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_lattices(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    if name.startswith("k2"):
        pytest.importorskip("torch")
    lattice = data.draw(odd_lattices(LATTICES[name][1]))
    folder = tmp_path_factory.mktemp("x")
    table = "~~ 0\n" + "".join(f"{word} {number}\n" for number, word in enumerate(lattice.symbols[1:], start=7))
    if "numbers" in name:
        (folder / "words.txt").write_text(table, encoding="utf-8")
    spec = LATTICES[name][0].format(folder)
    try:
        assert write_lattices(spec, [lattice]) == 1
    except RescoreError as error:
        assert any(reason in str(error) for reason in REFUSED), error
        return
    all_numbers = not list(folder.rglob("*words.txt"))
    numbered = name in ("kaldi", "kaldi, text", "k2") and all_numbers
    (again,) = read_lattices(spec.replace("?text=yes", "") + "?words=ids" * numbered)
    assert again.utt_id == lattice.utt_id and score_sums(again) == score_sums(lattice)
    if name == "slf":
        assert all(np.array_equal(getattr(again, part), getattr(lattice, part)) for part in ("src", "dst", "times"))
        assert all(np.array_equal(again.scores[score], lattice.scores[score]) for score in lattice.scores)
        assert list(again.scores) == list(lattice.scores)
    if name.startswith("kaldi") and lattice.alignments is not None:
        assert again.alignments is not None
        assert sorted(again.alignments.ids.tolist()) == lattice.alignments.ids.tolist()
