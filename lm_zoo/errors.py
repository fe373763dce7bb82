"""Errors of the LM zoo that a user can act on; the command line prints their message and exits with code 2."""

import re
from collections.abc import Iterable

MOST = 1500  # characters of a message
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def printable(message: object) -> str:
    """A message as any terminal takes it: a line of bounded length, without characters that UTF-8 cannot write."""
    text = visible(str(message))
    return text if len(text) <= MOST else f"{text[: MOST * 2 // 3]} ... {text[-MOST // 3 :]}"


def visible(text: str) -> str:
    """The text with escapes for control characters, by which an id could move a terminal's cursor or end a line, and
    for halves of surrogate pairs."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'X'?)` for the known name that is most like a wrong one; nothing if none is."""
    from difflib import get_close_matches

    found = get_close_matches(name, known, n=1)
    return f" (did you mean '{found[0]}'?)" if found else ""


class LMError(Exception):
    """Base: a model folder, a vocabulary, a text or a setting that does not fit."""

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(message))


class VocabError(LMError):
    """A vocabulary is malformed, does not fit the weights, or the text is in another case than the LM expects."""


class ModelError(LMError):
    """A model folder or checkpoint is incomplete, or its weights and config disagree."""


class TextError(LMError):
    """Training or test text that cannot be used: missing, empty, damaged."""


class WriteError(LMError):
    """A file or folder that cannot be written: no room, no permission, something else in its place, another run."""
