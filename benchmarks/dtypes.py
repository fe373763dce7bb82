"""What bfloat16 and int8 cost in accuracy: scores and word error rates of real N-best lists against float32.

Example: python benchmarks/dtypes.py test/nbest.jsonl.gz test.text transfornn transfornn.json
Example: OMP_NUM_THREADS=1 python benchmarks/dtypes.py test/nbest.jsonl.gz test.text lstm lstm.json --lists 20 --cpu

WEIGHTS are the scales that `rescore tune` found on other lists with scores in float32; the LM's column has its name.
Errors are of whole sentences, in nats, against float32; changed: utterances whose best hypothesis is another one.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import torch
from hypotheses import clock
from measure import heading, row

from lm_zoo.base import DTYPES
from lm_zoo.inference.precision import ready
from lm_zoo.registry import load
from rescore.evaluation.wer import corpus_errors
from rescore.files import read_kaldi_text
from rescore.formats import read_nbest
from rescore.types import NbestList, Weights
from rescore.weights import load_weights
from rescore.workflows.combine import combine_list

LISTS = 8  # scored at once


@click.command(help=__doc__)
@click.argument("nbest")
@click.argument("ref", type=click.Path(path_type=Path))
@click.argument("lm")
@click.argument("weights", type=click.Path(path_type=Path))
@click.option("--lists", "count", type=int, help="The first so many lists alone.")
@click.option("--cpu", is_flag=True, help="CPU seconds in place of wall time (other work on the machine).")
def main(nbest: str, ref: Path, lm: str, weights: Path, count: int | None, cpu: bool) -> None:
    lists = list(itertools.islice(read_nbest(nbest), count))
    refs = read_kaldi_text(ref)
    refs = {part.utt_id: refs[part.utt_id] for part in lists}
    scales = Weights({name: scale for name, scale in load_weights(weights).scales.items() if scale})
    model = load(lm)
    words = sum(len(hyp.words) for part in lists for hyp in part.hyps)
    print(f"{lm}, {len(lists)} lists, {sum(len(part.hyps) for part in lists)} hypotheses, {words:,} words; ", end="")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {'CPU' if cpu else 'wall'} seconds\n")
    heading("dtype", "words/s", "mean error", "largest error", "WER %", "errors", "changed")
    exact, first = np.empty(0), []
    for dtype in DTYPES:
        made, now = ready(model, dtype), clock(cpu)
        start = now()
        scores = [made.score_hypotheses([hyp.words for part in some for hyp in part.hyps]) for some in batches(lists)]
        spent = now() - start
        totals = np.array([sum(hyp) for part in scores for hyp in part])
        best = chosen(lists, totals, lm, scales)
        if dtype == "float32":
            exact, first = totals, best
        off = np.abs(totals - exact)
        errors = corpus_errors(refs, {part.utt_id: hyp for part, hyp in zip(lists, best, strict=True)})
        changed = sum(a != b for a, b in zip(best, first, strict=True))
        rates = (f"{words / spent:,.0f}", f"{off.mean():.3f}", f"{off.max():.2f}", f"{errors.wer:.2f}")
        row(dtype, *rates, errors.errors, changed)


def batches(lists: list[NbestList]) -> list[list[NbestList]]:
    return [lists[start : start + LISTS] for start in range(0, len(lists), LISTS)]


def chosen(lists: list[NbestList], totals: np.ndarray, column: str, scales: Weights) -> list[tuple[str, ...]]:
    """The best hypothesis of every list, its LM scores, one a hypothesis in order, put in."""
    scores, best = iter(totals.tolist()), []
    for part in lists:
        hyps = [replace(hyp, scores={**hyp.scores, column: next(scores)}) for hyp in part.hyps]
        best.append(combine_list(replace(part, hyps=hyps), scales).hyps[0].words)
    return best


if __name__ == "__main__":
    main()
