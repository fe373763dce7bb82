"""Normalisers of text by name: what makes a reference and a hypothesis comparable that are written differently."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache

from lm_zoo.errors import TextError
from lm_zoo.reading import SPECIAL
from lm_zoo.text.spoken import VULGAR, spoken

NORMALISERS = ("none", "basic", "whisper-en", "librispeech")

_APOSTROPHES = "'\u2019\u02bc"
_LONELY = re.compile(r"(?<![^\s'])'|'(?![^\s'])")  # apostrophes that are not inside a word


def normalise(name: str) -> Callable[[str], str]:
    """The normaliser of that name, from a text to a text of words with single blanks between them.

    - `none`: the text as it is.
    - `basic`: any language; lower case, no punctuation but apostrophes inside words.
    - `whisper-en`: English; what Whisper's results are given in (package whisper-normalizer).
    - `librispeech`: English; upper case, titles and numbers in words (see `lm_zoo.text.spoken`).

    Words like `<unk>` and `[NOISE]`, and sentencepiece's sign of an unknown one, stay as they are in all but
    `whisper-en`, which drops them.

    Raises:
      TextError: there is none of that name.
      ImportError: its package is not installed.
    """
    if name == "none":
        return str
    if name == "basic":
        return _basic
    if name == "librispeech":
        return _librispeech
    if name == "whisper-en":
        return _whisper()
    raise TextError(f"no normaliser '{name}'; there are: {', '.join(NORMALISERS)}")


def _basic(text: str) -> str:
    return " ".join(part for word in text.split() for part in basic_words(word))


def basic_words(word: str) -> list[str]:
    """What `basic` makes of one word."""
    if SPECIAL.fullmatch(word):
        return [word]
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", VULGAR.sub(" ", word)).lower())
    plain = "".join(map(_basic_character, text))
    return _LONELY.sub(" ", plain).split()


def _basic_character(character: str) -> str:
    """Letters, marks and digits stay; what is invisible vanishes, all else is a blank."""
    if character in _APOSTROPHES:
        return "'"
    category = unicodedata.category(character)
    if category == "Cf":
        return ""
    return character if category[0] in "LMN" else " "


def _librispeech(text: str) -> str:
    return " ".join(part for parts in spoken(text.split()) for part in parts)


@cache
def _whisper() -> Callable[[str], str]:
    from whisper_normalizer.english import EnglishTextNormalizer

    english = EnglishTextNormalizer()
    return lambda text: " ".join(english(text).split())
