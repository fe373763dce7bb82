"""`rescore tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from rescore.cli.completion import formats
from rescore.cli.normalise import cer_option, normalise_option
from rescore.cli.once import Once
from rescore.cli.outputs import OutputPath
from rescore.cli.results import json_option
from rescore.cli.utterances import utterances_option

if TYPE_CHECKING:
    from rescore.tuning.settings import Settings
    from rescore.types import Weights
    from rescore.workflows.normalising import Normaliser


@click.command()
@click.option(
    "--scores",
    cls=Once,
    metavar="DIR|[FORMAT:]PATH",
    shell_complete=formats,
    help="Folder with scores.jsonl.gz of dev, or N-best lists with their own scores.",
)
@click.option(
    "--lattices",
    cls=Once,
    metavar="[FORMAT:]PATH",
    shell_complete=formats,
    help="Lattices of dev instead: searches over all their paths.",
)
@click.option(
    "--ref",
    cls=Once,
    required=True,
    type=click.Path(path_type=Path),
    help="References of dev: Kaldi text, recogs, lists, manifests of NeMo or lhotse.",
)
@click.option("--out", required=True, type=OutputPath(), help="Weights file to write, JSON.")
@click.option("--fix", "fixed", multiple=True, metavar="NAME=VALUE", help="Hold a scale; may be repeated.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all random choices.")
@click.option("--restarts", default=10, show_default=True, help="With errors: starting points; small sets get more.")
@click.option("--folds", default=5, show_default=True, help="Folds of the cross-validation; 0 for none.")
@click.option(
    "--objective",
    type=click.Choice(["errors", "risk"]),
    default="risk",
    show_default=True,
    help="Expected errors, held near the acoustic score alone: what generalises; or errors of the set, exactly.",
)
@click.option(
    "--decision",
    type=click.Choice(["map", "mbr"]),
    help="Tune for the highest total, or for minimum Bayes risk; rescore combine repeats it.  [default: mbr with risk "
    "over lists, else map]",
)
@click.option("--select", is_flag=True, help="With risk: leave out columns that do not help by more than chance.")
@click.option(
    "--cross-fit",
    type=OutputPath(folder=True),
    metavar="DIR",
    help="Write each utterance decoded with scales tuned on the other folds.",
)
@cer_option
@normalise_option
@utterances_option
@json_option
def command(
    scores: str | None,
    lattices: str | None,
    ref: Path,
    out: Path,
    fixed: tuple[str, ...],
    seed: int,
    restarts: int,
    folds: int,
    objective: str,
    decision: str | None,
    select: bool,
    cross_fit: Path | None,
    cer: bool,
    normalise: str | None,
    common: bool,
    json_file: Path | None,
) -> None:
    """Find the scales of all scores, and of the number of words, that minimise the error rate of a development set.

    --objective risk: the fewest expected errors under the softmax of the totals; an L2 penalty, whose strength is
    chosen by cross-validation (folds of whole speakers or recordings where the ids tell them), holds the scales near
    the acoustic score alone.  The weights keep the first hypotheses, or the acoustic score alone where it has fewer
    errors, if on utterances not tuned on the gain over that score, plus its standard error, is below 1 % of the errors,
    or the first hypotheses are better by two standard errors.  The p that are printed are one-sided, of the differences
    by utterance; those of rescore compare are MAPSSWE's, two-sided.
    --select takes columns one after another, and leaves out those that do not help by one standard error: fewer LMs, at
    a small price in errors.  The figures on utterances not tuned on are then those of --folds, each with columns chosen
    on the others alone, and these must speak for rescoring, too.

    --objective errors: exact line searches (Och 2003) from several starting points; of equally good scales, those in
    the widest flat region, and the smallest where that has no end.  Scales of scores stay at 0 or above, those of
    `words`, of LMs to be taken out, `ilm` and `old-ngram`, and of uncertainties, NAME-uncertainty, may be negative.
    Folds are as above.  Tune on dev, never on test.  With --lattices, the line searches are over all paths of lattices
    (Macherey et al. 2008), by words as they are written: --normalise and --cer take each word by itself, where errors
    are counted.  Expected errors are over N-best lists that the search meets.  With --cross-fit DIR, DIR holds what
    rescore combine writes, of scales tuned on the other folds for each utterance: a system for rescore compare.

    With --normalise, hypotheses that become equal are one: their probabilities (am) are summed, other scores are those
    of the most probable one.  With --cer, lists count as if every character were a word, as Chinese without blanks
    needs: errors, expected errors, `words` where lists do not have it, and what becomes equal.  The weights say so, and
    rescore combine repeats it.

    \b
    Example: rescore tune --scores exp/dev --ref data/dev/text --out exp/weights.json --cross-fit exp/dev/cross
    Example: rescore tune --scores exp/dev --ref data/dev/text --normalise librispeech --out exp/weights.json
    Example: rescore tune --lattices kaldi:exp/dev?words=words.txt --ref data/dev/text --out exp/weights.json
    """
    from rescore.cli.results import show
    from rescore.weights import save_weights
    from rescore.workflows.normalising import Normaliser
    from rescore.workflows.tune import summary

    _check_sources(scores, lattices, cross_fit, folds)
    settings = _settings(fixed, objective, decision, seed, restarts, folds, select, bool(lattices))
    normaliser = Normaliser(normalise or "none", cer)
    how = ref, settings, _repeated(ref, out, fixed, settings, normaliser, common), normaliser, common, cross_fit
    weights = _of_lattices(lattices, *how) if lattices else _of_lists(str(scores), *how)
    save_weights(out, weights)
    show({"scales": weights.scales, "info": weights.info}, summary(weights), json_file)


def _settings(
    fixed: tuple[str, ...],
    objective: str,
    decision: str | None,
    seed: int,
    restarts: int,
    folds: int,
    select: bool,
    lattices: bool,
) -> Settings:
    from rescore.tuning.settings import Settings, usual_decision
    from rescore.weights import parse_scales

    _tell_restarts(objective)
    decided = decision or usual_decision(objective, lattices)
    return Settings(parse_scales(fixed), objective, decided, seed, restarts, folds, select)


def _check_sources(scores: str | None, lattices: str | None, cross_fit: Path | None, folds: int) -> None:
    from rescore.errors import UsageError

    if bool(scores) == bool(lattices):
        raise UsageError("give either --scores DIR|[FORMAT:]PATH or --lattices [FORMAT:]PATH")
    if cross_fit and folds < 2:
        raise UsageError("--cross-fit needs two folds at least: --folds 2 or more")


def _tell_restarts(objective: str) -> None:
    """Says where restarts are asked for that are not used; commands that earlier weights name have them."""
    from rescore.console import remark

    given = click.get_current_context().get_parameter_source("restarts") is ParameterSource.COMMANDLINE
    if given and objective != "errors":
        remark("--restarts does nothing with --objective risk; it is of --objective errors")


def _of_lists(
    scores: str, ref: Path, settings: Settings, said: str, normaliser: Normaliser, common: bool, cross_fit: Path | None
) -> Weights:
    from rescore.workflows.combine import read_scores
    from rescore.workflows.cross_fit import cross_fit_lists, fold_weights
    from rescore.workflows.tune import tune_folder

    command = f"rescore tune --scores {Path(scores).name} {said}"
    weights, fits, utt_ids = tune_folder(scores, ref, settings, command, normaliser, common)
    if cross_fit:
        tuned_on = set(utt_ids)
        lists = (nbest for nbest in read_scores(scores) if nbest.utt_id in tuned_on)
        cross_fit_lists(lists, weights, fold_weights(weights, utt_ids, fits), cross_fit)
    return weights


def _of_lattices(
    lattices: str,
    ref: Path,
    settings: Settings,
    said: str,
    normaliser: Normaliser,
    common: bool,
    cross_fit: Path | None,
) -> Weights:
    from rescore.formats import is_pipe, parse_spec, source_identity
    from rescore.formats.counting import lattices_with_progress
    from rescore.workflows.cross_fit import check_free_of_lists, cross_fit_lattices, fold_weights
    from rescore.workflows.tune import tune_lattices

    if cross_fit:
        check_free_of_lists(cross_fit)
    name, path = parse_spec(lattices)
    read = lattices_with_progress(lattices, "reading lattices")
    command = f"rescore tune --lattices {name}:{path.name} {said}"
    weights, fits, table = tune_lattices(read, ref, settings, command, common, normaliser)
    if not is_pipe(lattices):
        weights.info["data"]["content"] = source_identity(lattices)
    if cross_fit:
        cross_fit_lattices(table, weights, fits, fold_weights(weights, table.utt_ids, fits), cross_fit)
    return weights


def _repeated(
    ref: Path, out: Path, fixed: tuple[str, ...], settings: Settings, normaliser: Normaliser, common: bool
) -> str:
    """The options that give the same scales again."""
    options = [f"--ref {ref.name} --out {out.name}", *(f"--fix {scale}" for scale in fixed)]
    restarts = f" --restarts {settings.restarts}" if settings.objective == "errors" else ""
    options.append(f"--seed {settings.seed}{restarts} --folds {settings.folds}")
    options.append(f"--objective {settings.objective} --decision {settings.decision}")
    options += ["--select"] if settings.select else []
    options += ["--cer"] if normaliser.cer else []
    options += [f"--normalise {normaliser.name}"] if normaliser.name != "none" else []
    options += ["--utterances common"] if common else []
    return " ".join(options)
