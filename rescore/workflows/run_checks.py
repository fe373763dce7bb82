"""What `rescore run` needs, looked at before anything is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rescore.console import remark, some_names
from rescore.errors import FormatError, ReferencesError, UsageError
from rescore.evaluation.wer import check_same_form
from rescore.files import read_kaldi_text
from rescore.formats import is_lattice, is_pipe
from rescore.formats.counting import lattices_with_progress, nbest_with_progress
from rescore.lattices.paths import best_path
from rescore.types import Words
from rescore.weights import NGRAM, default_scales
from rescore.workflows.columns import open_scorers
from rescore.workflows.normalising import Normaliser


@dataclass
class PartOfRun:
    """What a set was found to have.

    Attributes:
      refs: of its utterances, in its order.
      columns: names of its scores.
      words: how often each word occurs in first hypotheses or on best paths.
    """

    refs: dict[str, Words] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    words: Counter[str] = field(default_factory=Counter)


def check_part(
    source: str, part: str, refs: Mapping[str, Words], normaliser: Normaliser, common: bool = False
) -> PartOfRun:
    """Reads all of a set, and takes its references out of `refs`; with `common`, utterances without one do not count.

    Raises:
      UsageError: a pipe, which can be read but once.
      FormatError, ScoreError: a source that is not what its format says, a words table that is missing.
      ReferencesError: an utterance without a reference, or references in another letter case.
    """
    if is_pipe(source):
        raise UsageError(f"--{part} {source} is a pipe, which is read but once; write it to a file first")
    found, firsts = PartOfRun(), list[Words]()
    missing: list[str] = []
    for utt_id, words, columns in _firsts(source, part):
        found.columns = found.columns or columns
        if sorted(columns) != sorted(found.columns):
            has = f"{', '.join(columns)}, where others have {', '.join(found.columns)}"
            raise FormatError(source, f"utterance {utt_id} has the scores {has}; every utterance needs the same")
        found.words.update(words)
        if utt_id in refs:
            firsts.append(words)
            found.refs[utt_id] = refs[utt_id]
        else:
            missing.append(utt_id)
    total = len(missing) + len(found.refs)
    if missing and common and found.refs:
        remark(
            f"--{part}: {len(missing)} of {total} utterances have no reference and are left out: {some_names(missing)}"
        )
    elif missing:
        raise ReferencesError(
            f"--{part} {source}: {len(missing)} of {total} utterances have no reference ({some_names(missing)}); add "
            "them to --ref, or leave the utterances out (--utterances common)"
        )
    check_same_form(map(normaliser.words, found.refs.values()), map(normaliser.words, firsts))
    return found


def _firsts(source: str, part: str) -> Iterator[tuple[str, Words, list[str]]]:
    """Utterance id, first words and names of the scores of each list or lattice."""
    label = f"checking {part}"
    if not is_lattice(source):
        for nbest in nbest_with_progress(source, label):
            yield nbest.utt_id, nbest.hyps[0].words, list(nbest.hyps[0].scores)
        return
    for lattice in lattices_with_progress(source, label):
        words = best_path(lattice, default_scales(lattice.scores) or dict.fromkeys(lattice.scores, 1.0)).words
        yield lattice.utt_id, words, list(lattice.scores)


def read_references(files: Sequence[Path]) -> dict[str, Words]:
    """The references of all files; a ReferencesError if two have different words for an utterance."""
    refs: dict[str, Words] = {}
    for path in files:
        for utt_id, words in read_kaldi_text(path).items():
            if refs.setdefault(utt_id, words) != words:
                raise ReferencesError(f"{path}: utterance {utt_id} has another reference in another file of --ref")
    return refs


def check_lms(
    lms: Sequence[str], ngram: str | None, parts: Mapping[str, PartOfRun], max_unknown: float
) -> dict[str, list[str]]:
    """Checks the sets against each other and against the LMs, which are loaded.

    Returns:
      LM (or `ngram`) -> the columns that it will write.
    Raises:
      ReferencesError: an utterance that is in both sets.  UsageError: sets with other scores, a column twice.
      LMError: an LM that is not there; text in another case than its own, or that it mostly does not know.
    """
    dev, test = parts["dev"], parts["test"]
    both = [utt_id for utt_id in dev.refs if utt_id in test.refs]
    if both:
        raise ReferencesError(
            f"{len(both)} utterances are in --dev and in --test ({some_names(both)}); "
            "what is reported must not be tuned on"
        )
    if set(dev.columns) != set(test.columns):
        raise UsageError(
            f"--dev has the scores {', '.join(dev.columns)}, --test has {', '.join(test.columns)}; both need the same"
        )
    new: dict[str, list[str]] = {}
    for scorer in open_scorers(lms, ngram, max_unknown=max_unknown):
        for column in scorer.columns:
            if column in dev.columns:
                advice = "leave --ngram out" if column == NGRAM else "name the LM: --lm NEWNAME=NAME|DIR"
                raise UsageError(f"there is a score '{column}' already; {advice}")
        for part, checked in parts.items():
            scorer.coverage.add(checked.words, f"LM '{scorer.column}', --{part}")
        scorer.coverage.check()
        new[scorer.column] = scorer.columns
    order = [NGRAM, *new] if NGRAM in new else [*new]
    return {name: new[name] for name in order}


def say_unused(refs: Mapping[str, Words], parts: Mapping[str, PartOfRun]) -> None:
    """A remark on references that neither set has an utterance for."""
    unused = [utt_id for utt_id in refs if not any(utt_id in part.refs for part in parts.values())]
    if unused:
        remark(f"{len(unused)} references have no utterance in --dev or --test and are not used: {some_names(unused)}")
