"""What `load_graph` refuses: graphs that k2 would take and decode wrongly, or end with an error of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from asr.decoding.word_graph import load_graph
from asr.errors import DataError
from rescore.errors import FormatError
from tests.asr.tiny import pieces

SIZE = 18
GOOD = "0 0 3 1 -3\n0 0 4 2 -1\n0 1 -1 -1 -2\n1\n"


def save(k2: Any, folder: Path, text: str = GOOD, words: str = "<eps> 0\nCAT 1\nTHE 2\n#0 3\n") -> Any:
    graph = k2.arc_sort(k2.Fsa.from_str(text, acceptor=False))
    torch.save(graph.as_dict(), folder / "LG.pt")
    (folder / "words.txt").write_text(words)
    return graph


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace(" 4 2 ", " 18 2 "), r"LG.pt: found token 18, the recogniser has 1 to 17; .*#0"),
        (GOOD.replace(" 4 2 ", " 0 2 "), r"LG.pt: arcs without a token, .*k2.remove_epsilon"),
        (GOOD.replace(" 4 2 ", " 4 9 "), r"LG.pt: word id 9 is not in .*words.txt"),
        (GOOD.replace(" 4 2 ", " 4 3 "), r"LG.pt: has #0 as a word"),
    ],
)
def test_graphs_for_other_pieces_or_words_are_refused(k2: Any, tmp_path: Path, text: str, message: str) -> None:
    save(k2, tmp_path)
    assert load_graph(tmp_path, pieces(SIZE)).words.words[2] == "THE"
    save(k2, tmp_path, text)
    with pytest.raises(DataError, match=message):
        load_graph(tmp_path, pieces(SIZE))


def test_scores_that_are_no_numbers_are_refused(k2: Any, tmp_path: Path) -> None:
    graph = save(k2, tmp_path)
    graph.scores = torch.tensor([-1.0, -torch.inf, -2.0])
    torch.save(graph.as_dict(), tmp_path / "LG.pt")
    with pytest.raises(DataError, match=r"LG.pt: scores that are NaN or infinite"):
        load_graph(tmp_path, pieces(SIZE))


def test_a_vector_of_graphs_is_refused(k2: Any, tmp_path: Path) -> None:
    graph = save(k2, tmp_path)
    torch.save(k2.create_fsa_vec([graph, graph]).as_dict(), tmp_path / "LG.pt")
    with pytest.raises(DataError, match=r"LG.pt: a vector of 2 graphs, expected one"):
        load_graph(tmp_path, pieces(SIZE))


def test_the_tokens_beside_a_graph_are_the_recognisers(k2: Any, tmp_path: Path) -> None:
    """Of its own tokens alone: those that the graph does not use, and disambiguation symbols, may differ."""
    save(k2, tmp_path)
    own = [name or "<blk>" for name in pieces(SIZE).names]
    own[2] = "<unk>"

    def write(names: list[str]) -> None:
        (tmp_path / "tokens.txt").write_text("".join(f"{name} {token}\n" for token, name in enumerate(names)))

    write([*own, "#0", "#1"])
    load_graph(tmp_path, pieces(SIZE))
    write([*own[:4], own[5], own[4], *own[6:]])
    with pytest.raises(DataError, match=rf"tokens.txt: token 4 is {own[5]}, the recogniser's is {own[4]}"):
        load_graph(tmp_path, pieces(SIZE))


def test_a_missing_table_is_told_before_anything_is_decoded(k2: Any, tmp_path: Path) -> None:
    save(k2, tmp_path)
    (tmp_path / "words.txt").unlink()
    with pytest.raises(FormatError, match=r"words.txt: no such file"):
        load_graph(tmp_path, pieces(SIZE))
