"""All that a report shows, read from the folder of `rescore run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_zoo.reading import read_json
from rescore.errors import FormatError
from rescore.files import file_identity, read_kaldi_text, require_folder
from rescore.tuning.score_table import ScoreTable, build_table
from rescore.types import NbestList, Weights, Words
from rescore.weights import MBR, decision_of, load_weights, total, with_words
from rescore.workflows.combine import SCORES_FILE, ranking, read_scores
from rescore.workflows.normalising import CER, Normaliser
from rescore.workflows.report.analyses import Outcome, outcomes
from rescore.workflows.run import FIRST, RUN_FILE, TABLE_FILE

# What the page needs of the two files.
MADE = ("version", "dev", "test", "lms", "ngram", "normalise", "baseline", "systems", "steps")
TABLE = ("rows", "how")
HOW = ("rate", "utterances", "words", "interval", "p_value", "signature")
ROW = ("name", "wer", "errors", "words", "ci", "p_values", "oracle_wer")
AGAIN = "start the same rescore run again"


@dataclass
class Gathered:
    """A run as the page needs it.

    Attributes:
      made: `run.json`.  table: `table.json`.
      systems: names, the first pass first.
      weights: of all systems but the first pass.
      refs: of test and dev.
      test: the lists of test, normalised as they were for tuning, or in characters.
      places: of each of their hypotheses in the list as it came, from 1; of those that became equal, the first one's.
      found: every utterance under all systems.
      written: for each system its hypotheses of test as they were written, which is what LMs have scored.
      dev_table, test_table: scores and errors of all hypotheses, with distances if a system decides by `mbr`.
    """

    folder: Path
    made: dict[str, Any]
    table: dict[str, Any]
    systems: list[str]
    weights: dict[str, Weights]
    refs: dict[str, dict[str, Words]]
    test: list[NbestList]
    places: list[list[int]]
    found: list[Outcome]
    written: list[dict[str, Words]]
    dev_table: ScoreTable
    test_table: ScoreTable

    @property
    def chosen(self) -> str:
        """The system decided for on dev, or where that has no LM the last one, so that there is something to see."""
        chosen = str(self.made["chosen"])
        return chosen if chosen not in (FIRST, self.baseline) else self.systems[-1]

    @property
    def baseline(self) -> str:
        return str(self.made["baseline"])

    @property
    def rate(self) -> str:
        """`WER` or `CER`."""
        return str(self.table["how"]["rate"])

    @property
    def unit(self) -> str:
        """What errors are counted of; what the figures call words."""
        return "character" if self.rate == CER else "word"

    def word_counts(self) -> Counter[str]:
        """How often each word occurs in the references of both sets."""
        return Counter(word for part in self.refs.values() for words in part.values() for word in words)


def gather(folder: Path) -> Gathered:
    """Reads a run.

    Raises:
      RescoreError: no such folder, a run that did not end, or a file of it that is damaged.
    """
    made, table = (_read(require_folder(folder) / name) for name in (RUN_FILE, TABLE_FILE))
    if "chosen" not in made:
        raise FormatError(folder / RUN_FILE, f"the run has not ended; {AGAIN}")
    _check_keys(folder / RUN_FILE, made, MADE)
    _check_table(folder / TABLE_FILE, table, [FIRST, *made["systems"]])
    normaliser = Normaliser(made["normalise"], table["how"]["rate"] == CER)
    refs = {part: normaliser.texts(read_kaldi_text(folder / "ref" / f"{part}.txt")) for part in ("test", "dev")}
    weights = {name: load_weights(folder / "weights" / f"{name}.json") for name in made["systems"]}
    distances = any(decision_of(each, name)[0] == MBR for name, each in weights.items())
    test, places, first = list[NbestList](), list[list[int]](), dict[str, Words]()
    for nbest in _lists(folder / "test", refs["test"]):
        test.append(normaliser.merge(nbest)[0])
        places.append(_places(nbest, test[-1], normaliser))
        first[nbest.utt_id] = nbest.hyps[0].words
    names = [FIRST, *made["systems"]]
    written = [first, *(read_kaldi_text(folder / "test" / name / "1best.txt") for name in names[1:])]
    return Gathered(
        folder=folder,
        made=made,
        table=table,
        systems=names,
        weights=weights,
        refs=refs,
        test=test,
        places=places,
        found=outcomes(refs["test"], [normaliser.texts(texts) for texts in written]),
        written=written,
        dev_table=build_table(normaliser.lists(_lists(folder / "dev", refs["dev"])), refs["dev"], distances),
        test_table=build_table(test, refs["test"], distances),
    )


def _lists(folder: Path, refs: Mapping[str, Words]) -> Iterator[NbestList]:
    """The lists of a set that have references: the others were counted when the run began."""
    return (nbest for nbest in read_scores(folder, f"reading {folder.name}") if nbest.utt_id in refs)


def _places(nbest: NbestList, merged: NbestList, normaliser: Normaliser) -> list[int]:
    """Where the hypotheses of `normaliser.merge` stood, those that became equal for the first time; from 1."""
    if len(merged.hyps) == len(nbest.hyps):
        return list(range(1, 1 + len(nbest.hyps)))
    places: dict[Words, int] = {}
    for place, hyp in enumerate(nbest.hyps, start=1):
        places.setdefault(normaliser.words(hyp.words), place)
    return list(places.values())


def _read(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
    except FileNotFoundError:
        raise FormatError(path, "no such file; expected a folder that rescore run has written") from None
    except (OSError, ValueError) as error:
        raise FormatError(path, f"cannot be read ({error}); {AGAIN}") from None
    if not isinstance(found, dict):
        raise FormatError(path, f"expected a JSON object; {AGAIN}")
    return found


def _check_table(path: Path, table: Mapping[str, Any], systems: Sequence[str]) -> None:
    _check_keys(path, table, TABLE)
    _check_keys(path, table["how"], HOW)
    for row in table["rows"]:
        _check_keys(path, row, ROW)
    _check_keys(path, {row["name"]: row for row in table["rows"]}, systems)


def _check_keys(path: Path, found: Mapping[str, Any], keys: Sequence[str]) -> None:
    missing = [key for key in keys if not isinstance(found, Mapping) or key not in found]
    if missing:
        raise FormatError(path, f"has no '{missing[0]}', which rescore run writes; {AGAIN}")


def shown_lists(run: Gathered, most: int) -> Iterator[dict[str, Any]]:
    """The `most` best hypotheses of each list under the chosen system, in the order that `rescore combine` gives them,
    with all scores; compact names for the page.

    `r` is the place in the list as it came, `w` the words, `e` the errors, `t` the total, `s` the scores.
    """
    weights, names = run.weights[run.chosen], run.test_table.names
    for place, nbest in enumerate(run.test):
        errors = run.test_table.errors[run.test_table.offsets[place] :]
        hyps = []
        for rank in ranking(nbest, weights)[:most]:
            scores = with_words(nbest.hyps[rank])
            hyps.append(
                {
                    "r": run.places[place][rank],
                    "w": " ".join(nbest.hyps[rank].words),
                    "e": int(errors[rank]),
                    "t": round(total(scores, weights.scales), 2),
                    "s": [round(scores[name], 2) for name in names],
                }
            )
        yield {"n": len(nbest.hyps), "h": hyps}


def identities(folder: Path, systems: Sequence[str]) -> list[dict[str, str]]:
    """Name and sha256 of what the figures follow from."""
    parts = [folder / part / SCORES_FILE for part in ("dev", "test")] + [
        folder / "ref" / f"{p}.txt" for p in ("dev", "test")
    ]
    weights = [folder / "weights" / f"{name}.json" for name in systems if name != FIRST]
    found = [(path, file_identity(path)) for path in (*parts, *weights)]
    return [{"file": str(path.relative_to(folder)), "sha256": identity["sha256"]} for path, identity in found]
