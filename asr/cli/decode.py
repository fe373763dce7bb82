"""`asr decode`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

METHODS = ("greedy_search", "modified_beam_search", "fast_beam_search", "fast_beam_search_nbest")
LATTICES = ("slf", "k2", "kaldi-lat")
PATH = click.Path(path_type=Path)


@click.command()
@click.argument("cuts", nargs=-1, required=True, metavar="CUTS...", type=PATH)
@click.option("--model", "folder", type=PATH, help="Model folder; or give --exp-dir and --epoch.")
@click.option("--exp-dir", type=PATH, help="Folder of a training run.")
@click.option("--epoch", type=int, help="Last epoch to average.")
@click.option("--iter", "iteration", type=int, help="Last checkpoint-B.pt to average.")
@click.option("--avg", default=1, show_default=True, help="Checkpoints to average.")
@click.option("--use-averaged-model", type=bool, default=False, show_default=True, help="Average over all batches.")
@click.option("--out", type=PATH, help="Folder of the results; METHOD in the exp-dir or model folder if left out.")
@click.option(
    "--decoding-method", "method", type=click.Choice(METHODS), default="modified_beam_search", show_default=True
)
@click.option("--beam-size", default=4, show_default=True, type=click.IntRange(1), help="Of modified_beam_search.")
@click.option("--beam", default=20.0, show_default=True, help="Of fast_beam_search and of lattices (natural logs).")
@click.option("--max-contexts", default=8, show_default=True, type=click.IntRange(1), help="Of the same, a frame.")
@click.option("--max-states", default=64, show_default=True, type=click.IntRange(1), help="Of fast_beam_search.")
@click.option("--num-paths", default=200, show_default=True, type=click.IntRange(1), help="N of lattices' N-best.")
@click.option("--nbest-scale", default=0.5, show_default=True, help="Of scores while paths of like words are summed.")
@click.option("--lattices", type=click.Choice(LATTICES), help="Write word lattices too, in this format.")
@click.option("--lattice-beam", default=10.0, show_default=True, help="Keep paths so much below the best.")
@click.option("--lm", "lms", multiple=True, metavar="[NAME=]LM", help="An LM in the beam search; may be repeated.")
@click.option("--lm-scale", "lm_scales", multiple=True, type=float, help="Its scale, one for each --lm; 0.3 each.")
@click.option("--ilme-scale", default=0.0, show_default=True, help="How much of the internal LM is subtracted.")
@click.option("--lodr", type=str, metavar="ARPA", help="A token n-gram of low order that is subtracted.")
@click.option("--lodr-scale", default=0.1, show_default=True, help="How much of it.")
@click.option("--lang-dir", type=PATH, help="Folder with LG.pt and words.txt: the graph of fast_beam_search.")
@click.option("--max-duration", default=200.0, show_default=True, help="Seconds of speech in a batch.")
@click.option("--max-seconds", default=120.0, show_default=True, help="Longer cuts count as not recognised.")
@click.option("--device", default="cpu", show_default=True, help="Such as cpu or cuda.")
def command(
    cuts: tuple[Path, ...],
    folder: Path | None,
    exp_dir: Path | None,
    epoch: int | None,
    iteration: int | None,
    avg: int,
    use_averaged_model: bool,
    out: Path | None,
    lms: tuple[str, ...],
    lm_scales: tuple[float, ...],
    ilme_scale: float,
    lodr: str | None,
    lodr_scale: float,
    lang_dir: Path | None,
    max_duration: float,
    max_seconds: float,
    device: str,
    lattices: str | None,
    **settings: Any,
) -> None:
    """Decode cuts: icefall's recogs, errs and wer-summary files, N-best lists and lattices for `rescore`.

    The files are recogs-SET-SUFFIX.txt and so on, SET after the manifest's name. N-best lists keep `am` and the score
    of every LM apart. Without k2, or with an LSTM decoder, fast_beam_search is our own search with the same pruning.

    \b
    Example: asr decode --exp-dir exp --epoch 30 --avg 9 --use-averaged-model true --beam-size 8 \\
               --lm transfornn --lm-scale 0.4 --ilme-scale 0.2 data/cuts_test.jsonl.gz
    Example: asr decode --model asr/pretrained/small --lattices k2 --out exp/test cuts_test.jsonl.gz
    """
    from asr.average import average
    from asr.checkpoint import load_model
    from asr.decode import DecodeOptions, Decoder, Outputs, batches_of, decode_set, set_name
    from asr.fast_beam_search import load_graph
    from asr.search import Pieces
    from rescore.console import remark
    from rescore.errors import UsageError
    from rescore.wer import kaldi_lines

    if (folder is None) == (exp_dir is None):
        raise UsageError("give either --model FOLDER or --exp-dir FOLDER with --epoch (or --iter) and --avg")
    if exp_dir is not None:
        folder = average(exp_dir, None, epoch, iteration, avg, use_averaged_model, remark=remark)
    assert folder is not None
    names = [set_name(path) for path in cuts]
    if len(set(names)) < len(names):
        raise UsageError(
            f"two manifests have the same set name, {', '.join(names)}; decode them one by one, with --out"
        )
    model, vocab = load_model(folder)
    pieces = Pieces(vocab)
    fusion, fused = _fusion(pieces, lms, lm_scales, ilme_scale, lodr, lodr_scale)
    graph = (load_graph(lang_dir / "LG.pt"), lang_dir / "words.txt") if lang_dir else None
    options = DecodeOptions(lattices=lattices is not None, **settings)
    decoder = Decoder(model, pieces, options, fusion, graph, device)
    results = out or (exp_dir or folder) / options.method
    for path, name in zip(cuts, names, strict=True):
        outputs = Outputs(results, name, f"{folder.name}-{options.suffix}{fused}", lattices)
        counts, written = decode_set(decoder, *batches_of(path, max_duration, max_seconds), outputs)
        for line in kaldi_lines(counts) if counts else ["no references: no error rate"]:
            click.echo(f"{name}: {line}")
        for file in written:
            remark(f"wrote {file}")


def _fusion(
    pieces: Any, lms: tuple[str, ...], scales: tuple[float, ...], ilme_scale: float, lodr: str | None, lodr_scale: float
) -> tuple[Any, str]:
    """The LMs of the search, and what the names of files say of them."""
    from asr.fusion import make_fusion
    from lm_zoo.registry import load, load_ngram
    from rescore.errors import UsageError

    if scales and len(scales) != len(lms):
        raise UsageError(f"found {len(lms)} --lm and {len(scales)} --lm-scale, expected one scale for each LM, or none")
    loaded, text = {}, ""
    for spec, scale in zip(lms, scales or (0.3,) * len(lms), strict=True):
        name, equals, rest = spec.partition("=")
        if not equals:
            name, rest = Path(spec.partition("?")[0]).name, spec
        if name in loaded:
            raise UsageError(f"two LMs are called '{name}'; name them: --lm NAME=LM")
        loaded[name] = (load(rest), scale)
        text += f"-{name}-lm-scale-{scale}"
    text += f"-ilme-scale-{ilme_scale}" if ilme_scale else ""
    text += f"-lodr-scale-{lodr_scale}" if lodr else ""
    return make_fusion(pieces, loaded, ilme_scale, (load_ngram(lodr), lodr_scale) if lodr else None), text
