"""n-gram rescoring of k2 lattices in k2's way: composition with a G of the LM, on the CPU or a GPU.

icefall's `rescore_with_whole_lattice` composes with a G whose back-off arcs are epsilons, so that a path may back off
where the LM has the longer n-gram, and only where the lattice happens to have an epsilon.  Here G is made for the
lattices at hand: of every history only the words that follow it in them, each with the one arc that the LM has for it,
back-offs paid.  So G is deterministic, small, and composition exact, the same as
`rescore.lattices.ngram_lm.expand_ngram`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from lm_zoo.base import WordLM
from lm_zoo.text.coverage import MOST_UNKNOWN, Coverage, said
from rescore.console import remark
from rescore.errors import K2_INSTALL, FormatError
from rescore.lattices.ngram_states import NgramHistories

FINAL, EPSILON = -1, 0  # labels of k2


def rescore_with_ngram(lattices: Any, lm: WordLM, words: Mapping[int, str], max_unknown: float = MOST_UNKNOWN) -> Any:
    """The lattices composed with the LM: `lm_scores` are its natural logs, `scores` are those without an LM plus these.

    What the lattices have as `lm_scores` is taken out of their scores first; if they have none, all of the score is
    kept (and it is said).  Every other attribute stays.  `am_scores = scores - lm_scores`, to be weighted at will.

    Args:
      lattices: k2 FsaVec, acyclic, with word ids as `aux_labels` (a tensor or ragged); the result is on its device.
      lm: such as `lm_zoo.ngram.kenlm_lm.NgramLM`.
      words: id -> word; a dict, or icefall's `lexicon.word_table`.
      max_unknown: the largest share of the words on best paths that the LM may not know.
    Raises:
      VocabError: words that do not suit the LM (see `lm_zoo.text.coverage`).
      FormatError: k2 is not installed, there are no `aux_labels`, one is not among `words`, no path, or a cycle.
    """
    k2 = _import_k2()
    import torch

    if len(lattices.shape) != 3 or not hasattr(lattices, "aux_labels"):
        raise FormatError("k2", "expected an FsaVec with aux_labels, as icefall's get_lattice gives")
    lattices = k2.top_sort(k2.connect(lattices))
    count = lattices.shape[0]
    if not lattices.num_arcs:
        raise FormatError("k2", "no lattice has a path from its start to its end, so there is nothing to score")
    if not lattices.properties & k2.fsa_properties.TOPSORTED_AND_ACYCLIC:
        raise FormatError("k2", "a lattice has a cycle, expected acyclic ones, as icefall's get_lattice gives")
    if hasattr(lattices, "lm_scores"):
        lattices.scores = lattices.scores - lattices.lm_scores
        del lattices.lm_scores
    else:
        remark("the lattices have no lm_scores: nothing is taken out of their scores")
    if lattices.num_arcs == 1:  # whose score k2 refuses: a column with a stride of its own making; so take all twice
        lattices = k2.create_fsa_vec([lattices[number] for number in range(count)] * 2)
    inverse = k2.invert(lattices)
    graph = k2.create_fsa_vec([grammar(inverse, lm, words, max_unknown)]).to(lattices.device)
    every = torch.zeros(inverse.shape[0], dtype=torch.int32, device=lattices.device)
    composed = k2.intersect_device(graph, inverse, every, sorted_match_a=True)
    result = k2.invert(k2.top_sort(k2.connect(composed)))
    return result if result.shape[0] == count else k2.create_fsa_vec([result[number] for number in range(count)])


def grammar(inverse: Any, lm: WordLM, words: Mapping[int, str], max_unknown: float = MOST_UNKNOWN) -> Any:
    """G for an FsaVec with words as labels, numbered topologically: a k2 Fsa on the CPU, arc-sorted.

    State 0 is the begin of sentence, the last one the end; every other is a history.  Each has a loop for epsilons.
    """
    k2 = _import_k2()
    import torch

    source, target, label = _arcs(inverse)
    ids = np.unique(label[label > EPSILON])
    try:
        symbols = ["", *(words[int(number)] for number in ids)]
    except (KeyError, IndexError) as error:
        raise FormatError("k2", f"word id {error} is not among the words; give the lattices' own words.txt") from None
    coverage = Coverage(lm, "lm_scores", max_unknown)
    best = k2.shortest_path(inverse, use_double_scores=True).labels.cpu().numpy()
    places = np.searchsorted(ids, best[best > EPSILON]) + 1
    coverage.add(Counter(symbols[place] for place in places.tolist()), "k2 lattices")
    coverage.check()
    remark(f"lm_scores: {said(coverage, 'words on best paths')}, scored as <unk>")
    compact = np.where(label > EPSILON, np.searchsorted(ids, label) + 1, label)
    histories = NgramHistories(lm, symbols, "lm_scores", "k2 lattices")
    _ask_all(histories, _followers(source.tolist(), target.tolist(), compact.tolist()))
    arcs, scores = _arcs_of(histories, np.append(EPSILON, ids))
    bits = np.ascontiguousarray(scores.astype(np.float32)).view(np.int32)
    graph = k2.Fsa(torch.from_numpy(np.column_stack([arcs, bits]).astype(np.int32)))
    graph.lm_scores = graph.scores.clone()
    return k2.arc_sort(graph)


def _arcs(fsas: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Source, target and label of every arc, int64; states are numbered through all FSAs."""
    shape = fsas.arcs.shape()
    values = fsas.arcs.values().cpu().numpy().astype(np.int64)
    source = shape.row_ids(2).cpu().numpy()
    first = shape.row_splits(1).cpu().numpy()[shape.row_ids(1).cpu().numpy()[source]]
    return source, values[:, 1] + first, values[:, 2]


