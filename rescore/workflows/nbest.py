"""The whole of `rescore nbest`: load the LMs, score, combine, say what was done."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_zoo.base import LONGEST
from lm_zoo.deadline import time_limit
from lm_zoo.errors import LMError
from lm_zoo.text.coverage import MOST_UNKNOWN
from rescore import __version__
from rescore.console import remark
from rescore.errors import FormatError, RescoreError, UsageError
from rescore.formats import is_pipe, read_nbest, source_identity
from rescore.formats.counting import count_nbest, nbest_with_progress
from rescore.sharing.parts import MAX_UNKNOWN, parts_inside
from rescore.sharing.shares import Sharing, share_out
from rescore.skipping import OnError, Skip, again, fail
from rescore.types import NbestList, Weights
from rescore.weights import NGRAM, UNCERTAINTY, equal_weights, load_mixture
from rescore.workflows.combine import SCORES_FILE, CombineCounts, say_combined, write_combined
from rescore.workflows.context import TextBefore, with_context
from rescore.workflows.merge import merge
from rescore.workflows.recordings import find_recordings
from rescore.workflows.reuse import columns_there, has_all, with_columns
from rescore.workflows.scored_by import EARLIER, in_plan, known_lms, note_lms, remark_other_lms
from rescore.workflows.seen import seen_lines

if TYPE_CHECKING:
    from rescore.sharing.parts import Split
    from rescore.workflows.columns import LMColumn, NotLoaded
    from rescore.workflows.scoring import ScoringResult

JOINED = "for LMs that see across sentences: rescore train-lm --train join=128 (--init continues a trained one)"


@dataclass(frozen=True)
class Request:
    """What is scored with what, and where to.

    Attributes:
      source: of the lists, `[FORMAT:]PATH`.
      lms, ngram: as of `rescore.workflows.columns.open_scorers`; so are dtype, device and max_unknown.
      out: the folder that is written.
      mix_file: interpolation weights, for the column `mix`.
      exact: LMs see words as they are written, and refuse those of another case than their text's.
      context: LMs see the text before an utterance.
      skip: an utterance that cannot be read or scored is left out, named and counted.
      reuse: columns that `out` has already, of the same lists, LM and settings, are kept.
    """

    source: str
    lms: Sequence[str]
    out: Path
    ngram: str | None = None
    mix_file: Path | None = None
    dtype: str = "float32"
    device: str = "cpu"
    max_unknown: float = MOST_UNKNOWN
    exact: bool = False
    context: ContextOptions | None = None
    skip: bool = False
    reuse: bool = False

    @property
    def on_unread(self) -> OnError:
        """Of lists that cannot be read, anew."""
        return Skip() if self.skip else fail

    def plan(
        self, given: dict[str, str], earlier: dict[str, str], mix: dict[str, float] | None, before: TextBefore | None
    ) -> dict[str, Any] | None:
        """All that the scores depend on, by content; None where that cannot be known.

        Args:
          given, earlier: column -> identity of the LMs that score, and of those that have given scores before.
        """
        if is_pipe(self.source):
            return None
        return {
            "version": __version__,
            "N-best lists": source_identity(self.source),
            **in_plan(given),
            EARLIER: earlier,
            "--dtype": self.dtype,
            "--device": self.device,
            "--mix": mix,
            MAX_UNKNOWN: self.max_unknown,
            "--context": before and before.plan,
            "--text-view": "exact" if self.exact else "lm",
            "--on-error": "skip" if self.skip else "stop",
            "--max-seconds": time_limit(),
        }


def rescore_nbest(
    request: Request, weights: Weights | None = None, sharing: Sharing | None = None, max_memory: int | None = None
) -> CombineCounts:
    """Scores lists into `out/scores.jsonl.gz` and combines them; see `rescore nbest`.

    Args:
      weights: None for scales of 1.
      sharing: among processes; None or an empty one is this process alone.
      max_memory: bytes that each of the processes may take; this one is bounded by whoever calls.
    Returns:
      what was combined; of a share alone, its utterances.
    Raises:
      UsageError: contradicting options; a mix that names an LM that is not given.
    """
    context, out = request.context, request.out
    if context is not None and time_limit() is not None:
        raise UsageError("--max-seconds leaves out what the text before others is made of: leave it or --context out")
    if request.reuse and (context is not None or request.mix_file is not None):
        raise UsageError("--reuse is for columns of sentences by themselves: leave it out, or --context and --mix")
    if context is not None:
        request = replace(request, context=replace(context, weights=weights))
    work = partial(_score, request)
    if sharing is None or sharing.alone:
        scored = work(None, weights)
        say_combined(scored.used, weights, out)
        counts: CombineCounts = scored.used
        return counts
    if sharing.split is None:
        _say_what_shares_replace(request)
        share_out(work, sharing, parts_inside(out), request.skip, max_memory)
        return merge(out, weights)
    if weights is not None and context is None:
        raise UsageError("--split scores its share alone; give --weights or --scale to rescore merge")
    return CombineCounts(utterances=work(sharing.split).total)


def _score(request: Request, split: Split | None, weights: Weights | None = None) -> ScoringResult:
    """Scores all lists and combines them, or scores those of one share."""
    source, lms, ngram, out = request.source, request.lms, request.ngram, request.out
    unread, on_error = request.on_unread, Skip() if request.skip else fail
    lists = read_nbest(source, unread)
    first = next(lists, None)  # a bad source is refused before torch and an LM are loaded
    if first is None:
        raise FormatError(source, "no N-best list in it that can be read")
    every, before = _text_before(request.context, source, chain([first], lists), again(unread))
    from rescore.workflows.columns import identities, open_scorers, trained_on_sentences
    from rescore.workflows.scoring import new_columns, write_scores

    given, earlier = identities(lms, ngram), known_lms(source)
    plan = request.plan(given, earlier, None, None) if request.reuse else None
    there = [] if plan is None else columns_there(out, plan)
    kept = _not_loaded(request, there)
    scorers = open_scorers(lms, ngram, request.dtype, request.device, request.max_unknown, request.exact, kept)
    said = list(_what_they_are(scorers, trained_on_sentences(lms) if before else None))
    for line in said:
        remark(line)
    mix = _read_mix(request.mix_file, scorers) if request.mix_file else None
    new = new_columns(scorers, mix)
    if split is None or split.number == 1:
        _say_what_is_replaced(out / SCORES_FILE, first, {*first.columns, *new})
    checked = _within_limits(source, every, scorers, unread)
    plan = plan or request.plan(given, earlier, mix, before)
    if there:
        checked = _with_scores(checked, scorers, out, there)
    if split is not None:
        errors = on_error, unread
        said = [*([str(before)] if before else []), *said]
        written = write_scores(checked, scorers, out, plan, mix, _count, split, before, *errors, said=said)
        remark(f"{written.total} utterances of share {split} scored" + _taken_over(written.kept))
        return written
    remark_other_lms(weights, {**earlier, **given})
    used = with_context(weights or equal_weights([*first.hyps[0].scores, *new]), before.plan if before else None)

    def use(scored: Iterator[NbestList]) -> CombineCounts:
        return write_combined(scored, used, out)

    written = write_scores(checked, scorers, out, plan, mix, use, None, before, on_error, unread, count_nbest(source))
    note_lms(out, {**earlier, **given})
    remark(f"{written.total} utterances scored" + _taken_over(written.kept))
    for line in seen_lines(written.counts, "hypothesis words", "hypotheses"):
        remark(line)
    return written


def _not_loaded(request: Request, there: Collection[str]) -> dict[str, NotLoaded]:
    """What stands for the LMs of columns that `out` has, where it has them of all lists."""
    from rescore.workflows.columns import NotLoaded

    if not there or not has_all(request.out, request.max_unknown):
        return {}
    columns = next(read_nbest(f"jsonl:{request.out / SCORES_FILE}")).columns
    return {column: NotLoaded(f"{column}{UNCERTAINTY}" in columns) for column in there}


def _with_scores(
    lists: Iterable[NbestList], scorers: list[LMColumn], out: Path, there: Collection[str]
) -> Iterable[NbestList]:
    """The lists with the columns `there`, which `out` has of them already; their LMs are `reused` from here on."""
    for scorer in scorers:
        scorer.reused = scorer.column in there
    remark(f"{', '.join(there)}: kept, {out / SCORES_FILE} has the scores of the same LM for the same lists")
    return with_columns(lists, out, [column for scorer in scorers if scorer.reused for column in scorer.columns])


def _say_what_is_replaced(path: Path, first: NbestList, columns: set[str]) -> None:
    """Of the scores that an earlier run has left there: those that this one, of these lists, does not write."""
    try:
        there = next(read_nbest(f"jsonl:{path}"), None) if path.exists() else None
    except RescoreError:
        there = None  # damaged: nothing to keep
    if there is not None and there.utt_id != first.utt_id:
        remark(f"{path} is replaced: it has scores of other utterances ({there.utt_id} ...); a folder for each set")
    elif there is not None and (lost := [column for column in there.columns if column not in columns]):
        remark(f"{path} is replaced, with {', '.join(lost)} of an earlier run; to add to it instead: --nbest {path}")


def _say_what_shares_replace(request: Request) -> None:
    """As `_say_what_is_replaced`, for processes that say nothing themselves and have loaded the LMs."""
    from rescore.workflows.columns import column_of

    first = None if is_pipe(request.source) else next(read_nbest(request.source, again(request.on_unread)), None)
    if first is not None:
        named = [column_of(name)[0] for name in request.lms]
        named += [NGRAM] * (request.ngram is not None) + ["mix"] * (request.mix_file is not None)
        new = {column for name in named for column in (name, f"{name}{UNCERTAINTY}")}
        _say_what_is_replaced(request.out / SCORES_FILE, first, {*first.columns, *new})


def _count(scored: Iterator[NbestList]) -> int:
    return sum(1 for _ in scored)


def _taken_over(kept: int) -> str:
    return f", {kept} of them by a run that was stopped" if kept else ""


def _what_they_are(scorers: list[LMColumn], of_sentences: list[str] | None) -> Iterator[str]:
    """Lines; of those that were trained on single sentences the columns, None where no text before is read."""
    for scorer in scorers:
        if scorer.is_pseudo:
            yield f"{scorer.column}: a masked LM; the column is a pseudo-log-likelihood, for N-best only"
    if of_sentences is not None:
        yield from _what_they_read(scorers, of_sentences)


def _what_they_read(scorers: list[LMColumn], of_sentences: list[str]) -> Iterator[str]:
    for scorer in scorers:
        most = scorer.lm.most_tokens
        if most < LONGEST:
            yield f"{scorer.column}: reads {most} tokens at most, with the text before; its oldest words are left out"
    for column in of_sentences:
        yield f"{column}: trained on single sentences, so text before them may do harm; {JOINED}"


@dataclass(frozen=True)
class ContextOptions:
    """`--context`, `--recording-of` and `--recordings` of `rescore nbest`.

    Attributes:
      words: of the text before an utterance; None: all of it.
      recording_of, recordings: as in `rescore.workflows.recordings.find_recordings`.
      weights: decide what the text before is; None: first hypotheses are.
    """

    words: int | None
    recording_of: str | None = None
    recordings: Path | None = None
    weights: Weights | None = None


def _text_before(
    options: ContextOptions | None, source: str, lists: Iterable[NbestList], on_error: OnError
) -> tuple[Iterable[NbestList], TextBefore | None]:
    """The lists again, and the text before each; recordings are found by another reading, what is in a pipe is held."""
    if options is None:
        return lists, None
    if is_pipe(source):
        lists = list(lists)
    named = lists if is_pipe(source) else nbest_with_progress(source, "looking for recordings", on_error)
    recordings = find_recordings(named, options.recording_of, options.recordings)
    before = TextBefore(options.words, recordings, options.weights)
    remark(str(before))
    return lists, before


def _within_limits(
    source: str, lists: Iterable[NbestList], scorers: list[LMColumn], on_error: OnError
) -> Iterable[NbestList]:
    """The same lists; what is too long for one of the LMs is refused, or left out.

    If it is to be refused, that is found before any LM is run, which may take hours, by another reading of `source`;
    in a pipe, as lists come.
    """
    limited = [scorer for scorer in scorers if scorer.has_limit]

    def checked(unchecked: Iterable[NbestList]) -> Iterator[NbestList]:
        for nbest in unchecked:
            try:
                for scorer in limited:
                    scorer.check_lengths(nbest)
            except LMError as error:
                if on_error is fail:
                    raise
                on_error(RescoreError(str(error)))
            else:
                yield nbest

    if is_pipe(source):
        remark(f"{source} is a pipe, which is read but once: if this run is stopped, the next one begins anew")
    if limited and on_error is fail and not is_pipe(source):
        deque(checked(nbest_with_progress(source, "checking lengths")), maxlen=0)
        return lists
    return checked(lists)


def _read_mix(path: Path, scorers: list[LMColumn]) -> dict[str, float]:
    mixture = load_mixture(path, [scorer.column for scorer in scorers])
    for scorer in scorers:
        if scorer.is_pseudo:
            raise UsageError(f"'{scorer.column}' is a masked LM: its scores are no probabilities and cannot be mixed")
    return mixture
