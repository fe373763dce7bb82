"""Scores of all prefixes of a trie under a neural LM, as many at once as memory has room for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from lm_zoo.base import Context
from lm_zoo.inference.memory import score_in_parts
from lm_zoo.inference.softmax import log_normalisers, logits_of
from lm_zoo.inference.tree import Tree, TreeLM
from lm_zoo.inference.trie import Trie

NODES = 16384  # evaluated at once: 0.5 GB with 512 dimensions


@torch.no_grad()
def score(lm: TreeLM, trie: Trie) -> tuple[np.ndarray, np.ndarray]:
    """As `lm_zoo.inference.trie.score_trie`; of tokens that no sequence has (contexts) the scores mean nothing."""
    tree = Tree.of(trie, lm.vocab.bos, lm.device)
    hidden = lm.tree_hidden(tree)
    asked = tree.tensor(np.flatnonzero(trie.asked))  # of contexts nothing is asked
    normalisers = hidden.new_zeros(len(hidden), dtype=torch.float32)
    normalisers[asked] = log_normalisers(lm.output, hidden if len(asked) == len(hidden) else hidden[asked])
    ends = tree.tensor(trie.ends)
    rows = torch.cat([tree.parents[1:], ends])
    tokens = torch.cat([tree.inputs[1:], torch.full_like(ends, lm.vocab.eos)])
    scores = (logits_of(lm.output, hidden, rows, tokens) - normalisers[rows]).double().cpu().numpy()
    return np.concatenate([[0.0], scores[: trie.num_nodes - 1]]), scores[trie.num_nodes - 1 :]


def score_by_tree(
    lm: TreeLM, sentences: Sequence[Sequence[str]], nodes: int = NODES, contexts: Sequence[Context] | None = None
) -> list[list[float]]:
    """As `lm_zoo.base.score_in_batches`, for sentences that share prefixes, such as the hypotheses of N-best lists.

    Args:
      nodes: so many prefixes are evaluated at once; fewer where memory does not suffice (`lm_zoo.inference.memory`).
      contexts: as in `LanguageModel.score_hypotheses`.
    """
    return score_in_parts(lm, sentences, score, nodes, contexts)
