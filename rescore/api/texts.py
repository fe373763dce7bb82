"""Where texts come from: files, mappings of utterance ids to words, N-best lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rescore.api.lists import Lists, checked_id, lists_of, path_of, words_of
from rescore.errors import ReferencesError, ScoreError, UsageError
from rescore.files import read_kaldi_text
from rescore.types import Words

Texts = str | Path | Mapping[str, Iterable[str]] | Lists  # Kaldi text, words by utterance id, or lists
OTHERS = "; or words by utterance id: {'utt': ('HE', 'SAID')}; or a file of Kaldi text"


def read_text(path: str | Path, side: str = "ref") -> dict[str, Words]:
    """Reads Kaldi `text` (`utt-id word word ...` a line) or icefall's `recogs-*.txt`: words by utterance id.

    Args:
      side: of `recogs-*.txt`, "ref" or "hyp".
    Raises:
      RescoreError: no such file, or not of this form; another side.
    """
    if side not in ("ref", "hyp"):
        raise UsageError(f"side is {side!r}, expected 'ref' or 'hyp'")
    return read_kaldi_text(path_of(path), side)


def references(source: Texts) -> dict[str, Words]:
    """The references that `source` names, or those in N-best lists.

    Raises:
      ReferencesError: an utterance of the lists has none.
      ScoreError: an utterance of the lists comes twice.
      UsageError: a string where words are wanted, an id that is no string, or nothing that has references.
    """
    if isinstance(source, (str, Path)):
        return read_kaldi_text(source)
    if isinstance(source, Mapping):
        return _words_by_id(source, "reference")
    refs: dict[str, Words] = {}
    for nbest in lists_of(source, OTHERS):
        if nbest.ref is None:
            raise ReferencesError(f"utterance {nbest.utt_id}: the lists have no reference for it; give a text file")
        if nbest.utt_id in refs:
            raise ScoreError(f"utterance {nbest.utt_id} occurs a second time in the lists")
        refs[nbest.utt_id] = words_of(nbest.ref, f"the reference of utterance {nbest.utt_id}")
    return refs


def hypotheses(source: Texts) -> dict[str, Words]:
    """The words that `source` names; of N-best lists those of the first hypotheses.  Raises as `references`."""
    from rescore.workflows.compare import first_hypotheses, read_hypotheses

    if isinstance(source, (str, Path)):
        return read_hypotheses(str(source))
    if isinstance(source, Mapping):
        return _words_by_id(source, "hypothesis")
    return first_hypotheses(lists_of(source, OTHERS))


def _words_by_id(source: Mapping[str, Iterable[str]], what: str) -> dict[str, Words]:
    return {
        checked_id(utt_id): words_of(words, f"the {what} of utterance {utt_id}") for utt_id, words in source.items()
    }
