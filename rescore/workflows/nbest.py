"""The whole of `rescore nbest`: load the LMs, score, combine, say what was done."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from lm_zoo.text.coverage import MOST_UNKNOWN, said
from rescore.console import progress, remark
from rescore.errors import FormatError, UsageError
from rescore.formats import is_pipe, read_nbest, source_identity
from rescore.types import NbestList, Weights
from rescore.weights import equal_scales, load_weights, parse_scales
from rescore.workflows.combine import write_combined

if TYPE_CHECKING:
    from rescore.workflows.scoring import Scorer


def rescore_nbest(
    source: str,
    lms: Sequence[str],
    ngram: str | None,
    mix_file: Path | None,
    weights_file: Path | None,
    scales: Sequence[str],
    out: Path,
    dtype: str = "float32",
    device: str = "cpu",
    max_unknown: float = MOST_UNKNOWN,
) -> None:
    """Scores the lists of `source` into `out/scores.jsonl.gz` and combines them; see `rescore nbest`.

    Raises:
      UsageError: both or contradicting options; a mix that names an LM that is not given.
    """
    if weights_file and scales:
        raise UsageError("give either --weights FILE or --scale NAME=VALUE, not both")
    weights = load_weights(weights_file) if weights_file else Weights(parse_scales(scales)) if scales else None
    lists = read_nbest(source)
    first = next(lists)  # a bad source is refused before torch and an LM are loaded
    from rescore.workflows.scoring import identities, open_scorers, write_scores

    scorers = open_scorers(lms, ngram, dtype, device, max_unknown)
    for scorer in scorers:
        if scorer.is_pseudo:
            remark(f"{scorer.column}: a masked LM; the column is a pseudo-log-likelihood, for N-best only")
    mix = _read_mix(mix_file, scorers) if mix_file else None
    checked = _within_limits(source, chain([first], lists), scorers)
    plan = None
    if not is_pipe(source):
        plan = {
            "N-best lists": source_identity(source),
            **{f"LM '{column}'": identity for column, identity in identities(lms, ngram).items()},
            "--dtype": dtype,
            "--device": device,
            "--mix": mix,
        }
    used = weights or _all_ones(first, scorers, mix)
    written = write_scores(checked, scorers, out, plan, mix, lambda scored: write_combined(scored, used, out))
    kept, counts = written.kept, written.used
    remark(f"{written.total} utterances scored" + (f", {kept} of them by a run that was stopped" if kept else ""))
    for scorer in scorers:
        remark(f"{scorer.column}: {said(scorer.coverage, 'hypothesis words')}, scored as <unk>")
    if weights is None:
        remark("no --weights and no --scale: every score counts with scale 1; find better scales with: rescore tune")
    elif counts.unused:
        remark(f"scores without a scale, not used: {', '.join(counts.unused)}")
    remark(f"{counts.hypotheses} hypotheses; {counts.changed} first hypotheses changed; written to {out}")


def _within_limits(source: str, lists: Iterable[NbestList], scorers: list[Scorer]) -> Iterable[NbestList]:
    """The same lists; what is too long for one of the LMs is refused.

    That is found before any LM is run, which may take hours, by another reading of `source`; in a pipe, as lists come.
    """
    limited = [scorer for scorer in scorers if scorer.has_limit]

    def checked(unchecked: Iterable[NbestList]) -> Iterator[NbestList]:
        for nbest in unchecked:
            for scorer in limited:
                scorer.check_lengths(nbest)
            yield nbest

    if is_pipe(source):
        remark(f"{source} is a pipe, which is read but once: if this run is stopped, the next one begins anew")
        return checked(lists)
    if limited:
        deque(checked(progress(read_nbest(source), "checking lengths")), maxlen=0)
    return lists


def _all_ones(first: NbestList, scorers: list[Scorer], mix: dict[str, float] | None) -> Weights:
    new = [column for scorer in scorers for column in scorer.columns] + (["mix"] if mix else [])
    names = [*first.hyps[0].scores, *new]
    return Weights(equal_scales(names), {"how": "no weights given: every scale is 1"})


def _read_mix(path: Path, scorers: list[Scorer]) -> dict[str, float]:
    weights = load_weights(path).scales
    columns = [scorer.column for scorer in scorers]
    if set(weights) != set(columns):
        raise UsageError(f"{path} mixes {', '.join(weights)}, but the LMs given are {', '.join(columns)}")
    if any(value < 0 for value in weights.values()) or abs(sum(weights.values()) - 1.0) > 1e-3:
        raise FormatError(path, f"interpolation weights must be >= 0 and sum to 1, found {weights}")
    for scorer in scorers:
        if scorer.is_pseudo:
            raise UsageError(f"'{scorer.column}' is a masked LM: its scores are no probabilities and cannot be mixed")
    return weights
