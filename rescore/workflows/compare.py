"""A comparison of systems on one test set, as a table on the terminal, Markdown or JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lm_zoo.identity import content
from rescore import __version__
from rescore.console import remark
from rescore.errors import ScoreError, UsageError
from rescore.evaluation.common import shared_references
from rescore.evaluation.significance import bootstrap_wer, error_positions, mapsswe
from rescore.evaluation.tail import Tail, corpus_tail_errors, json_tails, load_tail, rate_text
from rescore.evaluation.wer import (
    ErrorCounts,
    best_of_list,
    json_counts,
    utterance_errors,
)
from rescore.files import file_identity, is_manifest, read_kaldi_text, texts_identity
from rescore.formats import names_format, read_nbest
from rescore.tables import WIDTH, table_lines
from rescore.types import NbestList, Words
from rescore.workflows.combine import NBEST_FILE, SCORES_FILE, TEXT_FILE
from rescore.workflows.normalising import CER, KEY, WER, Normaliser

_UNITS = {WER: "words", CER: "characters"}


@dataclass
class System:
    """The output of one system: its 1-best, and the errors of the best hypotheses if N-best lists are given.

    Utterances without a reference have no errors.
    """

    name: str
    hyps: dict[str, Words]
    oracles: dict[str, ErrorCounts] | None = None

    def oracle(self, refs: Iterable[str]) -> ErrorCounts | None:
        """Errors of the best hypotheses of these utterances, None where there are no lists."""
        if self.oracles is None:
            return None
        return sum((self.oracles[utt_id] for utt_id in refs), ErrorCounts())


@dataclass
class Row:
    """One line of the table; rates in percent.  `p_values` are by the name of the system compared with.

    `tail` has the errors on tail words and, if there are counts of bigrams, on tail bigrams.
    """

    name: str
    counts: ErrorCounts
    interval: tuple[float, float]
    relative: float | None
    p_values: dict[str, float | None] = field(default_factory=dict)
    oracle_wer: float | None = None
    tail: list[ErrorCounts] = field(default_factory=list)


@dataclass
class Comparison:
    """All rows, and how they were made."""

    rows: list[Row]
    against: list[str]
    how: dict[str, Any]


def parse_system(option: str) -> tuple[str, str]:
    """`NAME=HYP` to its two parts."""
    name, equals, spec = option.partition("=")
    if not equals or not name or not spec:
        raise UsageError(f"'{option}' is no system; expected NAME=HYP, as in first=exp/1best.txt")
    return name, spec


def read_system(name: str, spec: str, refs: Mapping[str, Words], normaliser: Normaliser | None = None) -> System:
    """Reads Kaldi text, or N-best lists of which the first hypotheses are taken and the oracle is counted.

    Args:
      spec: a file of Kaldi text, or a manifest of NeMo; or `FORMAT:PATH`; or a folder made by `rescore combine` or
        `rescore nbest`, of which the combined lists `nbest.jsonl.gz` are read, or else `scores.jsonl.gz` in the order
        of the recogniser; of one with neither, `1best.txt`.
      refs: references, normalised already.
      normaliser: of the hypotheses.
    """
    normaliser = normaliser or Normaliser()
    spec = _text_in(spec)
    lists = _nbest_source(spec)
    if lists is None:
        return System(name, normaliser.texts(read_kaldi_text(spec, "hyp")))
    return system_of_lists(name, normaliser.lists(lists), refs)


def system_of_lists(name: str, lists: Iterable[NbestList], refs: Mapping[str, Words]) -> System:
    """A system of N-best lists; see `read_system`."""
    hyps: dict[str, Words] = {}
    oracles: dict[str, ErrorCounts] = {}
    for nbest in lists:
        if nbest.utt_id in hyps:
            raise ScoreError(f"'{name}': utterance {nbest.utt_id} occurs a second time")
        hyps[nbest.utt_id] = nbest.hyps[0].words if nbest.hyps else ()
        if nbest.utt_id in refs:
            oracles[nbest.utt_id] = best_of_list(nbest, refs[nbest.utt_id])
    return System(name, hyps, oracles)


def read_hypotheses(spec: str) -> dict[str, Words]:
    """Kaldi text, or the first hypotheses of N-best lists; `spec` as of `read_system`."""
    spec = _text_in(spec)
    lists = _nbest_source(spec)
    if lists is None:
        return read_kaldi_text(spec, "hyp")
    hyps = first_hypotheses(lists)
    remark(f"{spec}: N-best lists, of which the first hypotheses are counted")
    return hyps


def first_hypotheses(lists: Iterable[NbestList]) -> dict[str, Words]:
    """The words of the first hypotheses, none of an empty list.  Raises ScoreError: an utterance comes twice."""
    hyps: dict[str, Words] = {}
    for nbest in lists:
        if nbest.utt_id in hyps:
            raise ScoreError(f"utterance {nbest.utt_id} occurs a second time in the lists")
        hyps[nbest.utt_id] = nbest.hyps[0].words if nbest.hyps else ()
    return hyps


def _text_in(spec: str) -> str:
    """The text in a folder that has no lists (`rescore tune --lattices --cross-fit`), else `spec` itself."""
    path = Path(spec)
    lists = any((path / file).is_file() for file in (NBEST_FILE, SCORES_FILE))
    return spec if lists or not (path / TEXT_FILE).is_file() else str(path / TEXT_FILE)


def _nbest_source(spec: str) -> Iterator[NbestList] | None:
    """The lists that `spec` names, or None if it is a file of Kaldi text."""
    path = Path(spec)
    for file in (NBEST_FILE, SCORES_FILE):
        if (path / file).is_file():
            return read_nbest(f"jsonl:{path / file}")
    return read_nbest(spec) if path.is_dir() or (names_format(spec) and not is_manifest(path)) else None


def compare_with(
    texts: Mapping[str, Words],
    ref: Path | None,
    normaliser: Normaliser,
    systems: Callable[[Mapping[str, Words]], Sequence[System]],
    against: Sequence[str],
    seed: int,
    samples: int,
    tail: Path | None,
    common: bool = False,
) -> Comparison:
    """As `compare_systems`, of references as they were read, and with the files that it was made from.

    Args:
      texts: the references.
      ref: their file, if they are of one.
      normaliser: of the references; it says whether words or characters are counted.
      systems: gives the systems, normalised, where it is given the references as they are compared.
      tail: a file of `rescore count`.
    """
    refs = normaliser.texts(texts)
    counts = load_tail(tail) if tail else None
    if normaliser.cer and counts:
        counts.check_characters()
    comparison = compare_systems(refs, systems(refs), against, seed, samples, counts, normaliser.cer, common)
    if ref is not None:
        comparison.how["ref"] = texts_identity(ref, texts)
    comparison.how[KEY] = normaliser.name
    if tail:
        comparison.how["tail_counts"] = file_identity(tail)
    return comparison


def compare_systems(
    refs: Mapping[str, Words],
    systems: Sequence[System],
    against: Sequence[str] = (),
    seed: int = 0,
    samples: int = 10_000,
    tail: Tail | None = None,
    cer: bool = False,
    common: bool = False,
) -> Comparison:
    """Error rates with 95 % bootstrap intervals, and MAPSSWE p-values against the first system and those of `against`.

    With `cer`, what the texts have as words are characters, and the table says so.  With `common`, the utterances count
    that the references and all systems have.

    Raises:
      UsageError: a name given twice, `against` names none of the systems, `tail` is in another letter case, or numbers
        out of range.
      ReferencesError: a system has other utterances than the references; with `common`, none is everywhere.
    """
    if seed < 0 or samples < 1:
        raise UsageError(f"seed must be at least 0 and samples at least 1, found {seed} and {samples}")
    names = [system.name for system in systems]
    _check_names(names, against)
    against = list(dict.fromkeys([names[0], *against]))
    everywhere = shared_references(refs, {f"hypotheses of '{system.name}'": system.hyps for system in systems}, common)
    some = {"utterances_sha256": content([], everywhere)} if len(everywhere) < len(refs) else {}
    refs = everywhere
    systems = [replace(s, hyps={utt_id: s.hyps[utt_id] for utt_id in refs}) for s in systems]
    errors = [utterance_errors(refs, system.hyps) for system in systems]
    places = {s.name: [error_positions(ref, s.hyps[utt_id]) for utt_id, ref in refs.items()] for s in systems}
    totals = [sum(utts.values(), ErrorCounts()) for utts in errors]
    matrix = np.array([[utts[utt_id].errors for utt_id in refs] for utts in errors])
    intervals = bootstrap_wer(matrix, np.array([len(ref) for ref in refs.values()]), seed, samples)
    rows = []
    for system, counts, ends in zip(systems, totals, intervals.tolist(), strict=True):
        first = totals[0].errors
        relative = None if system.name == names[0] or not first else 100.0 * (counts.errors - first) / first
        p_values = {
            other: None if other == system.name else mapsswe(places[system.name], places[other]).p_value
            for other in against
        }
        best = system.oracle(refs)
        oracle = best.wer if best else None
        on_tail = corpus_tail_errors(refs, system.hyps, tail) if tail else []
        rows.append(Row(system.name, counts, (ends[0], ends[1]), relative, p_values, oracle, on_tail))
    how = _how(len(refs), totals[0].ref_words, seed, samples, CER if cer else WER) | some
    return Comparison(rows, against, how | ({"tail": tail.describe(cer)} if tail else {}))


def _check_names(names: list[str], against: Sequence[str]) -> None:
    if not names:
        raise UsageError("no system to compare; give at least one NAME=HYP")
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"the name '{name}' is given to {names.count(name)} systems; names must differ")
    for name in against:
        if name not in names:
            raise UsageError(f"against '{name}', which is none of the systems: {', '.join(names)}")


def _how(utterances: int, words: int, seed: int, samples: int, rate: str) -> dict[str, Any]:
    return {
        "rate": rate,
        "utterances": utterances,
        "words": words,
        "samples": samples,
        "seed": seed,
        "interval": f"95 % percentile bootstrap over utterances, {samples} samples, seed {seed}",
        "p_value": f"MAPSSWE, two-sided, segments end at 2 {_UNITS[rate]} both have right; against the first row",
        "relative": "change of the number of errors against the first row, percent",
        "version": __version__,
    }


def to_json(comparison: Comparison) -> dict[str, Any]:
    """`{"rows": [...], "how": {...}}`; rates in percent, `p_value` is null for the first row."""
    return {"rows": [json_row(row, comparison.against[0]) for row in comparison.rows], "how": comparison.how}


def json_row(row: Row, first: str) -> dict[str, Any]:
    """One row of `to_json`; `first` is the system that `p_value` is against."""
    return {
        "name": row.name,
        **json_counts(row.counts),
        "ci": [round(end, 4) for end in row.interval],
        "relative": None if row.relative is None else round(row.relative, 4),
        "p_value": row.p_values[first],
        "p_values": row.p_values,
        "oracle_wer": None if row.oracle_wer is None else round(row.oracle_wer, 4),
        **json_tails(row.tail),
    }


def cells(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Heads and texts of the table; the oracle's column only if a system has one, `-` where a value makes no sense."""
    heads = ["system", f"{comparison.how['rate']} %", "95 % interval", "sub", "del", "ins", "SER %", "change %"]
    heads += [f"p against {name}" for name in comparison.against]
    oracle = any(row.oracle_wer is not None for row in comparison.rows)
    heads += ["oracle %"] if oracle else []
    heads += [f"Tail-{n} %" for n, _ in enumerate(comparison.rows[0].tail, start=1)]
    lines = []
    for row in comparison.rows:
        counts = row.counts
        line = [row.name, f"{counts.wer:.2f}", f"{row.interval[0]:.2f}-{row.interval[1]:.2f}"]
        line += [str(counts.sub), str(counts.dele), str(counts.ins), f"{counts.ser:.2f}"]
        line.append("-" if row.relative is None else f"{row.relative:+.1f}")
        line += [p_text(row.p_values[name]) for name in comparison.against]
        line += ["-" if row.oracle_wer is None else f"{row.oracle_wer:.2f}"] if oracle else []
        line += [rate_text(tail) for tail in row.tail]
        lines.append(line)
    return heads, lines


def p_text(p_value: float | None) -> str:
    """Three digits; below 0.001 as `<0.001`; `-` for a system against itself."""
    if p_value is None:
        return "-"
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def to_markdown(comparison: Comparison) -> str:
    """The table in Markdown, with a line on how it was made."""
    heads, lines = cells(comparison)
    table = [heads, ["---", *["---:"] * (len(heads) - 1)], *lines]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in table)
    return f"{text}\n\n{caption(comparison)}\n"


def caption(comparison: Comparison) -> str:
    """One line on data, intervals, test and tails."""
    how = comparison.how
    counted = f"{how['utterances']} utterances, {how['words']} {_UNITS[how['rate']]}"
    text = f"{counted}. Intervals: {how['interval']}. p: MAPSSWE, two-sided."
    if how.get(KEY, "none") != "none":
        text += f" Text normalised by {how[KEY]}."
    return f"{text} T{how['tail'][1:]}." if "tail" in how else text


def comparison_lines(comparison: Comparison, most: int = WIDTH) -> list[str]:
    """The table and its caption, at most `most` columns wide (see `table_lines`)."""
    heads, lines = cells(comparison)
    return [*table_lines(heads, lines, most), "", *textwrap.wrap(caption(comparison), most, break_on_hyphens=False)]
