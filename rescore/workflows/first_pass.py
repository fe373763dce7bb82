"""Kaldi's LM weight and word insertion penalty, found on a development set before lists or LMs are made of it.

`rescore tune --lattices` without an LM: scales of the lattices' own scores by exact line search over all their paths.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lm_zoo.files import is_in_place
from rescore.console import remark
from rescore.errors import FormatError, ScoreError, UsageError
from rescore.formats import format_of, parse_spec
from rescore.formats.counting import lattices_with_progress
from rescore.lattices.build import normalize_words
from rescore.skipping import OnError, fail
from rescore.text import TextNormalizer
from rescore.tuning.settings import Settings
from rescore.types import Weights
from rescore.weights import LM_WEIGHT, NGRAM, WORDS_COLUMN, load_weights, parse_scales, save_weights
from rescore.workflows.normalising import Normaliser
from rescore.workflows.tune import tune_lattices

RESTARTS = 3  # two scales are to be found
NGRAM_BEAM, LM_BEAM = 8.0, 6.0  # in units of Kaldi's graph cost, that is, of the scale of the lattices' own LM


def weights_beside(target: str) -> Path | None:
    """Where the weights go that belong to `target`, `[FORMAT:]PATH`: `dev.weights.json` beside `dev.jsonl.gz`.

    A dot that begins no ending of the format's stays, as of folders: `dev.clean.weights.json` beside `slf:dev.clean`.
    None for a target that has no place, such as standard output.
    """
    entry, path = format_of(target), parse_spec(target)[1]
    if not path.is_dir() and is_in_place(path):
        return None
    name = path.name.removesuffix(".gz").removesuffix(".xz")
    return path.with_name(f"{Path(name).stem if name.endswith(entry.suffixes) else name}.weights.json")


def given_scales(
    weights_file: Path | None, scales: Sequence[str], ref: Path | None, common: bool = False, cer: bool = False
) -> Weights:
    """What --weights or --scale say, or no scale at all.

    Raises:
      UsageError: --weights beside --scale or --ref, which look for weights themselves; `common` or `cer` without
        references.
    """
    if cer and ref is None:
        raise UsageError("--cer is for --ref TEXT, by whose errors scales are found")
    if common and ref is None:
        raise UsageError("--utterances common is for --ref TEXT, without which all lattices count")
    if weights_file and (scales or ref):
        other = "--scale NAME=VALUE" if scales else "--ref TEXT, which finds scales itself"
        raise UsageError(f"give either --weights FILE or {other}, not both")
    return load_weights(weights_file) if weights_file else Weights(parse_scales(scales))


@dataclass(frozen=True)
class ScaleSearch:
    """How the scales of the first pass are looked for.

    Attributes:
      ref: references of the development set.
      fixed: scales that stay as they are, of scores that lattices have or that are `coming`.
      coming: scores that lattices do not have yet.
      common: as of `rescore.evaluation.common.shared_references`.
      cer: count errors of characters.
      normalizer: of the lattices' words.
    """

    ref: Path
    fixed: Mapping[str, float]
    coming: Collection[str] = ()
    common: bool = False
    cer: bool = False
    normalizer: TextNormalizer | None = None


def find_first_pass(source: str, search: ScaleSearch, on_error: OnError = fail) -> Weights:
    """The scales of the scores of lattices, and of the number of words, with the fewest errors; says what was found.

    Args:
      source: of the lattices, `FORMAT:PATH`.
      on_error: of lattices that cannot be read.
    Raises:
      FormatError: no lattice.  ScoreError: a scale of another score.  RescoreError: as `tune_lattices`.
    """
    normal = search.normalizer
    read = lattices_with_progress(source, "reading lattices", on_error)
    lattices = [lattice if normal is None else normalize_words(lattice, normal) for lattice in read]
    if not lattices:
        raise FormatError(source, "no lattice in it that can be read")
    names = [*lattices[0].scores, WORDS_COLUMN]
    if unknown := [name for name in search.fixed if name not in names and name not in search.coming]:
        known = ", ".join([*names, *search.coming])
        raise ScoreError(f"lattice '{lattices[0].utt_id}' has no score '{unknown[0]}'; it has: {known}")
    settings = Settings({n: s for n, s in search.fixed.items() if n in names}, restarts=RESTARTS, folds=0)
    normaliser = Normaliser("none", search.cer)
    command = f"--ref {search.ref.name}{' --cer' if search.cer else ''} of {parse_spec(source)[1].name}"
    weights, _, _ = tune_lattices(lattices, search.ref, settings, command, search.common, normaliser)
    rates = f"dev {normaliser.rate} {weights.info['wer']:.2f} %, oracle {weights.info['oracle_wer']:.2f} %"
    remark(f"{said(weights.scales)}: {rates}")
    return weights


def said(scales: Mapping[str, float]) -> str:
    """Scales, and for lattices with a score `graph` or `lm` Kaldi's two settings that mean the same."""
    listed = " ".join(f"{name}={scale:.6g}" for name, scale in scales.items())
    own, acoustics = lm_scale(scales), scales.get("am")
    if not own or not acoustics:
        return listed
    penalty = 0.0 - scales.get(WORDS_COLUMN, 0.0) / own
    return f"LMWT {own / acoustics:.4g}, word insertion penalty {penalty:.3g} ({listed})"


def lm_scale(scales: Mapping[str, float]) -> float:
    """The scale of the lattices' own LM; 0 if they have none."""
    return next((scales[name] for name in ("graph", "lm") if scales.get(name, 0.0) > 0), 0.0)


def with_new_lms(found: Weights, given: Mapping[str, float], lms: Sequence[str], old: str | None) -> Weights:
    """Scales for LMs that lattices are to be scored with, to begin with: they share half of the old LM's, or all.

    Args:
      found: of `find_first_pass`.
      given: scales of the user, which stay.
      lms: names of the new scores.
      old: that of the old LM's n-gram, which is taken out of the lattices' own score.
    """
    own = lm_scale(found.scales) or LM_WEIGHT
    share = (own if old else 0.5 * own) / max(1, len(lms))
    scales = {**found.scales, **dict.fromkeys(lms, share), **({old: -own} if old else {}), **given}
    return Weights(scales, found.info)


def usual_beams(scales: Mapping[str, float], lms: Sequence[str]) -> tuple[float, float]:
    """Beams before the neural LMs and in them: so many times the scale of the lattices' own LM, or the largest new one.

    Args:
      lms: names of the neural LMs' scores; an n-gram's counts, too.
    """
    unit = lm_scale(scales) or max(scales.get(name, 0.0) for name in (*lms, NGRAM)) or LM_WEIGHT
    return NGRAM_BEAM * unit, LM_BEAM * unit


def save_found(weights: Weights, place: Path | None) -> None:
    """Writes the weights beside what was made with them, and says where."""
    if place is None:
        remark("the scales found are not written, as the output has no place beside it; give them with --scale")
        return
    save_weights(place, weights)
    remark(f"the scales found are in {place}: use them on other sets with --weights {place}")
