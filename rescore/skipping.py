"""What is done about an utterance that cannot be read or done: the work stops, or it is named, counted and left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rescore.console import remark
from rescore.errors import RescoreError

OnError = Callable[[RescoreError], None]
SOME_SKIPPED = 3  # the exit status of a command that left utterances out

_UNCOUNTED = "how many others are lost with it is not known"

_total = 0  # utterances that this process has left out
_more = False  # whether others are lost with them, uncounted


def fail(error: RescoreError) -> None:
    """The strict way: the first bad utterance ends it all."""
    raise error


def again(on_error: OnError) -> OnError:
    """For another reading of a source, whose errors are told in this one."""
    return (lambda error: None) if isinstance(on_error, Skip) else on_error


class Skip:
    """The lenient way: a remark for each bad utterance, and their number.

    Attributes:
      count: of all of them.
    """

    def __init__(self) -> None:
        self.count = 0
        self._said: list[str] = []

    def __call__(self, error: RescoreError) -> None:
        self.count += 1
        message = f"{error}; {_UNCOUNTED}" if error.uncounted else str(error)
        self._said.append(message)
        note_skipped([message])

    def take(self) -> list[str]:
        """The messages since the last time."""
        said, self._said = self._said, []
        return said


def note_skipped(messages: Iterable[str]) -> None:
    """Names what was left out, here or by other processes; the command's exit status will tell."""
    global _more
    for message in messages:
        count_skipped(1)
        _more = _more or message.endswith(_UNCOUNTED)
        remark(f"skipped: {message}")


def count_skipped(number: int) -> None:
    """As `note_skipped`, of utterances that have been named already."""
    global _total
    _total += number


def forget_skipped() -> None:
    """For the beginning of a command."""
    global _total, _more
    _total, _more = 0, False


def all_skipped() -> int:
    """Utterances left out since then."""
    return _total


def told_skipped() -> str:
    """What is said of them at the end of a command."""
    others = ", and with them an unknown number of others" if _more else ""
    return f"{_total} left out because of errors{others}; all else is done (exit status {SOME_SKIPPED})"


def said_by(on_error: OnError) -> list[str]:
    """The messages of what was left out since the last time."""
    return on_error.take() if isinstance(on_error, Skip) else []
