"""`asr decode --lang-dir`: the scores of a graph of words in lists and lattices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rescore.formats import read_lattices
from rescore.lattices.paths import best_path
from tests.asr.cli.test_cli_decode import TEXTS, folder, nbests, run
from tests.asr.decoding.test_shallow_fusion import ngram
from tests.asr.tiny import pieces, vocabulary

__all__ = ["folder"]
ENDS = {"k2": ".pt", "slf": "", "kaldi-lat": ".ark"}  # of names of lattices


@pytest.mark.parametrize("kind", ["k2", "slf", "kaldi-lat"])
@pytest.mark.parametrize("method", ["fast_beam_search", "fast_beam_search_nbest"])
def test_a_graph_gives_lists_and_lattices_its_scores(folder: Path, tmp_path: Path, method: str, kind: str) -> None:
    k2 = pytest.importorskip("k2")
    words = {"CAT": (1, -1.5), "THE": (2, -0.5)}
    lines, state = [], 0
    for word, (label, log) in words.items():
        *inner, last = vocabulary().encode_word(word)
        src = 0
        for place, token in enumerate(inner):
            state += 1
            lines.append((src, state, token, label if place == 0 else 0, log if place == 0 else 0.0))
            src = state
        lines.append((src, 0, last, 0 if inner else label, 0.0 if inner else log))
    lines.append((0, state + 1, -1, -1, -2.0))
    text = "\n".join(" ".join(map(str, line)) for line in sorted(lines)) + f"\n{state + 1}\n"
    torch.save(k2.arc_sort(k2.Fsa.from_str(text, acceptor=False)).as_dict(), tmp_path / "LG.pt")
    (tmp_path / "words.txt").write_text("<eps> 0\nCAT 1\nTHE 2\n")
    out, options = tmp_path / "out", ("--decoding-method", method, "--lattices", kind, "--ngram-lm-scale", 0.5)
    run(folder, *options, "--lang-dir", tmp_path, "--out", out)
    assert "_ngram_lm_scale_0.5\t" in next(out.glob("wer-summary-*")).read_text()
    (lists,) = out.glob("nbest-*-ngram-lm-scale-0.5.jsonl.gz")
    ends = {"CAT": -1.5, "THE": -0.5}
    best = {}
    for utt_id, nbest in nbests(lists).items():
        if utt_id == "c-3":
            continue
        best[utt_id] = nbest.hyps[0].words
        totals = []
        for hyp in nbest.hyps:
            assert hyp.scores["lm"] == pytest.approx(sum(ends[word] for word in hyp.words) - 2.0, abs=1e-3)
            totals.append(hyp.scores["am"] + 0.5 * hyp.scores["lm"] + hyp.scores.get("alignments", 0.0))
        assert totals == sorted(totals, reverse=True)
    (found,) = out.glob(f"lattices-*-ngram-lm-scale-0.5{ENDS[kind]}")
    read = {lattice.utt_id: lattice for lattice in read_lattices(f"{kind}:{found}")}
    lm = "graph" if kind == "kaldi-lat" else "lm"
    assert all(set(lattice.scores) == {"am", lm} for lattice in read.values()) and set(read) == set(TEXTS)
    if method == "fast_beam_search":
        assert {utt_id: best_path(read[utt_id], {"am": 1.0, lm: 0.5}).words for utt_id in best} == best


def test_results_are_named_after_the_graph_and_the_token_ngram(k2: Any, folder: Path, tmp_path: Path) -> None:
    """Two of the same scale do not take each other's place."""
    out, method = tmp_path / "out", ("--decoding-method", "fast_beam_search")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        graph = k2.arc_sort(k2.Fsa.from_str("0 0 3 1 -1\n0 0 4 1 -1\n0 1 -1 -1 0\n1\n", acceptor=False))
        torch.save(graph.as_dict(), tmp_path / name / "LG.pt")
        (tmp_path / name / "words.txt").write_text("<eps> 0\nCAT 1\n")
        run(folder, *method, "--lang-dir", tmp_path / name, "--out", out)
        ngram(tmp_path / f"{name}.arpa", [pieces().names[1:]])
        run(folder, "--lodr", tmp_path / f"{name}.arpa", "--out", out)
    run(folder, "--lodr", f"three={tmp_path / 'two.arpa'}", "--out", out)
    names = sorted(path.name.partition("-stateless-")[2] for path in out.glob("recogs-*"))
    search = "fast_beam_search-beam-20.0-max-contexts-8-max-states-64"
    assert names == [
        *(f"{search}-{name}-ngram-lm-scale-0.01.txt" for name in ("one", "two")),
        *(f"modified_beam_search-beam-size-4-lodr-{name}-scale-0.1.txt" for name in ("one.arpa", "three", "two.arpa")),
    ]