def _followers(source: list[int], target: list[int], label: list[int]) -> dict[int, set[int]]:
    """The words, and FINAL, that follow each word in some lattice, epsilons between them left out; EPSILON: the start.

    Arcs go forward and are sorted by their source.
    """
    before: defaultdict[int, set[int]] = defaultdict(set)  # of each state: the last words of the ways into it
    leaving: defaultdict[int, set[int]] = defaultdict(set)
    for begin, end, word in zip(source, target, label, strict=True):
        if begin not in before:  # nothing leads here: the start
            before[begin].add(EPSILON)
        if word == EPSILON:
            before[end] |= before[begin]
        else:
            before[end].add(word)
            leaving[begin].add(word)
    followers: defaultdict[int, set[int]] = defaultdict(set)
    for state, words in leaving.items():
        for last in before[state]:
            followers[last] |= words
    return followers


def _ask_all(histories: NgramHistories, followers: Mapping[int, set[int]]) -> None:
    """Asks the LM for every word after every history that it can follow."""
    todo = [(0, EPSILON)]  # history and its last word
    seen = set(todo)
    for history, last in todo:  # grows while it is walked
        for word in followers.get(last, ()):
            if word == FINAL:
                histories.end(history)
                continue
            _, longer = histories.known[history].get(word) or histories.ask(history, word)
            if (longer, word) not in seen:
                seen.add((longer, word))
                todo.append((longer, word))


def _arcs_of(histories: NgramHistories, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Arcs `(arcs, 3)` of source, target and label, sorted by source, and their scores `(arcs,)`.

    Args:
      ids: `(words,)`, the lattices' word ids of the histories' words.
    """
    final = len(histories.states)
    rows = []
    for history, answers in enumerate(histories.known):
        rows += [(history, longer, word, logprob) for word, (logprob, longer) in answers.items()]
        if history in histories.ends:
            rows.append((history, final, FINAL, histories.ends[history]))
    source, target, word, scores = (np.array(column) for column in zip(*rows, strict=True))
    return np.column_stack([source, target, np.where(word > 0, ids[word], word)]), scores


def _import_k2() -> ModuleType:
    try:
        import k2
    except ImportError as error:
        needed = f"cannot be imported ({error}), composition needs it; install it: {K2_INSTALL}"
        raise FormatError("k2", needed) from None
    return k2
