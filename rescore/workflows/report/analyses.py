"""What a report counts: errors of each utterance, by length, by N, by frequency; words fixed and broken; scales."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rescore.console import progress
from rescore.errors import WeightsError
from rescore.evaluation.wer import GAP, ErrorCounts, align, count_errors
from rescore.tuning.decisions import Decider, decider_of
from rescore.tuning.score_table import ScoreTable
from rescore.types import Weights, Words
from rescore.weights import no_score
from rescore.workflows.compare import p_text
from rescore.workflows.normalising import CER

SIGNIFICANT = 0.05
LENGTHS = ((0, 5), (6, 10), (11, 20), (21, 40), (41, None))  # reference words
FREQUENCIES = ((1, 1), (2, 3), (4, 10), (11, 100), (101, None))  # occurrences in all references
STEPS = 41  # points of a curve over a scale
FEW_WORDS = 2_000
LOOSE = 1.05  # cross-validated WER over that on dev


@dataclass
class Outcome:
    """One utterance under all systems.

    Attributes:
      texts: the different hypotheses of the systems.
      which: for each system, the index of its hypothesis.
      counts, ops: errors of each hypothesis, and its alignment: `=` right, `s`, `d`, `i`.
    """

    utt_id: str
    ref: Words
    texts: list[Words]
    which: list[int]
    counts: list[ErrorCounts]
    ops: list[str]

    def errors(self, system: int) -> int:
        return self.counts[self.which[system]].errors


def outcomes(refs: Mapping[str, Words], systems: Sequence[Mapping[str, Words]]) -> list[Outcome]:
    """All utterances; `systems` have the words of each utterance of `refs`."""
    made = []
    for utt_id, ref in refs.items():
        texts = list(dict.fromkeys(hyps[utt_id] for hyps in systems))
        which = [texts.index(hyps[utt_id]) for hyps in systems]
        counts = [count_errors(ref, words) for words in texts]
        made.append(Outcome(utt_id, ref, texts, which, counts, [operations(ref, words) for words in texts]))
    return made


def operations(ref: Words, hyp: Words) -> str:
    """A letter for each pair of the alignment: `=` right, `s` substituted, `d` deleted, `i` inserted."""
    if ref == hyp:
        return "=" * len(ref)
    return "".join(
        "i" if one == GAP else "d" if other == GAP else "=" if one == other else "s" for one, other in align(ref, hyp)
    )


# -- in words ----------------------------------------------------------------------------------------------------------


def verdict(row: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    """What the difference between two rows of a table (`rescore.workflows.compare.to_json`) means, in words."""
    if row["name"] == base["name"]:
        return "what the LMs are compared with"
    p_value, difference = row["p_values"][base["name"]], row["errors"] - base["errors"]
    if not difference:
        return f"no difference: as many errors as {base['name']}"
    share = f" ({abs(100 * difference / base['errors']):.1f} %)" if base["errors"] else ""
    much = f"{abs(difference)} {'fewer' if difference < 0 else 'more'} errors{share} than {base['name']}"
    if p_value >= SIGNIFICANT:
        return f"may be chance: {much}, p {p_text(p_value)}"
    p_said = p_text(p_value) if p_value < 0.001 else f"= {p_text(p_value)}"
    return f"{'helps' if difference < 0 else 'hurts'}: {much}, p {p_said}"


def cautions(table: Mapping[str, Any], baseline: str, weights: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What to keep in mind before these figures are trusted, in sentences.

    Args:
      weights: system -> `{"scales", "info"}` of its weights.
    """
    rows, rate = table["rows"], table["how"]["rate"]
    unit = "characters" if rate == CER else "words"
    said = []
    tried = [row["name"] for row in rows if row["name"] in weights and row["name"] not in ("tuned", baseline)]
    if len(tried) > 1:
        said.append(
            f"{len(tried)} systems are compared with {baseline}: of so many p-values, one below 0.05 is found by "
            f"chance with a probability of about {100 * (1 - 0.95 ** len(tried)):.0f} %."
        )
    if rows[0]["words"] < FEW_WORDS:
        said.append(
            f"The test set is small ({rows[0]['words']} {unit}): only large differences can be told from chance."
        )
    infos = {name: content["info"] for name, content in weights.items()}
    loose = [name for name, info in infos.items() if (info.get("cv_wer") or 0) > LOOSE * info["wer"]]
    if loose:
        rates = "; ".join(f"{name} {infos[name]['wer']:.2f} %, {infos[name]['cv_wer']:.2f} %" for name in loose)
        said.append(
            f"Scales fit dev better than utterances they were not tuned on ({rate} on dev, cross-validated: {rates}).  "
            "More dev utterances would help."
        )
    unused = [name for name, content in weights.items() if content["scales"].get(name) == 0]
    said += [f"On dev the best scale of {name} is 0: it is not used." for name in unused]
    oracle = min((row["oracle_wer"] for row in rows if row["oracle_wer"] is not None), default=None)
    if oracle is not None:
        said.append(f"No LM can get below {oracle:.2f} %: that is the oracle of the lists, their best hypotheses.")
    return said


