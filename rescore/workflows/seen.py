"""What LMs knew and saw of a text, as plain counts that can be summed over processes, and said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lm_zoo.base import LanguageModel
from lm_zoo.errors import VocabError
from lm_zoo.text.coverage import Counted, Coverage, said
from lm_zoo.text.view import View
from rescore.weights import NGRAM

PATH_WORDS, UNKNOWN_WORDS = "path_words", "unknown_words"  # counts of words on best paths; those an n-gram knows not
_KINDS = ("words", "unknown", "texts", "changed", "rule", "said", "counted")  # of the names of counts, `KIND<tab>LM`


@dataclass
class TextCounts:
    """Running words, and unknown ones among them."""

    words: int
    unknown: int


def seen_counts(coverages: Iterable[Coverage], views: Mapping[str, View]) -> Counter[str]:
    """Words, unknown words, texts and changed texts of each LM."""
    counts: Counter[str] = Counter()
    for coverage in coverages:
        counts[f"words\t{coverage.name}"] = coverage.words
        counts[f"unknown\t{coverage.name}"] = coverage.unknown
    for name, view in views.items():
        counts[f"texts\t{name}"] = view.texts
        counts[f"changed\t{name}"] = view.changed
        counts.update({f"rule\t{name}\t{rule}": count for rule, count in view.rules.items()})
    return counts


def said_counts(lms: Mapping[str, LanguageModel]) -> Counter[str]:
    """What LMs, by name, have counted, and what others have to say, as n-grams of unknown words: 1 for each line."""
    said_of = {name: lm.said() for name, lm in lms.items() if not lm.counted()}
    counts = Counter(f"said\t{name}\t{line}" for name, line in said_of.items() if line)
    counts.update(
        {f"counted\t{name}\t{what}": count for name, lm in lms.items() for what, count in lm.counted().items()}
    )
    return counts


def said_lines(counts: Counter[str]) -> Iterator[str]:
    """The lines of `said_counts`."""
    for key in counts:
        kind, _, rest = key.partition("\t")
        if kind in ("said", "counted") and counts[key]:
            yield rest.replace("\t", ": " if kind == "said" else f": {counts[key]} ", 1)


def check_all_unknown(counts: Counter[str], most: float) -> None:
    """Looks at the share of unknown words of all shares of a work together; raises as `check_unknown`."""
    names = [key.partition("\t")[2] for key in counts if key.startswith("words\t")]
    found = {name: TextCounts(counts[f"words\t{name}"], counts[f"unknown\t{name}"]) for name in names}
    if PATH_WORDS in counts:
        found[NGRAM] = TextCounts(counts[PATH_WORDS], counts[UNKNOWN_WORDS])
    for name, words in found.items():
        check_unknown(name, words, most)


def check_unknown(name: str, found: Counted, most: float) -> None:
    """Of words that several processes have counted, as `Coverage.check` of one.

    Raises:
      VocabError: more than the share `most` is unknown.
    """
    if found.unknown > most * found.words:
        raise VocabError(
            f"{name}: {said(found)} to the LM; more than {most:.0%} are refused, as text of another language, spelling "
            "or case gets meaningless scores; bring the text into the LM's form, or run the shares again with "
            "--max-unknown 1: what is done is taken over"
        )


def is_seen(name: str) -> bool:
    """Whether a count is one of `seen_counts`."""
    return name.partition("\t")[0] in _KINDS and "\t" in name


def seen_lines(counts: Counter[str], words: str, texts: str, all_known: bool = True) -> Iterator[str]:
    """What is said of the counts of each LM.

    Args:
      words, texts: what is counted.
      all_known: of an LM that knows all words, too.
    """
    for key in counts:
        kind, _, name = key.partition("\t")
        if kind != "words" or not name:
            continue
        found = TextCounts(counts[key], counts[f"unknown\t{name}"])
        if found.unknown or all_known:
            yield f"{name}: {said(found, words)}, scored as <unk>"
        view = View(None)
        view.texts, view.changed = counts[f"texts\t{name}"], counts[f"changed\t{name}"]
        prefix = f"rule\t{name}\t"
        view.rules.update({key.removeprefix(prefix): counts[key] for key in counts if key.startswith(prefix)})
        if shown := view.said(texts):
            yield f"{name}: {shown}"
    yield from said_lines(counts)
