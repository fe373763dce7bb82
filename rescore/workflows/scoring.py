"""Scoring N-best lists with LMs: one new column a model, many lists at a time, resumable.

Scoring never sees a reference.  A column is the natural-log probability of the whole sentence, its end included.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from lm_zoo.base import Context
from lm_zoo.inference.viewed import same_words
from lm_zoo.text.coverage import taken_back
from rescore.console import progress
from rescore.errors import RescoreError, ScoreError
from rescore.formats.common import CountedErrors
from rescore.formats.part_files import LISTS, utt_id_of
from rescore.sharing.parts import Note, Parts, Split, join_parts, parts_inside, read_note, remove_parts
from rescore.sharing.work import do_bites
from rescore.skipping import OnError, Skip, fail, note_skipped, said_by
from rescore.text import short
from rescore.types import Hypothesis, NbestList
from rescore.workflows.columns import LMColumn, check_columns
from rescore.workflows.combine import SCORES_FILE
from rescore.workflows.context import TextBefore
from rescore.workflows.reuse import note_scored
from rescore.workflows.seen import said_counts, seen_counts
from rescore.workflows.threads import Behind, ahead

BATCH_WORDS = 60_000
Written = tuple[int, list[NbestList] | None]  # a part; None: it is there already


def score_batch(
    batch: list[NbestList],
    scorers: list[LMColumn],
    mix: dict[str, float] | None = None,
    contexts: Sequence[Context] | None = None,
) -> list[NbestList]:
    """Adds one column a scorer to every hypothesis, and the column `mix` if interpolation weights are given.

    Args:
      mix: column -> weight of a linear interpolation word by word; the weights sum to 1.
      contexts: `(batch,)`, the text before each utterance; None: no LM sees any.
    Raises:
      ScoreError: a column that the lists already have (and that is not reused), or a score that is not finite.
      UsageError: as `check_columns`.
    """
    columns = new_columns([scorer for scorer in scorers if not scorer.reused], mix)
    for nbest in batch:
        _check_free(nbest, columns)
    with taken_back([scorer.coverage for scorer in scorers], [scorer.view for scorer in scorers]):
        for scorer in scorers:
            scorer.count(batch)
        return _scored(batch, scorers, mix, contexts)


def new_columns(scorers: list[LMColumn], mix: dict[str, float] | None) -> list[str]:
    """All columns that `score_batch` adds; raises UsageError as `check_columns`."""
    columns = [column for scorer in scorers for column in scorer.columns] + (["mix"] if mix else [])
    check_columns(columns)
    return columns


def _scored(
    batch: list[NbestList],
    scorers: list[LMColumn],
    mix: dict[str, float] | None,
    contexts: Sequence[Context] | None,
) -> list[NbestList]:
    if mix:
        _check_same_words(batch, scorers)
        by_column = {name: rows for scorer in scorers for name, rows in scorer.word_columns(batch, contexts).items()}
        new = {column: [sum(scores) for scores in rows] for column, rows in by_column.items()}
        new["mix"] = _mixed(by_column, mix)
    else:
        new = {name: values for scorer in scorers for name, values in scorer.columns_of(batch, contexts).items()}
    rows = iter(range(sum(len(nbest.hyps) for nbest in batch)))
    return [
        replace(nbest, hyps=[_with_columns(nbest.utt_id, hyp, new, next(rows)) for hyp in nbest.hyps])
        for nbest in batch
    ]


def _with_columns(utt_id: str, hyp: Hypothesis, new: dict[str, list[float]], row: int) -> Hypothesis:
    scores = {column: values[row] for column, values in new.items()}
    for column, value in scores.items():
        if not math.isfinite(value):
            raise ScoreError(f"utterance {utt_id}: the LM '{column}' gave {value} to '{' '.join(hyp.words)}'")
    others = {column: value for column, value in hyp.scores.items() if column not in scores}
    return replace(hyp, scores={**others, **scores})


def _mixed(by_column: dict[str, list[list[float]]], mix: dict[str, float]) -> list[float]:
    import numpy as np

    from lm_zoo.inference.interpolation import interpolate

    weights = np.array(list(mix.values()))
    rows = zip(*(by_column[column] for column in mix), strict=True)
    return [float(interpolate(np.array(scores), weights).sum()) for scores in rows]


def _check_same_words(batch: list[NbestList], scorers: list[LMColumn]) -> None:
    """Refuses LMs that see a hypothesis differently, as their words cannot be interpolated one by one."""
    for nbest in batch:
        for hyp in nbest.hyps:
            first, *others = (scorer.view.words(hyp.words) for scorer in scorers)
            for scorer, words in zip(scorers[1:], others, strict=True):
                if not same_words(scorer.view, first, words):
                    raise ScoreError(
                        f"utterance {nbest.utt_id}: '{scorers[0].column}' sees {short(' '.join(first))}, but "
                        f"'{scorer.column}' sees {short(' '.join(words))}; such LMs cannot be interpolated word by "
                        "word: leave --mix out, each gets a scale of its own"
                    )


def _check_free(nbest: NbestList, columns: list[str]) -> None:
    for hyp in nbest.hyps:
        for column in columns:
            if column in hyp.scores:
                raise ScoreError(
                    f"utterance {nbest.utt_id}: there is a score '{column}' already and it is not overwritten; "
                    "give the new column another name: --lm NEWNAME=NAME|DIR (in Python {'NEWNAME': lm})"
                )


def _batches(groups: Iterable[list[NbestList]]) -> Iterator[list[list[NbestList]]]:
    """Batches of `BATCH_WORDS` words; the first ones are smaller, so that there is something to see and to write."""
    batch: list[list[NbestList]] = []
    words, most = 0, BATCH_WORDS // 16
    for group in groups:
        batch.append(group)
        words += sum(len(hyp.words) + 1 for nbest in group for hyp in nbest.hyps)
        if words >= most:
            yield batch
            batch, words, most = [], 0, min(2 * most + 1, BATCH_WORDS)
    if batch:
        yield batch


def _alone(lists: Iterable[NbestList]) -> Iterator[list[NbestList]]:
    """Each list by itself."""
    return ([nbest] for nbest in lists)


def score_lists(lists: Iterable[NbestList], scorers: list[LMColumn]) -> Iterator[NbestList]:
    """The lists with a new column a scorer, in memory; raises as `score_batch`."""
    for groups in _batches(_alone(lists)):
        yield from score_batch(list(chain.from_iterable(groups)), scorers)
    for scorer in scorers:
        scorer.coverage.check()


@dataclass(frozen=True)
class ScoringResult:
    """What `write_scores` did.

    Attributes:
      total, kept: utterances in all, and those taken over from a stopped run.
      counts: what LMs knew and saw of all of them (see `rescore.workflows.seen`).
      used: the result of `use`.
    """

    total: int
    kept: int
    counts: Counter[str]
    used: Any


def write_scores(
    lists: Iterable[NbestList],
    scorers: list[LMColumn],
    out: Path,
    plan: dict[str, Any] | None,
    mix: dict[str, float] | None = None,
    use: Callable[[Iterator[NbestList]], Any] = lambda scored: sum(1 for _ in scored),
    split: Split | None = None,
    before: TextBefore | None = None,
    on_error: OnError = fail,
    unread: OnError = fail,
    count: int | None = None,
    said: Sequence[str] = (),
) -> ScoringResult:
    """Scores a stream of lists into `out/scores.jsonl.gz`; goes on where a stopped run of the same plan left off.

    Lists are read ahead and written behind the scoring by threads of their own.  Each batch is kept in a part of its
    own until all are there; half a batch is scored at a time where memory does not suffice for it, and so on.

    Args:
      plan: what is scored with what, by content; parts left by another plan are thrown away, and what differs is said;
        None if that cannot be known: no parts are taken over, by this run or from it.
      use: goes through the scored lists as they come, all of them.
      split: score the parts of this share alone, and write nothing but them.
      before: the text before each utterance that LMs see; the lists of a recording then come together.
      on_error: gets the error of an utterance that cannot be scored (`before` None), or written for want of memory.
      unread: what has got the errors of those that cannot be read.
      count: how many lists there are, for the time left; None: not known.
      said: lines on LMs and contexts, for who puts the shares together.
    Raises:
      ScoreError: no utterance at all.
      UsageError: as `Parts`.
    """
    parts = Parts(parts_inside(out), plan, split)
    work = _Scoring(parts, scorers, mix, before, on_error)
    groups = before.groups(lists) if before else _alone(lists)
    with Behind[Written, Any](lambda items: use(work.written(items))) as behind:
        for _ in progress(work.through(groups, behind.put), "scoring", count if split is None else None):
            pass
    total = work.total - work.unwritten.count
    if split is None:
        join_parts(parts.folder, work.number, out / SCORES_FILE)
        note_scored(out, plan)
        remove_parts(parts.folder)
    else:
        parts.finish({"parts": work.number, "utterances": total, "unread": said_by(unread), "said": list(said)})
    return ScoringResult(total, work.kept, work.counts, behind.result)


@dataclass
class _Scoring:
    """The scoring of parts, and what it has counted.

    Attributes:
      number: parts.
      total, kept, counts: as of `ScoringResult`.
    """

    parts: Parts
    scorers: list[LMColumn]
    mix: dict[str, float] | None
    before: TextBefore | None
    on_error: OnError
    number: int = 0
    total: int = 0
    kept: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.unwritten = CountedErrors(Skip() if isinstance(self.on_error, Skip) else fail)

    def through(self, groups: Iterable[list[NbestList]], put: Callable[[Written], None]) -> Iterator[NbestList]:
        """The lists of all parts of this run's share, as they are done; `put` gets each part."""
        for index, part in enumerate(ahead(_batches(groups))):
            self.number = index + 1
            if not self.parts.has(index):
                continue
            batch = list(chain.from_iterable(part))
            if self.parts.path(index).exists():
                self._take_over(index, batch)
                put((index, None))
            else:
                put((index, self._anew(index, part, batch)))
            yield from batch
        if not self.number:
            raise ScoreError("there is no utterance to score; the N-best source is empty")
        if self.parts.split is None:  # of shares all together are looked at
            for scorer in self.scorers:
                scorer.coverage.check()

    def _take_over(self, index: int, batch: list[NbestList]) -> None:
        note = read_note(self.parts.folder, index)
        note_skipped(note.skipped)
        self.counts += note.counts
        self.kept += len(batch) - len(note.skipped)
        self.total += len(batch) - len(note.skipped)
        for scorer in self.scorers:
            scorer.count(batch)

    def _anew(self, index: int, groups: list[list[NbestList]], batch: list[NbestList]) -> list[NbestList]:
        seen = self._seen()
        if self.before:
            found = self.before.score(groups, self._score)
        else:
            found = list(do_bites(self.parts, index, batch, self._score, utt_id_of, self.on_error))
        new = self._seen() - seen
        self.counts += new
        self.parts.note(index, Note(new, [] if self.before else said_by(self.on_error)))
        self.total += len(found)
        return found

    def _seen(self) -> Counter[str]:
        """What the LMs have seen so far."""
        views = {scorer.column: scorer.view for scorer in self.scorers}
        lms = {scorer.column: scorer.lm for scorer in self.scorers}
        return seen_counts((scorer.coverage for scorer in self.scorers), views) + said_counts(lms)

    def _score(self, batch: list[NbestList], contexts: Sequence[Context] | None = None) -> list[NbestList]:
        return score_batch(batch, self.scorers, self.mix, contexts)

    def written(self, items: Iterable[Written]) -> Iterator[NbestList]:
        """Writes the parts that are not there yet; gives the lists of all, behind the scoring."""
        for index, scored in items:
            yield from LISTS.read(self.parts.path(index)) if scored is None else self._write(index, scored)

    def _write(self, index: int, scored: list[NbestList]) -> list[NbestList]:
        """Writes a part; gives its lists but those that memory does not suffice to write, which its note names."""
        kept: list[NbestList] = []

        def lists() -> Iterator[NbestList]:
            for nbest in scored:
                kept.append(nbest)
                yield nbest

        def leave_out(error: RescoreError) -> None:
            self.unwritten(error)
            kept.pop()
            self.parts.note(index, read_note(self.parts.folder, index) + Note(skipped=[str(error)]))

        LISTS.write(self.parts.path(index), lists(), leave_out)
        return kept