# -- errors by ... -----------------------------------------------------------------------------------------------------


def label(low: int, high: int | None) -> str:
    if high is None:
        return f"over {low - 1}"
    return str(low) if low == high else f"{low} to {high}"


def by_length(found: Sequence[Outcome], systems: int) -> list[tuple[str, int, list[float]]]:
    """Label, utterances, and the WER of each system, for utterances of so many reference words."""
    rows = []
    for low, high in LENGTHS:
        inside = [each for each in found if low <= len(each.ref) and (high is None or len(each.ref) <= high)]
        words = sum(len(each.ref) for each in inside)
        if words:
            rates = [100 * sum(each.errors(system) for each in inside) / words for system in range(systems)]
            rows.append((label(low, high), len(inside), rates))
    return rows


def by_frequency(
    found: Sequence[Outcome], systems: int, counts: Mapping[str, int]
) -> list[tuple[str, int, list[float]]]:
    """Label, reference words, and the share of them that each system has wrong, for words that occur so often.

    Insertions are of no reference word, and are not counted.
    """
    total, wrong = Counter[int](), [Counter[int]() for _ in range(systems)]
    bins = {
        word: next(k for k, (_, high) in enumerate(FREQUENCIES) if high is None or n <= high)
        for word, n in counts.items()
    }
    for each in found:
        places = [bins[word] for word in each.ref]
        total.update(places)
        missed = [[op != "=" for op in ops if op != "i"] for ops in each.ops]
        for system, which in enumerate(each.which):
            wrong[system].update(place for place, miss in zip(places, missed[which], strict=True) if miss)
    return [
        (label(*limits), total[k], [100 * wrong[system][k] / total[k] for system in range(systems)])
        for k, limits in enumerate(FREQUENCIES)
        if total[k]
    ]


def confusions(found: Sequence[Outcome], before: int, after: int) -> list[tuple[str, str, int, int]]:
    """Reference word, what stood for it ("" for nothing), how often before and after; most fixed first."""
    counts = [Counter[tuple[str, str]](), Counter[tuple[str, str]]()]
    for each in found:
        if each.which[before] == each.which[after]:
            continue
        for counter, system in zip(counts, (before, after), strict=True):
            counter.update(_wrong_pairs(each, each.which[system]))
    pairs = {pair: (counts[0][pair], counts[1][pair]) for pair in (*counts[0], *counts[1])}
    order = sorted(pairs, key=lambda pair: (pairs[pair][1] - pairs[pair][0], pair))
    return [(*pair, *pairs[pair]) for pair in order if pairs[pair][0] != pairs[pair][1]]


def _wrong_pairs(each: Outcome, which: int) -> list[tuple[str, str]]:
    ref, hyp, pairs = iter(each.ref), iter(each.texts[which]), []
    for op in each.ops[which]:
        one, other = "" if op == "i" else next(ref), "" if op == "d" else next(hyp)
        if op != "=":
            pairs.append((one, other))
    return pairs


def decider_in(table: ScoreTable, weights: Weights) -> Decider:
    """The decision of weights, as `rescore combine` makes it, over a table (with distances if it is `mbr`).

    Raises:
      WeightsError: a scale other than 0 whose score the table does not have.
    """
    for name, scale in weights.scales.items():
        if scale != 0.0 and name not in table.names:
            what = f"utterance {table.utt_ids[0]}"
            raise WeightsError(no_score(what, name, table.names, "which the weights have a scale for"))
    return decider_of(Weights({name: weights.scales.get(name, 0.0) for name in table.names}, weights.info))


def by_n(table: ScoreTable, weights: Weights) -> list[tuple[int, float, float]]:
    """N, the WER if only the first N of each list are there, and the oracle's."""
    decider, words = decider_in(table, weights), max(1, table.total_words)
    longest, rows, n = int(np.diff(table.offsets).max()), [], 1
    while True:
        n = min(n, longest)
        part = table.first(n)
        chosen, best = decider.errors(part).sum(), part.oracle_errors()
        rows.append((n, 100 * float(chosen) / words, 100 * float(best) / words))
        if n == longest:
            return rows
        n *= 2


def over_scale(table: ScoreTable, weights: Weights, name: str) -> list[tuple[float, float]]:
    """`(scale, WER)` for scales of `name` around the tuned one, the others held."""
    at = weights.scales[name]
    low, high = (at - abs(at) - 1.0, at + abs(at) + 1.0) if name == "words" else (0.0, 3.0 * at if at else 1.0)
    decider, words = decider_in(table, weights), max(1, table.total_words)
    place, found = table.names.index(name), []
    values = sorted({*np.linspace(low, high, STEPS).tolist(), at})
    for value in progress(values, f"errors over the scale of {name}"):  # minutes for many lists decided by `mbr`
        scales = decider.scales.copy()
        scales[place] = value
        found.append((value, 100 * float(replace(decider, scales=scales).errors(table).sum()) / words))
    return found
