"""A development set decoded fold by fold, each fold with the scales that were tuned on the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rescore.errors import UsageError
from rescore.files import atomic_text, write_kaldi_text
from rescore.tuning.decisions import CrossFit
from rescore.types import NbestList, Weights, Words
from rescore.weights import weights_json
from rescore.workflows.combine import NBEST_FILE, SCORES_FILE, TEXT_FILE, CombineCounts, write_combined
from rescore.workflows.normalising import WEIGHTS_FILE

if TYPE_CHECKING:
    from rescore.tuning.lattice_line_search import LatticeTable


def fold_weights(weights: Weights, utt_ids: Sequence[str], fits: CrossFit) -> list[tuple[list[str], Weights]]:
    """The utterances of each fold, and the weights for them.

    Raises:
      UsageError: there are no folds.
    """
    if not fits.parts:
        raise UsageError("--cross-fit needs two folds at least (--folds), and as many utterances")
    result = []
    for part, decider in zip(fits.parts, fits.deciders, strict=True):
        scales = dict(zip(weights.scales, map(float, decider.scales), strict=True))
        info = {"decision": decider.decision, "inverse_temperature": float(decider.inverse)}
        result.append(([utt_ids[u] for u in part], Weights(scales, info)))
    return result


def cross_fit_lists(
    lists: Iterable[NbestList], weights: Weights, folds: list[tuple[list[str], Weights]], out: Path
) -> CombineCounts:
    """Writes the files of `rescore combine`; `weights.json` has the scales of all folds in its info, too."""
    own = {utt_id: tuned for utt_ids, tuned in folds for utt_id in utt_ids}
    return write_combined(lists, _with_folds(weights, folds), out, own=own)


def check_free_of_lists(out: Path) -> None:
    """Refuses a folder whose lists every command would read in place of the text of `cross_fit_lattices`.

    Raises:
      UsageError: names the file.
    """
    for file in (NBEST_FILE, SCORES_FILE):
        if (out / file).exists():
            raise UsageError(
                f"--cross-fit {out}: has N-best lists ({file}), and would be read as these; name another folder"
            )


def cross_fit_lattices(
    table: LatticeTable, weights: Weights, fits: CrossFit, folds: list[tuple[list[str], Weights]], out: Path
) -> None:
    """Writes `out/1best.txt`, in the order of the lattices, and `out/weights.json` as `cross_fit_lists` does."""
    hyps: dict[str, Words] = {}
    for part, decider, (utt_ids, _) in zip(fits.parts, fits.deciders, folds, strict=True):
        hyps.update(zip(utt_ids, decider.words(table.select(part)), strict=True))
    write_kaldi_text(out / TEXT_FILE, {utt_id: hyps[utt_id] for utt_id in table.utt_ids})
    with atomic_text(out / WEIGHTS_FILE) as stream:
        stream.write(weights_json(_with_folds(weights, folds)))


def _with_folds(weights: Weights, folds: list[tuple[list[str], Weights]]) -> Weights:
    said = [{"utterances": utt_ids, "scales": tuned.scales, **tuned.info} for utt_ids, tuned in folds]
    return Weights(weights.scales, {**weights.info, "cross_fit": said})
