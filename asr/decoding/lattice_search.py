"""Lattices from the transducer without k2: a beam search whose hypotheses meet again.

As in k2's `RnntDecodingStreams` with the trivial graph (Kang et al., "Fast and parallel decoding for transducer",
ICASSP 2023), a state is a frame and the last `context` tokens, so all ways to come to the same tokens meet, and every
arc that survives stays in the lattice.  With a stateless decoder that sees no more than `context` tokens the arcs'
scores are exact; with an LSTM those of the best way into a state stand for all ways.

The result is a lattice of tokens (blanks are epsilons); `word_lattice` makes it one of words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from asr.decoding.prefixes import BLANK, FRAME_SECONDS, Pieces, Predictor, check_encoded
from rescore.lattices.build import EPSILON, build_lattice
from rescore.lattices.epsilons import remove_epsilons
from rescore.lattices.paths import arc_ranges
from rescore.lattices.prune import prune_beam
from rescore.types import Lattice

if TYPE_CHECKING:
    from asr.model.transducer import Transducer

AM = {"am": 1.0}


@dataclass
class _UtteranceLattice:
    """The search of one utterance.

    Attributes:
      active: last tokens -> (state, best score from the start, row of the decoder's output).
      frames: frame of each lattice state so far.
      arcs:   (source, destination, token, am) of each arc.
    """

    active: dict[tuple[int, ...], tuple[int, float, int]]
    frames: list[int] = field(default_factory=lambda: [0])
    arcs: list[tuple[int, int, int, float]] = field(default_factory=list)


@torch.no_grad()
def lattice_search(
    model: Transducer,
    encoded: Tensor,
    lengths: Tensor,
    utt_ids: Sequence[str],
    pieces: Pieces,
    beam: float = 20.0,
    max_contexts: int = 8,
    context: int | None = None,
) -> list[Lattice]:
    """A lattice of tokens for each utterance; symbols are pieces, the score is `am`, times are in seconds.

    Args:
      encoded: float `(batch, frames, dim)`; lengths: int64 `(batch,)`.
      beam: what is so much worse than the best at the same frame is left out (natural logs).
      max_contexts: at most so many states a frame.
      context: last tokens that tell states apart; None: as many as a stateless decoder sees, three for an LSTM.
    Raises:
      DataError: as `check_encoded`.
    """
    limits = check_encoded(encoded, lengths)
    if context is None:
        context = model.config.context_size if model.config.decoder == "stateless" else 3
    search = _Search(model, encoded, beam, max_contexts, context)
    for frame in range(max(limits, default=0)):
        search.step(frame, [row for row, limit in enumerate(limits) if frame < limit])
    return [search.lattice(row, utt_id, pieces) for row, utt_id in enumerate(utt_ids)]


class _Search:
    def __init__(self, model: Transducer, encoded: Tensor, beam: float, max_contexts: int, context: int) -> None:
        self.beam, self.max_contexts, self.context = beam, max_contexts, context
        self.predictor = Predictor(model, encoded.device)
        self.projected = model.joiner.project_encoder(encoded)
        self.predicted = self.predictor.start()
        empty = (BLANK,) * context
        self.streams = [_UtteranceLattice({empty: (0, 0.0, 0)}) for _ in range(len(encoded))]

    def step(self, frame: int, rows: list[int]) -> None:
        """One frame of the utterances `rows`."""
        active = [(row, key, *entry) for row in rows for key, entry in self.streams[row].active.items()]
        device = self.projected.device
        own = torch.tensor([entry[0] for entry in active], device=device)
        outputs = self.predicted.output[torch.tensor([entry[4] for entry in active], device=device)]
        log_probs = self.predictor.log_probs(self.projected[own, frame], outputs)
        totals = log_probs.double() + torch.tensor([entry[3] for entry in active], device=device).double().unsqueeze(1)
        counts = [len(self.streams[row].active) for row in rows]
        best = torch.stack([part.max() for part in totals.amax(dim=1).split(counts)])
        best = best.repeat_interleave(torch.tensor(counts, device=device))
        places, symbols = (totals >= (best - self.beam).unsqueeze(1)).nonzero(as_tuple=True)
        scores, gained = totals[places, symbols].tolist(), log_probs[places, symbols].double().tolist()
        found: dict[int, dict[tuple[int, ...], list[tuple[float, int, int, float]]]] = {row: {} for row in rows}
        for place, symbol, total, score in zip(places.tolist(), symbols.tolist(), scores, gained, strict=True):
            row, key = active[place][0], active[place][1]
            target = key if symbol == BLANK or not self.context else (*key[1:], symbol)
            found[row].setdefault(target, []).append((total, place, symbol, score))
        chosen: list[tuple[int, int]] = []
        for row, ways in found.items():
            self._survivors(frame, self.streams[row], ways, active, chosen)
        rows_tensor, tokens = (torch.tensor(column) for column in zip(*chosen, strict=True))
        self.predicted = self.predictor.advance(self.predicted, rows_tensor, tokens)

    def _survivors(
        self,
        frame: int,
        stream: _UtteranceLattice,
        ways: dict[tuple[int, ...], list[tuple[float, int, int, float]]],
        active: list[Any],
        chosen: list[tuple[int, int]],
    ) -> None:
        """The new states of a stream and the arcs into them; appends to `chosen` the row and token of each state."""
        ranked = sorted(ways.items(), key=lambda item: -max(item[1])[0])[: self.max_contexts]
        stream.active = {}
        for key, arcs in ranked:
            state = len(stream.frames)
            stream.frames.append(frame + 1)
            stream.arcs.extend((active[place][2], state, symbol, score) for _, place, symbol, score in arcs)
            total, place, symbol, _ = max(arcs)
            stream.active[key] = (state, total, len(chosen))
            chosen.append((active[place][4], symbol))

    def lattice(self, row: int, utt_id: str, pieces: Pieces) -> Lattice:
        """The token lattice of an utterance."""
        stream = self.streams[row]
        final = len(stream.frames)
        ends = [(state, final, BLANK, 0.0) for state, _, _ in stream.active.values()]
        src, dst, tokens, am = (np.array(column) for column in zip(*stream.arcs, *ends, strict=True))
        times = np.array([*stream.frames, max(stream.frames)]) * FRAME_SECONDS
        return build_lattice(utt_id, final + 1, src, dst, tokens, {"am": am}, pieces.names, 0, final, times)


def word_lattice(lattice: Lattice, pieces: Pieces, beam: float | None = 10.0, most: int = 32) -> Lattice:
    """The lattice of words of one of tokens.

    A word stands on the arc of the piece that begins the next one, or on the arc into the final state.  All ways
    through blanks and pieces between two words are then one arc, the best one, so that the best path of every word
    sequence stays, with its scores.

    Args:
      lattice: labels are tokens, 0 the blank; score `am`.
      beam: arcs on no path at most so much below the best are left out; None for all.
      most: at most so many words may be under way at one place; a trained model needs far fewer.
    """

    def pruned(lattice: Lattice) -> Lattice:
        return lattice if beam is None else prune_beam(lattice, AM, beam)

    return pruned(remove_epsilons(pruned(_with_words(pruned(lattice), pieces, most)), AM))


def _with_words(lattice: Lattice, pieces: Pieces, most: int) -> Lattice:
    """States are split by the pieces of the word under way; labels are words."""
    split = _Split(lattice)
    words: dict[str, int] = {"": EPSILON}
    arcs: list[tuple[int, int, int, int]] = []  # source, destination, word, arc of the token lattice
    ranges, token_of = arc_ranges(lattice), _tokens(lattice, pieces)
    for state in range(lattice.num_states - 1):
        ways = split.best(state, most)
        for arc in range(ranges[state], ranges[state + 1]):
            label, dst = token_of[arc], int(lattice.dst[arc])
            for pending in ways:
                word, after = "", pending
                if label != BLANK:
                    starts = pieces.begins(pending[-1] if pending else BLANK, label)
                    word = " ".join(pieces.words(pending)) if starts else ""
                    after = (label,) if starts else (*pending, label)
                source, target = split.extend(state, pending, arc, dst, after)
                arcs.append((source, target, words.setdefault(word, len(words)), arc))
    final = len(split.states)
    for pending in split.best(lattice.num_states - 1, most):
        word = " ".join(pieces.words(pending))
        arcs.append((split.number[-1][pending], final, words.setdefault(word, len(words)), -1))
    src, dst_, labels, of_arc = (np.array(column) for column in zip(*arcs, strict=True))
    scores = {name: np.append(column, 0.0)[of_arc] for name, column in lattice.scores.items()}
    times = None if lattice.times is None else np.append(lattice.times[split.states], lattice.times[-1])
    return build_lattice(lattice.utt_id, final + 1, src, dst_, labels, scores, list(words), 0, final, times)


class _Split:
    """The states of a token lattice, each once for every word that may be under way there.

    Attributes:
      states: the token lattice's state of each new one.
      number: for each state of the token lattice: pieces of the word under way -> the new state.
    """

    def __init__(self, lattice: Lattice) -> None:
        self.am = lattice.scores["am"].tolist()
        self.states, self.forward = [0], [0.0]
        self.number: list[dict[tuple[int, ...], int]] = [{} for _ in range(lattice.num_states)]
        self.number[0][()] = 0

    def best(self, state: int, most: int) -> list[tuple[int, ...]]:
        """The words under way at a state, at most so many: those with the best ways from the start."""
        found = self.number[state]
        return sorted(found, key=lambda pending: -self.forward[found[pending]])[:most]

    def extend(
        self, state: int, pending: tuple[int, ...], arc: int, dst: int, after: tuple[int, ...]
    ) -> tuple[int, int]:
        """Source and destination of a new arc."""
        source = self.number[state][pending]
        target = self.number[dst].setdefault(after, len(self.states))
        score = self.forward[source] + self.am[arc]
        if target == len(self.states):
            self.states.append(dst)
            self.forward.append(score)
        self.forward[target] = max(self.forward[target], score)
        return source, target


def _tokens(lattice: Lattice, pieces: Pieces) -> list[int]:
    """The token of each arc, from the names of the labels."""
    number = {name: token for token, name in enumerate(pieces.names)}
    of_label = [number[symbol] for symbol in lattice.symbols]
    return [of_label[label] for label in lattice.labels.tolist()]
