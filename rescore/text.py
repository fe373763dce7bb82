"""Turning a recogniser's words into the form that references and LMs have."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from lm_zoo.reading import joined_pieces, kaldi_fields
from rescore.errors import UsageError
from rescore.shown import Shown
from rescore.types import Words


@dataclass(frozen=True)
class TextNormalizer:
    """Leaves out words, splits words, deletes characters from them, and changes their case, in this order.

    PocketSphinx, for one, needs `TextNormalizer(case="upper", delete=".", split="-")`: `u.s.-made` gives `US MADE`.

    Args:
      case: "upper", "lower", or None to leave it.
      delete: characters to take out of words.
      split: characters at which a word falls into several; they vanish.
      pieces: what comes in are sentencepiece pieces, which are joined to words first: `words` only.
      drop: words that are left out, as they come, such as `[noise]`.
    Raises:
      UsageError: another `case`, or a character that stands in both `delete` and `split`.
    """

    case: str | None = None
    delete: str = ""
    split: str = ""
    pieces: bool = False
    drop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.case not in (None, "upper", "lower"):
            raise UsageError(f"unknown case '{self.case}'; there are: upper, lower")
        both = set(self.delete) & set(self.split)
        if both:
            raise UsageError(f"'{''.join(sorted(both))}' is to be deleted and to be split at; choose one")

    def __call__(self, word: str) -> Words:
        """The words that `word` becomes; none if nothing is left of it."""
        if word in self.drop:
            return ()
        word = word.translate(self._table)
        if self.case == "upper":
            word = word.upper()
        elif self.case == "lower":
            word = word.lower()
        return tuple(kaldi_fields(word))

    def words(self, words: Iterable[str]) -> Words:
        """The words that `words` become."""
        if self.is_identity:
            return tuple(words)
        joined = joined_pieces(words) if self.pieces else " ".join(words)
        return self(" ".join(word for word in kaldi_fields(joined) if word not in self.drop))

    @property
    def is_identity(self) -> bool:
        """Whether every word stays as it is."""
        return not (self.case or self.delete or self.split or self.pieces or self.drop)

    @cached_property
    def _table(self) -> dict[int, str]:
        return {ord(char): " " for char in self.split} | {ord(char): "" for char in self.delete}


def check_characters(delete: str, split: str) -> None:
    """Raises a UsageError if a word is given where single characters are wanted."""
    for text in (delete, split):
        if any(map(str.isalpha, text)):
            raise UsageError(
                f"'{text}' has letters, which would be taken from all words; to leave out whole words: --drop WORD"
            )


def short(value: object) -> str:
    """`repr(value)`, with the middle left out where it is long; of what is shown as a table, its type."""
    return f"a {type(value).__name__}" if isinstance(value, Shown) else _REPR.repr(value)


_REPR = reprlib.Repr()


_REPR.maxstring = _REPR.maxother = 80
