"""The LMs of a command, each with the column that it writes; a column is the natural-log probability of a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from lm_zoo.base import Context, LanguageModel, WordLM, one_a_word
from lm_zoo.deadline import in_time
from lm_zoo.hub import hub_name
from lm_zoo.inference.limits import FITS
from lm_zoo.inference.viewed import Reader, view_of
from lm_zoo.registry import foreign
from lm_zoo.text.coverage import MOST_UNKNOWN, Coverage
from lm_zoo.text.view import View
from rescore.console import remark
from rescore.errors import UsageError
from rescore.file_names import base_name, split_name
from rescore.types import NbestList, Words
from rescore.weights import NGRAM, UNCERTAINTY, WORDS_COLUMN
from rescore.workers import kept

if TYPE_CHECKING:
    import torch


class NotLoaded(LanguageModel):
    """Stands for an LM of which all lists have the scores already; it is asked for nothing."""

    def __init__(self, with_uncertainty: bool) -> None:
        self.with_uncertainty = with_uncertainty


@dataclass
class LMColumn:
    """An LM and the name of its column.

    Attributes:
      lm: anything of the zoo.
      most_unknown: the largest share of hypothesis words that may be unknown to it.
      exact: it sees the words as they are written, and refuses those of another case than its text's.
      reused: lists may have its scores already; of those that have, it is not evaluated.
      view: what it sees of written words.
      coverage: the words counted so far, and those of them that the LM does not know.
    """

    column: str
    lm: LanguageModel
    most_unknown: float = MOST_UNKNOWN
    exact: bool = False
    reused: bool = False
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
        return [self.column, f"{self.column}{UNCERTAINTY}"][: 1 + self.lm.with_uncertainty]

    def count(self, lists: list[NbestList]) -> None:
        """Counts the words of lists that are scored, or were by a run that was stopped; none of an LM not loaded.

        Raises:
          VocabError: words that do not suit the LM (see `lm_zoo.text.coverage`).
        """
        if isinstance(self.lm, NotLoaded):
            return

        def place(word: str) -> str:
            utt_id = next(nbest.utt_id for nbest in lists if any(word in hyp.words for hyp in nbest.hyps))
            return f"LM '{self.column}', utterance {utt_id}"

        words = chain.from_iterable(hyp.words for nbest in lists for hyp in nbest.hyps)
        self.coverage.add(Counter(words), place)
        for nbest in lists:
            for hyp in in_time(nbest.hyps):
                self.view.count(hyp.words)

    def _seen(
        self, lists: Sequence[NbestList], contexts: Sequence[Context] | None
    ) -> tuple[list[Words], list[Context] | None]:
        """What the LM sees of the hypotheses of all lists, and of the text before each."""
        sentences = [self.view.words(hyp.words) for nbest in lists for hyp in in_time(nbest.hyps)]
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
            given = dict(zip(self.columns, self.lm.score_with_uncertainty(sentences, before), strict=True))
        else:
            given = {self.column: self.lm.score_hypotheses(sentences, None, before)}
            self._say_what_fits()
        scores = {name: one_a_word(self.lm, sentences, rows) for name, rows in given.items()}
        written = [hyp.words for nbest in lists for hyp in nbest.hyps]
        return {
            name: [self.view.fold(words, row) for words, row in zip(written, rows, strict=True)]
            for name, rows in scores.items()
        }

    def _say_what_fits(self) -> None:
        if not self._short_of_memory and (fits := FITS.get(self.lm)):
            self._short_of_memory = True
            remark(f"{self.column}: memory did not suffice; going on with {fits} prefixes or fewer at once")

    def columns_of(self, lists: list[NbestList], contexts: Sequence[Context] | None = None) -> dict[str, list[float]]:
        """The values of every hypothesis of the lists, by column; contexts as in `word_columns`."""
        hyps = [hyp for nbest in lists for hyp in nbest.hyps]
        if self.reused and all(column in hyp.scores for hyp in hyps for column in self.columns):
            return {column: [hyp.scores[column] for hyp in hyps] for column in self.columns}
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
    there: Mapping[str, NotLoaded] | None = None,
) -> list[LMColumn]:
    """Loads the LMs of `--lm [COLUMN=]NAME|DIR` and `--ngram FILE` (column `ngram`).

    Args:
      dtype: of their products.
      device: where they are evaluated, "cpu", "cuda" or "cuda:N".
      max_unknown: the largest share of the words scored that an LM may not know.
      exact: LMs see words as they are written.
      there: by column, what stands for LMs that need not be loaded.
    Raises:
      ModelError: a device that is not there.
      UsageError: as `check_columns`; no LM at all.
    """
    from lm_zoo.registry import load, load_ngram

    wanted: list[tuple[str, str, Callable[[str], LanguageModel]]]
    wanted = [(*column_of(name), partial(load, dtype=dtype, device=device)) for name in names]
    if ngram is not None:
        wanted.append((NGRAM, ngram, load_ngram))
    if not wanted:
        raise UsageError("no LM given; use --lm NAME|DIR or --ngram FILE (rescore lms lists the names)")
    check_columns([column for column, _, _ in wanted])
    if device != "cpu":
        from lm_zoo.inference.devices import find_device

        find_device(device)  # before anything is loaded

    def opened(column: str, name: str, loader: Callable[[str], LanguageModel]) -> LMColumn:
        if there and column in there:
            return LMColumn(column, there[column], reused=True)

        def load_ready() -> LanguageModel:
            return prepared_scorer(column, loader(name), dtype, device, max_unknown, exact).lm

        return LMColumn(column, kept((name, loader is load_ngram, dtype, device), load_ready), max_unknown, exact)

    return [opened(*one) for one in wanted]


def check_columns(columns: Sequence[str]) -> None:
    """Refuses columns that would take each other's place, or that of the words.

    Raises:
      UsageError: names the column.
    """
    otherwise = "name an LM otherwise: --lm NEWNAME=FOLDER (in Python {'NEWNAME': lm})"
    for column in columns:
        if column == WORDS_COLUMN:
            raise UsageError(f"the column '{column}' is the number of words; {otherwise}")
        if columns.count(column) > 1:
            raise UsageError(f"the column '{column}' would be written twice; {otherwise}")


def prepared_scorer(
    column: str,
    lm: LanguageModel,
    dtype: str | None,
    device: str | torch.device | None,
    max_unknown: float,
    exact: bool = False,
) -> LMColumn:
    """An LM ready to score; arguments as of `open_scorers`, `dtype` and `device` None: as the LM is, where it is."""
    from lm_zoo.inference.precision import ready

    if device is not None and not (isinstance(lm, WordLM) and str(device) == "cpu"):  # n-grams need no torch
        lm.move_to(place_for(device, dtype or lm.products))
    made = ready(lm, dtype)
    if made.is_slow():
        remark(
            f"{column}: in bfloat16, in which this processor is many times slower than in float32 (twice the memory)"
        )
    return LMColumn(column, made, max_unknown, exact)


def place_for(device: str | torch.device, dtype: str) -> torch.device:
    """Where an LM with products in `dtype` goes.

    Raises:
      ModelError: no such device.  UsageError: it has no such products.
    """
    from lm_zoo.inference.devices import find_device

    place = find_device(device)
    if dtype == "int8" and place.type != "cpu":
        raise UsageError("dtype int8 is for the CPU; take bfloat16 on a GPU")
    return place


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
    column, name = split_name(option)
    if column is not None:
        return column, name
    if (other := foreign(option)) is not None:
        return other.name, option
    if (hub := hub_name(option)) is not None:
        return hub.column, option
    path = option.partition("?")[0]
    base = base_name(path)
    for suffix in (".gz", ".xz", ".arpa", ".bin", ".binary", ".klm", ".mmap"):
        base = base.removesuffix(suffix)
    return base, option
