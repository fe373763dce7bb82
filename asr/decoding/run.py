"""`asr decode`: from a model, LMs and manifests of cuts to files of results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asr.decoding.decode import Decoder, Outputs, decode_set
from asr.decoding.k2_beam_search import load_graph
from asr.decoding.options import DecodeOptions
from asr.decoding.prefixes import Pieces
from asr.decoding.shallow_fusion import Fusion, make_fusion
from asr.device import check_device
from asr.errors import DataError
from asr.model.average import average
from asr.model.checkpoint import load_model
from lm_zoo.files import locked
from lm_zoo.registry import load, load_ngram
from rescore.console import remark
from rescore.errors import UsageError
from rescore.evaluation.wer import kaldi_lines
from rescore.files import make_folder

LM_SCALE = 0.3  # of each LM where no scale is given


@dataclass(frozen=True)
class DecodeRun:
    """What is decoded and with what, beside the settings of the search.

    Attributes:
      cuts:    manifests, each a set of its own.
      folder:  model folder; or `exp_dir` with `epoch` or `iteration`, `avg` and `use_averaged_model` (see `average`).
      out:     folder of the results; None: METHOD in `exp_dir` or `folder`.
      lms:     `[NAME=]LM`; lm_scales: one for each, or none.
      lodr:    a token n-gram that is subtracted.
      lang_dir: folder with LG.pt and words.txt.
      max_duration, max_seconds: of a batch, of a cut.
      lattices: format of the lattices, or None.
      allow_pipes: run the commands that the manifests name.
    """

    cuts: tuple[Path, ...]
    folder: Path | None = None
    exp_dir: Path | None = None
    epoch: int | None = None
    iteration: int | None = None
    avg: int = 1
    use_averaged_model: bool = False
    out: Path | None = None
    lms: tuple[str, ...] = ()
    lm_scales: tuple[float, ...] = ()
    ilme_scale: float = 0.0
    lodr: str | None = None
    lodr_scale: float = 0.1
    word_reward: float = 0.0
    lang_dir: Path | None = None
    max_duration: float = 200.0
    max_seconds: float = 120.0
    device: str = "cpu"
    lattices: str | None = None
    allow_pipes: bool = False


def run(plan: DecodeRun, options: DecodeOptions, say: Callable[[str], None]) -> None:
    """Decodes all sets; the error rates go to `say`, a line at a time.

    Raises:
      RescoreError, LMError: whatever the user can mend.
    """
    names = [set_name(path) for path in plan.cuts]
    if len(set(names)) < len(names):
        raise UsageError(
            f"two manifests have the same set name, {', '.join(names)}; decode them one by one, with --out"
        )
    device = check_device(plan.device)
    folder = model_folder(plan)
    model, vocab = load_model(folder)
    pieces = Pieces(vocab)
    fusion, fused = read_lms(plan, pieces)
    graph = (load_graph(plan.lang_dir / "LG.pt"), plan.lang_dir / "words.txt") if plan.lang_dir else None
    decoder = Decoder(model, pieces, options, fusion, graph, device)
    results = make_folder(plan.out or (plan.exp_dir or folder) / options.method)
    setting, suffix = (options.setting + fused).replace("-", "_"), f"{folder.name}-{options.suffix}{fused}"
    made = [Outputs(results, name, suffix, setting, plan.lattices) for name in names]
    with ExitStack() as stack:
        for outputs in made:  # not the folder: decodings with other settings write there at the same time
            stack.enter_context(locked(results / f"recogs-{outputs.name}-{suffix}.txt"))
        decode_sets(decoder, plan, made, say)


def decode_sets(decoder: Decoder, plan: DecodeRun, made: list[Outputs], say: Callable[[str], None]) -> None:
    """Decodes each set into its outputs."""
    for path, outputs in zip(plan.cuts, made, strict=True):
        batches = batches_of(path, plan.max_duration, plan.max_seconds, plan.allow_pipes)
        counts, written = decode_set(decoder, *batches, outputs)
        for line in kaldi_lines(counts) if counts else ["no references: no error rate"]:
            say(f"{outputs.name}: {line}")
        for file in written:
            remark(f"wrote {file}")


def model_folder(plan: DecodeRun) -> Path:
    """The model folder; made of the checkpoints of a run where these are given."""
    if (plan.folder is None) == (plan.exp_dir is None):
        raise UsageError("give either --model FOLDER or --exp-dir FOLDER with --epoch (or --iter) and --avg")
    chosen = plan.epoch, plan.iteration, plan.avg, plan.use_averaged_model
    if plan.exp_dir is None:
        assert plan.folder is not None
        if chosen != (None, None, 1, False):
            raise UsageError(f"{plan.folder}: is decoded as it is; epochs, batches and averages are of an --exp-dir")
        return plan.folder
    return average(plan.exp_dir, None, *chosen, remark=remark)


def read_lms(plan: DecodeRun, pieces: Pieces) -> tuple[Fusion | None, str]:
    """The LMs of the search, and what the names of files say of them."""
    lms, scales = plan.lms, plan.lm_scales
    if scales and len(scales) != len(lms):
        raise UsageError(f"found {len(lms)} --lm and {len(scales)} --lm-scale, expected one scale for each LM, or none")
    loaded, text = {}, ""
    for spec, scale in zip(lms, scales or (LM_SCALE,) * len(lms), strict=True):
        name, equals, rest = spec.partition("=")
        if not equals:
            name, rest = Path(spec.partition("?")[0]).name, spec
        if name in loaded:
            raise UsageError(f"two LMs are called '{name}'; name them: --lm NAME=LM")
        loaded[name] = (load(rest), scale)
        text += f"-{name}-lm-scale-{scale}"
    text += f"-ilme-scale-{plan.ilme_scale}" if plan.ilme_scale else ""
    text += f"-lodr-scale-{plan.lodr_scale}" if plan.lodr else ""
    text += f"-word-reward-{plan.word_reward}" if plan.word_reward else ""
    lodr = (load_ngram(plan.lodr), plan.lodr_scale) if plan.lodr else None
    return make_fusion(pieces, loaded, plan.ilme_scale, lodr, plan.word_reward), text


def set_name(path: Path) -> str:
    """The name of a set from that of its manifest: `librispeech_cuts_test-clean.jsonl.gz` is `test-clean`."""
    stem = re.sub(r"(\.jsonl|\.json|\.yaml)?(\.gz)?$", "", path.name)
    return re.sub(r"^(.*_)?cuts?_|_cuts?$", "", stem) or stem


def batches_of(
    path: Path, max_duration: float, max_seconds: float, allow_pipes: bool = False
) -> tuple[Iterator[dict[str, Any]], Callable[[], dict[str, str]], int | None]:
    """What `decode_set` needs of a manifest of cuts: its batches, a function that tells what was left out, its size.

    Raises:
      DataError, FormatError: there is no such manifest, it has no usable cut, or the same id twice.
    """
    from asr.dataset.loader import LoaderOptions, cut_text, make_loader
    from asr.dataset.manifests import load_cuts

    cuts = load_cuts(path, allow_pipes=allow_pipes)
    if not cuts.is_lazy:
        for cut_id, count in Counter(cut.id for cut in cuts).items():
            if count > 1:
                raise DataError(f"{path}: {count} cuts have the id '{cut_id}', expected ids that differ")
    options = LoaderOptions(max_duration=max_duration, max_seconds=max_seconds, min_seconds=0.0, shuffle=False)
    loader = make_loader(cuts, options)

    def left_out() -> dict[str, str]:
        ids = set().union(*loader.left_out.ids.values()) if loader.left_out.ids else set()
        return {cut.id: cut_text(cut) for cut in cuts if cut.id in ids} if ids else {}

    return loader(), left_out, None if cuts.is_lazy else len(cuts)
