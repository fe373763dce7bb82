"""A graph of words, the LG of icefall's lang folder, for the searches that run in k2; what it says is checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from asr.decoding.lattice_search import AM
from asr.decoding.prefixes import Pieces
from asr.errors import ConfigError, DataError
from rescore.errors import K2_INSTALL
from rescore.formats.k2_load import load_fsa
from rescore.formats.symbols import EPSILON_ID, SymbolTable, read_symbols

LM = "lm"  # the score of a graph
FINAL = -1  # k2's label of arcs into the final state
_DISAMBIGUATION = re.compile(r"#\d+")


def import_k2() -> ModuleType:
    """k2, or a ConfigError that says how to get it."""
    try:
        import k2
    except ImportError as error:
        raise ConfigError(
            f"fast_beam_search needs k2, which cannot be imported ({error}); use --decoding-method "
            f"modified_beam_search, or install k2: {K2_INSTALL}"
        ) from None
    return k2  # type: ignore[no-any-return]


@dataclass(frozen=True)
class WordGraph:
    """An LG to search in, made by `word_graph`.

    Attributes:
      fsa: k2 Fsa over tokens with words as `aux_labels`; `lm_scores` are weighted by `lm_scale` within its `scores`,
        `reached` is 1 + the state that an arc leads to.
      ends: float `(states,)`, the best `lm_scores` of the end of a sentence in each state, 0 where none ends.
      words: its words by their ids.
    """

    fsa: Any
    ends: torch.Tensor
    words: SymbolTable
    lm_scale: float = 1.0

    @property
    def scales(self) -> dict[str, float]:
        """Of the scores of lattices that come of it: what the search goes by."""
        return {**AM, LM: self.lm_scale}


def word_graph(fsa: Any, words: SymbolTable, lm_scale: float = 1.0) -> WordGraph:
    """A graph whose scores (its `lm_scores`, where it has them apart, as icefall's HLG) count with a scale."""
    if not hasattr(fsa, "lm_scores"):
        fsa.lm_scores = fsa.scores.clone()
    fsa.scores = fsa.scores + (lm_scale - 1.0) * fsa.lm_scores
    arcs, last = fsa.arcs.values(), fsa.labels == FINAL
    fsa.reached = arcs[:, 1] + 1
    ends = fsa.lm_scores.new_full((fsa.shape[0],), -torch.inf)
    ends.scatter_reduce_(0, arcs[last, 0].long(), fsa.lm_scores[last].detach(), "amax")
    ends = torch.where(ends > -torch.inf, ends, torch.zeros_like(ends))
    return WordGraph(fsa, ends, words, lm_scale)


def load_graph(folder: Path, pieces: Pieces, lm_scale: float = 1.0) -> WordGraph:
    """`LG.pt` and `words.txt` of icefall's lang folder, for a recogniser with these pieces.

    Raises:
      DataError: no such file, not `torch.save(fsa.as_dict())`, or not a graph from these pieces to these words.
      FormatError: `words.txt` or `tokens.txt`.
    """
    import_k2()
    path = folder / "LG.pt"
    try:
        graph = load_fsa(path)
        graph.aux_labels  # noqa: B018
    except Exception as error:  # k2 can raise anything
        problem = (str(error).splitlines() or [type(error).__name__])[0].removeprefix(f"{path}: ")
        raise DataError(
            f"{path}: not a graph, expected LG.pt with aux_labels, as icefall writes it ({problem})"
        ) from None
    words = read_symbols(folder / "words.txt")
    _check_form(path, graph)
    _check_tokens(path, np.unique(graph.labels.numpy()), pieces)
    aux = graph.aux_labels if isinstance(graph.aux_labels, torch.Tensor) else graph.aux_labels.values
    _check_words(path, np.unique(aux.numpy()), words)
    return word_graph(graph, words, lm_scale)


def _check_form(path: Path, graph: Any) -> None:
    """Raises DataError for several graphs, an empty one, or scores that no search can go by."""
    if len(graph.shape) != 2:
        raise DataError(f"{path}: a vector of {graph.shape[0]} graphs, expected one; save the Fsa itself")
    if not graph.num_arcs:
        raise DataError(f"{path}: a graph without an arc; L and G have no word in common?")
    for name in ("scores", "lm_scores"):
        if hasattr(graph, name) and not bool(getattr(graph, name).isfinite().all()):
            raise DataError(f"{path}: {name} that are NaN or infinite, expected finite logs; make the graph anew")


def _check_tokens(path: Path, labels: np.ndarray, pieces: Pieces) -> None:
    """Raises DataError if the labels, distinct and in order, are not those of the recogniser's pieces.

    k2 takes an epsilon for a blank, and reads scores behind those of the last token without a word.
    """
    used, own = labels[labels != FINAL].tolist(), path.with_name("tokens.txt")
    if EPSILON_ID in used:
        raise DataError(f"{path}: arcs without a token, on which a frame would pass; take k2.remove_epsilon to it")
    if used and not (used[0] > 0 and used[-1] < len(pieces)):
        wrong = used[-1] if used[-1] >= len(pieces) else used[0]
        raise DataError(
            f"{path}: found token {wrong}, the recogniser has 1 to {len(pieces) - 1}; it was made for other pieces, or "
            "with disambiguation symbols (#0, #1) left in, which icefall's compile_lg.py takes out"
        )
    if not own.is_file():
        return
    names = read_symbols(own).words
    for token in used:
        name = "<unk>" if token == pieces.vocab.unk else pieces.names[token]
        if names.get(token) not in (name, pieces.names[token]):
            raise DataError(
                f"{own}: token {token} is {names.get(token, 'not there')}, the recogniser's is {name}; the graph was "
                "made for other pieces: make it anew from the recogniser's bpe.model"
            )


def _check_words(path: Path, ids: np.ndarray, words: SymbolTable) -> None:
    """Raises DataError if the ids of words, distinct, are not all words of the table."""
    for word_id in ids[(ids != EPSILON_ID) & (ids != FINAL)].tolist():
        word = words.words.get(word_id)
        if word is None:
            raise DataError(f"{path}: word id {word_id} is not in {words.path}; give the words.txt of this graph")
        if _DISAMBIGUATION.fullmatch(word):
            raise DataError(f"{path}: has {word} as a word; set it to 0 before epsilons go, as icefall's compile_lg.py")
