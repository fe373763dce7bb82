"""Combining saved scores with scales: new order of the N-best lists, new 1-best.  Loads no LM, sees no reference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rescore.console import remark
from rescore.errors import FormatError, ScoreError, WeightsError
from rescore.evaluation.distances import nbest_expected_errors
from rescore.files import atomic_text, require_folder
from rescore.formats import read_nbest, write_nbest
from rescore.formats.counting import nbest_with_progress
from rescore.text import short
from rescore.types import NbestList, Weights
from rescore.weights import (
    FIRST,
    MBR,
    WORDS_COLUMN,
    checked_scales,
    decision_of,
    is_finite,
    no_score,
    total,
    weights_json,
    with_words,
)
from rescore.workflows.normalising import Normaliser

SCORES_FILE = "scores.jsonl.gz"
NBEST_FILE = "nbest.jsonl.gz"
TEXT_FILE = "1best.txt"


@dataclass
class CombineCounts:
    """What `write_combined` did: utterances, hypotheses, utterances with a new 1-best, columns without a scale, and
    scales of 0 without a column."""

    utterances: int = 0
    hypotheses: int = 0
    changed: int = 0
    unused: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def combine_list(nbest: NbestList, weights: Weights) -> NbestList:
    """Sorts the hypotheses by total score, best first; ties keep the order of the source.

    All scores are kept as they are; the total is stored nowhere.  `words` is counted where it is missing.

    Weights for another decision are used for that: their info names it (see `decision_of`).  `mbr` sorts by the
    expected number of errors, fewest first, where the posteriors of the hypotheses are the softmax of the inverse
    temperature times their totals; ties by total.

    Raises:
      ScoreError: no hypothesis at all, a score missing in one of them, or a score or total that is not finite.
      WeightsError: a scale other than 0 whose score no hypothesis has.
    """
    return replace(nbest, hyps=[nbest.hyps[i] for i in ranking(nbest, weights)])


def ranking(nbest: NbestList, weights: Weights) -> list[int]:
    """The places of the hypotheses in the order of `combine_list`, which says the rest."""
    decision, inverse = decision_of(weights)
    if decision == FIRST and nbest.hyps:
        return list(range(len(nbest.hyps)))
    totals = totals_of(nbest, weights)
    for rank, value in enumerate(totals, start=1):
        if not math.isfinite(value * (inverse if decision == MBR else 1.0)):
            raise ScoreError(
                f"utterance {nbest.utt_id}: the total of hypothesis {rank} is no finite number; take smaller scales"
            )
    risks = [0.0] * len(totals)
    if decision == MBR:  # rounded, as equal sums may differ in their last digits
        risks = nbest_expected_errors([hyp.words for hyp in nbest.hyps], totals, inverse).round(9).tolist()
    return sorted(range(len(totals)), key=lambda i: (risks[i], -totals[i]))


def totals_of(nbest: NbestList, weights: Weights) -> list[float]:
    """The total score of every hypothesis; raises as `combine_list`."""
    scored = [with_words(hyp) for hyp in nbest.hyps]
    if not scored:
        raise ScoreError(f"utterance {nbest.utt_id}: no hypothesis; every list needs at least one")
    for rank, scores in enumerate(scored, start=1):
        _check_scores(nbest.utt_id, rank, scores, scored, weights.scales)
    return [total(scores, weights.scales) for scores in scored]


def _check_scores(
    utt_id: str, rank: int, scores: dict[str, float], all_scores: list[dict[str, float]], scales: dict[str, float]
) -> None:
    for name in scales:
        if name not in scores:
            if not any(name in other for other in all_scores):
                if scales[name] == 0.0:
                    continue
                said = no_score(f"utterance {utt_id}", name, scores, "which the weights have a scale for")
                raise WeightsError(f"{said}, or leave the scale out")
            what = f"utterance {utt_id}: hypothesis {rank}"
            raise ScoreError(no_score(what, name, scores, "which other hypotheses have"))
        if not is_finite(scores[name]):
            raise ScoreError(
                f"utterance {utt_id}: hypothesis {rank} has the score {name} = {short(scores[name])}; "
                "scores must be finite numbers"
            )


def scores_spec(source: str | Path) -> str:
    """`[FORMAT:]PATH` of lists with scores: of a folder that `rescore nbest` wrote, or of lists that have their own.

    Raises:
      RescoreError: neither.
    """
    path = Path(source)
    if not path.is_dir() and (path.exists() or ":" in str(source)):
        return str(source)
    path = require_folder(source) / SCORES_FILE
    if not path.is_file():
        raise FormatError(path, "no such file; `rescore nbest --out DIR` writes it, lists are given as FORMAT:PATH")
    return f"jsonl:{path}"


def read_scores(source: str | Path, label: str = "") -> Iterator[NbestList]:
    """Reads the lists of a scores folder (`DIR/scores.jsonl.gz`), or lists themselves, as a stream.

    Args:
      source: as of `scores_spec`.
      label: of the progress; without one, none is shown.
    """
    spec = scores_spec(source)
    return nbest_with_progress(spec, label) if label else read_nbest(spec)


def write_combined(
    lists: Iterable[NbestList],
    weights: Weights,
    out: str | Path,
    own: Mapping[str, Weights] | None = None,
) -> CombineCounts:
    """Combines a stream of lists and writes the results, all of them or, on an error, none.

    Writes `out/1best.txt` (Kaldi text in the order of the input), `out/nbest.jsonl.gz` (reordered, all scores kept)
    and `out/weights.json` (the weights used).  Where the info of the weights names a normaliser, or characters, the
    hypotheses that become equal are one, their probabilities summed (see `rescore.workflows.normalising`); what stays
    keeps its writing.

    Args:
      own: utterance -> other weights for it.
    Raises:
      ScoreError, WeightsError: as `combine_list`; also an utterance that comes twice, or no utterance at all.
    """
    out = Path(out)
    counts = CombineCounts()
    checked_scales(weights.scales, "weights")
    normaliser = Normaliser.of(weights)
    decision_of(weights)
    unused: dict[str, None] = {}

    def combined() -> Iterator[NbestList]:
        for nbest in each_once(lists):
            result, changed = decide(nbest, (own or {}).get(nbest.utt_id, weights), normaliser)
            best.write(" ".join((nbest.utt_id, *result.hyps[0].words)) + "\n")
            counts.utterances += 1
            counts.hypotheses += len(result.hyps)
            counts.changed += changed
            unused.update(dict.fromkeys(name for hyp in nbest.hyps for name in hyp.scores))
            yield result
        if not counts.utterances:
            raise ScoreError("there is no utterance to combine; the scores are empty")

    with atomic_text(out / TEXT_FILE) as best, atomic_text(out / "weights.json") as kept:
        kept.write(weights_json(weights))
        write_nbest(f"jsonl:{out / NBEST_FILE}", combined())
    normaliser.say()
    counts.unused = [name for name in unused if name not in weights.scales]
    counts.absent = [name for name in weights.scales if name not in unused and name != WORDS_COLUMN]
    return counts


def each_once(lists: Iterable[NbestList]) -> Iterator[NbestList]:
    """The lists; a ScoreError at an utterance that comes a second time."""
    seen: set[str] = set()
    for nbest in lists:
        if nbest.utt_id in seen:
            raise ScoreError(f"utterance {nbest.utt_id} occurs a second time in the scores")
        seen.add(nbest.utt_id)
        yield nbest


def decide(nbest: NbestList, weights: Weights, normaliser: Normaliser) -> tuple[NbestList, bool]:
    """A list as `write_combined` writes it, best first, and whether its first hypothesis is another one than before."""
    if decision_of(weights)[0] == FIRST and nbest.hyps:  # as it came: no other writing of its first hypothesis
        return nbest, False
    plain, written = normaliser.merge(nbest)
    order = ranking(plain, weights)
    hyps = [replace(plain.hyps[i], words=written[i]) for i in order]
    return replace(nbest, hyps=hyps), plain.hyps[order[0]].words != plain.hyps[0].words


def say_columns(counts: CombineCounts) -> None:
    """Says which scores had no scale, and which scales no score."""
    if counts.unused:
        remark(f"scores without a scale, not used: {', '.join(counts.unused)}")
    if counts.absent:
        remark(f"not among the scores, and not needed, as their scales are 0: {', '.join(counts.absent)}")


def say_combined(counts: CombineCounts, weights: Weights | None, out: Path) -> None:
    """Says what was combined, and which scores were not used; `weights` None: no scales were given."""
    if weights is None:
        remark("no --weights and no --scale: every score counts with scale 1; find better scales with: rescore tune")
    else:
        say_columns(counts)
    remark(f"{counts.hypotheses} hypotheses; {counts.changed} first hypotheses changed; written to {out}")
