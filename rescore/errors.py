"""Errors that a user can act on.

Each message names the place (file, line or utterance), what was found, what was expected and what to do.  The command
line prints the message alone and exits with code 2; anything that is not a `RescoreError` is a bug and keeps its
traceback.
"""

from lm_zoo.errors import printable

# As in tools/requirements-k2.txt: k2's files for five Pythons share a tag, and pip takes any of them for the right one.
K2_INSTALL = (
    "for CPython 3.10 with torch 1.13.1, echo 'k2==1.23.4 --hash=sha256:"
    "1404589732fdb7f6f5bf62297a20dd73318b7b4f2e10dd52dc3d5b6669688a4c' > k2.txt && pip install --no-deps -r k2.txt; "
    "for others, a wheel of k2's own index for your torch"
)


class RescoreError(Exception):
    """Base of all errors caused by input or usage.

    Attributes:
      uncounted: others are lost with what it names, and nobody knows how many.
    """

    uncounted = False

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(message))


class FormatError(RescoreError):
    """A file is not what its format says: truncated, malformed, empty, or of another format."""

    def __init__(self, path: object, problem: str, line: "int | None" = None) -> None:
        where = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {problem}")


class ScoreError(RescoreError):
    """A score is missing, NaN or infinite, or a score column does not fit the lists."""


class ReferencesError(RescoreError):
    """References and hypotheses do not cover the same utterances."""


class WeightsError(RescoreError):
    """Weights name a score that is not there, or leave one out."""


class UsageError(RescoreError):
    """Options that contradict each other or name something unknown."""
