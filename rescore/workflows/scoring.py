"""Scoring N-best lists with LMs: one new column a model, many lists at a time, resumable.

Scoring never sees a reference.  A column is the natural-log probability of the whole sentence, its end included.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from lm_zoo.base import Context, LanguageModel
from lm_zoo.hub import hub_name
from lm_zoo.inference.memory import found_to_fit
from lm_zoo.inference.viewed import Reader, view_of
from lm_zoo.registry import foreign
from lm_zoo.text.coverage import MOST_UNKNOWN, Coverage
from lm_zoo.text.view import View
from rescore.console import progress, remark
from rescore.errors import ScoreError, UsageError
from rescore.formats import read_nbest, write_nbest
from rescore.text import short
from rescore.types import Hypothesis, NbestList, Words
from rescore.workers import keeps_loaded
from rescore.workflows.combine import SCORES_FILE
from rescore.workflows.context import TextBefore
from rescore.workflows.parts import Parts, Split, join_parts
from rescore.workflows.threads import Behind, ahead

BATCH_WORDS = 60_000
_KEPT: dict[tuple[str, ...], LanguageModel] = {}  # LMs of a worker that scores one share after the other
NGRAM = "ngram"  # the column of --ngram


@dataclass
class LMColumn:
    """An LM and the name of its column.

    Attributes:
      lm: anything of the zoo.
      most_unknown: the largest share of hypothesis words that may be unknown to it.
      exact: it sees the words as they are written, and refuses those of another case than its text's.
      view: what it sees of written words.
      coverage: the words counted so far, and those of them that the LM does not know.
    """

    column: str
    lm: LanguageModel
    most_unknown: float = MOST_UNKNOWN
    exact: bool = False
    view: View = field(init=False)
    coverage: Coverage = field(init=False)
    _short_of_memory: bool = False

    def __post_init__(self) -> None:
        self.view = view_of(self.lm, self.exact)
        self.coverage = Coverage(Reader(self.lm, self.view), self.column, self.most_unknown)

    @property
    def is_pseudo(self) -> bool:
        """Whether the column is a pseudo-log-likelihood (masked LMs): of use for N-best lists alone."""
        return self.lm.pseudo_likelihood

    @property
    def columns(self) -> list[str]:
        """The columns that this LM writes: its own, and `NAME-uncertainty` if it gives one."""
        return [self.column, f"{self.column}-uncertainty"][: 1 + self.lm.with_uncertainty]

    def count(self, lists: list[NbestList]) -> None:
        """Counts the words of lists that are scored, or were by a run that was stopped.

        Raises:
          VocabError: words that do not suit the LM (see `lm_zoo.text.coverage`).
        """

        def place(word: str) -> str:
            utt_id = next(nbest.utt_id for nbest in lists if any(word in hyp.words for hyp in nbest.hyps))
            return f"LM '{self.column}', utterance {utt_id}"

        words = chain.from_iterable(hyp.words for nbest in lists for hyp in nbest.hyps)
        self.coverage.add(Counter(words), place)
        for nbest in lists:
            for hyp in nbest.hyps:
                self.view.count(hyp.words)

    def _seen(
        self, lists: Sequence[NbestList], contexts: Sequence[Context] | None
    ) -> tuple[list[Words], list[Context] | None]:
        """What the LM sees of the hypotheses of all lists, and of the text before each."""
        sentences = [self.view.words(hyp.words) for nbest in lists for hyp in nbest.hyps]
        if contexts is None:
            return sentences, None
        seen = [tuple(filter(None, map(self.view.words, context))) for context in contexts]
        return sentences, [context for nbest, context in zip(lists, seen, strict=True) for _ in nbest.hyps]

    def word_columns(
        self, lists: list[NbestList], contexts: Sequence[Context] | None = None
    ) -> dict[str, list[list[float]]]:
        """The values a word (the last one is the sentence end) of every hypothesis of the lists, by column.

        Args:
          contexts: `(lists,)`, the text before each.
        """
        sentences, before = self._seen(lists, contexts)
        if len(self.columns) > 1:
            scores = dict(zip(self.columns, self.lm.score_with_uncertainty(sentences, before), strict=True))
        else:
            scores = {self.column: self.lm.score_hypotheses(sentences, None, before)}
            self._say_what_fits()
        written = [hyp.words for nbest in lists for hyp in nbest.hyps]
        return {
            name: [self.view.fold(words, row) for words, row in zip(written, rows, strict=True)]
            for name, rows in scores.items()
        }

    def _say_what_fits(self) -> None:
        if not self._short_of_memory and (fits := found_to_fit(self.lm)):
            self._short_of_memory = True
            remark(f"{self.column}: memory did not suffice; going on with {fits} prefixes or fewer at once")

    def columns_of(self, lists: list[NbestList], contexts: Sequence[Context] | None = None) -> dict[str, list[float]]:
        """The values of every hypothesis of the lists, by column; contexts as in `word_columns`."""
        if len(self.columns) > 1:
            by_word = self.word_columns(lists, contexts)
            return {column: [sum(scores) for scores in rows] for column, rows in by_word.items()}
        sentences, before = self._seen(lists, contexts)
        scores = {self.column: self.lm.score_sentences(sentences, None, before)}
        self._say_what_fits()
        return scores

    @property
    def has_limit(self) -> bool:
        """Whether sentences may be too long for the LM."""
        return self.lm.positions is not None

    def check_lengths(self, nbest: NbestList) -> None:
        """Refuses a hypothesis that is too long for an LM that has a limit.

        Raises:
          LMError: names the utterance and the hypothesis, its length and the limit.
        """
        for rank, hyp in enumerate(nbest.hyps, start=1):
            self.lm.check_words(self.view.words(hyp.words), f"utterance {nbest.utt_id}: hypothesis {rank}")


def open_scorers(
    names: Iterable[str],
    ngram: str | None,
    dtype: str = "float32",
    device: str = "cpu",
    max_unknown: float = MOST_UNKNOWN,
    exact: bool = False,
) -> list[LMColumn]:
    """Loads the LMs of `--lm [COLUMN=]NAME|DIR` and `--ngram FILE` (column `ngram`).

    Args:
      dtype: of their products.
      device: where they are evaluated, "cpu", "cuda" or "cuda:N".
      max_unknown: the largest share of the words scored that an LM may not know.
      exact: LMs see words as they are written.
    Raises:
      ModelError: a device that is not there.
      UsageError: two LMs with the same column name, or none at all.
    """
    from lm_zoo.inference.devices import find_device
    from lm_zoo.registry import load, load_ngram

    wanted: list[tuple[str, str, Callable[[str], LanguageModel]]]
    wanted = [(*column_of(name), partial(load, dtype=dtype, device=device)) for name in names]
    if ngram is not None:
        wanted.append((NGRAM, ngram, load_ngram))
    if not wanted:
        raise UsageError("no LM given; use --lm NAME|DIR or --ngram FILE (rescore lms lists the names)")
    columns = [column for column, _, _ in wanted]
    for column in columns:
        if columns.count(column) > 1:
            raise UsageError(f"two LMs would write the column '{column}'; name one of them: --lm NEWNAME=FOLDER")
    find_device(device)  # before anything is loaded

    def opened(column: str, name: str, loader: Callable[[str], LanguageModel]) -> LMColumn:
        key = (name, str(loader is load_ngram), dtype, device)
        if key in _KEPT:
            return LMColumn(column, _KEPT[key], max_unknown, exact)
        scorer = prepared_scorer(column, loader(name), dtype, device, max_unknown, exact)
        if keeps_loaded():
            _KEPT[key] = scorer.lm
        return scorer

    return [opened(*one) for one in wanted]


def prepared_scorer(
    column: str, lm: LanguageModel, dtype: str, device: str | None, max_unknown: float, exact: bool = False
) -> LMColumn:
    """An LM ready to score; arguments as of `open_scorers`, `device` None: where the LM is."""
    from lm_zoo.inference.devices import find_device
    from lm_zoo.inference.precision import ready

    if device is not None:
        place = find_device(device)
        if dtype == "int8" and place.type != "cpu":
            raise UsageError("--dtype int8 is for the CPU; take bfloat16 on a GPU")
        lm.move_to(place)
    return LMColumn(column, ready(lm, dtype), max_unknown, exact)


def identities(names: Iterable[str], ngram: str | None) -> dict[str, str]:
    """Column -> identity by content of the LMs of `open_scorers`."""
    from lm_zoo.identity import lm_identity

    wanted = dict(map(column_of, names)) | ({} if ngram is None else {NGRAM: ngram})
    return {column: lm_identity(name) for column, name in wanted.items()}


def trained_on_sentences(names: Iterable[str]) -> list[str]:
    """The columns of the LMs that have never seen text before a sentence."""
    from lm_zoo.registry import of_sentences

    return [column for column, name in map(column_of, names) if of_sentences(name)]


def column_of(option: str) -> tuple[str, str]:
    """`COLUMN=NAME`, or the last part of the name without its suffixes, without `hf:`, `module:` and `?OPTIONS`.

    Raises:
      ModelError: an option that a name with `hf:` does not have.
    """
    column, equals, name = option.partition("=")
    if equals and column and "/" not in column and "?" not in column:
        return column, name
    if (other := foreign(option)) is not None:
        return other.name, option
    if (hub := hub_name(option)) is not None:
        return hub.column, option
    path = option.partition("?")[0]
    base = os.path.basename(os.path.normpath(path))
    for suffix in (".gz", ".arpa", ".bin", ".binary", ".klm", ".mmap"):
        base = base.removesuffix(suffix)
    return base, option


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
      ScoreError: a column that the lists already have, or a score that is not finite.
    """
    columns = [column for scorer in scorers for column in scorer.columns] + (["mix"] if mix else [])
    for nbest in batch:
        _check_free(nbest, columns)
    for scorer in scorers:
        scorer.count(batch)
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
    return replace(hyp, scores={**hyp.scores, **scores})


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
                if words != first:
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
                    "give the new column another name: --lm NEWNAME=NAME|DIR"
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
    """What `write_scores` did: utterances in all, those taken over from a stopped run, the result of `use`."""

    total: int
    kept: int
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
) -> ScoringResult:
    """Scores a stream of lists into `out/scores.jsonl.gz`; goes on where a stopped run of the same plan left off.

    Lists are read ahead and written behind the scoring by threads of their own.  Each batch is kept in a part of its
    own until all are there.

    Args:
      plan: what is scored with what, by content; parts left by another plan are thrown away, and what differs is said;
        None if that cannot be known: no parts are taken over, by this run or from it.
      use: goes through the scored lists as they come, all of them.
      split: score the parts of this share alone, and write nothing but them.
      before: the text before each utterance that LMs see; the lists of a recording then come together.
    Raises:
      ScoreError: no utterance at all.
      UsageError: as `Parts`.
    """
    parts = Parts(out, plan, split)
    kept = number = 0

    def score(batch: list[NbestList], contexts: Sequence[Context] | None = None) -> list[NbestList]:
        return score_batch(batch, scorers, mix, contexts)

    def scored() -> Iterator[NbestList]:
        nonlocal kept, number
        for number, groups in enumerate(ahead(_batches(before.groups(lists) if before else _alone(lists))), start=1):
            index, batch = number - 1, list(chain.from_iterable(groups))
            if not parts.has(index):
                continue
            if parts.path(index).exists():
                kept += len(batch)
                for scorer in scorers:
                    scorer.count(batch)
                behind.put((parts.path(index), None))
            else:
                behind.put((parts.path(index), before.score(groups, score) if before else score(batch)))
            yield from batch
        if not number:
            raise ScoreError("there is no utterance to score; the N-best source is empty")
        for scorer in scorers:
            scorer.coverage.check()

    behind: Behind[tuple[Path, list[NbestList] | None], Any] = Behind(lambda items: use(_through_parts(items)))
    with behind:
        total = sum(1 for _ in progress(scored(), "scoring"))
    if split is None:
        join_parts(out, number, out / SCORES_FILE)
    else:
        parts.finish({"parts": number, "utterances": total, "words": _counted(scorers)})
    return ScoringResult(total, kept, behind.result)


def _counted(scorers: list[LMColumn]) -> dict[str, list[int]]:
    return {scorer.column: [scorer.coverage.words, scorer.coverage.unknown] for scorer in scorers}


def _through_parts(items: Iterable[tuple[Path, list[NbestList] | None]]) -> Iterator[NbestList]:
    """Writes the parts that are not there yet; gives the lists of all."""
    for part, scored in items:
        if scored is None:
            yield from read_nbest(f"jsonl:{part}")
        else:
            write_nbest(f"jsonl:{part}", scored)
            yield from scored
