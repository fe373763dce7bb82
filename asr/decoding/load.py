"""What a decoding needs: the model, the LMs of its search, and batches of cuts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asr.dataset.loader import LoaderOptions, cut_text, make_loader
from asr.dataset.manifests import iter_cuts
from asr.decoding.options import LM_SCALE, DecodeRun
from asr.decoding.prefixes import Pieces
from asr.decoding.sets import cuts_to_decode
from asr.decoding.shallow_fusion import Fusion, make_fusion
from asr.errors import DataError
from asr.model.average import average
from asr.model.checkpoint import load_model
from asr.model.transducer import Transducer
from lm_zoo.inference.devices import find_device
from lm_zoo.reading import is_read_once, kaldi_fields
from lm_zoo.registry import load, load_ngram
from lm_zoo.text.vocabulary import PieceVocabulary
from rescore.console import remark
from rescore.errors import ReferencesError, UsageError
from rescore.evaluation.wer import letter_case
from rescore.file_names import base_name, split_name

if TYPE_CHECKING:
    from lhotse import CutSet


def read_model(plan: DecodeRun) -> tuple[Transducer, PieceVocabulary, Path, str]:
    """The model, its tokens, where it lies and its name: a model folder, or an average of the checkpoints of a run.

    Raises:
      UsageError: neither or both are named, or an average of a model folder.
      CheckpointError: a file is missing or damaged, or config, weights and tokens disagree.
    """
    if (plan.folder is None) == (plan.exp_dir is None):
        raise UsageError("give either --model FOLDER or --exp-dir FOLDER with --epoch (or --iter) and --avg")
    chosen = plan.epoch, plan.iteration, plan.avg, plan.use_averaged_model
    if plan.exp_dir is not None:
        made = average(plan.exp_dir, *chosen)
        remark(f"{plan.exp_dir}: {made.name}, average of {', '.join(made.checkpoints)}")
        return made.model, made.vocab, plan.exp_dir, made.name
    assert plan.folder is not None
    if chosen != (None, None, 1, False):
        raise UsageError(f"{plan.folder}: is decoded as it is; epochs, batches and averages are of an --exp-dir")
    return *load_model(plan.folder), plan.folder, plan.folder.name


def check_tokens(vocab: PieceVocabulary, bpe_model: Path | None, folder: Path) -> None:
    """Raises a DataError if `bpe_model` is given and not what the model in `folder` was trained with."""
    if bpe_model is None:
        return
    try:
        same = bpe_model.read_bytes() == vocab.model
    except OSError as error:
        raise DataError(f"--bpe-model {bpe_model}: cannot be read ({error.strerror})") from None
    if not same:
        raise DataError(
            f"--bpe-model {bpe_model}: not the pieces that {folder} was trained with, and has; leave the option out"
        )


def check_case(path: Path, allow_pipes: bool, pieces: Pieces) -> None:
    """Looks for transcripts in the other letter case, which would show when all is decoded; stops at the first others.

    Raises:
      ReferencesError: they are lower case throughout and the tokens upper case, or the other way round.
    """
    own, seen = letter_case([tuple(name for name in pieces.names if "<" not in name)]), set[str]()
    if own not in ("upper", "lower") or is_read_once(path):
        return
    for cut in iter_cuts(path, allow_pipes):
        seen.add(letter_case([tuple(kaldi_fields(cut_text(cut)))]))
        if seen & {own, "mixed"}:
            return
    if other := seen & {"upper", "lower"}:
        raise ReferencesError(
            f"{path}: the transcripts are {other.pop()} case throughout, the recogniser's tokens {own} case, so that "
            f"every word would be wrong: take --normalise basic, or transcripts in {own} case"
        )


def read_lms(plan: DecodeRun, pieces: Pieces) -> tuple[Fusion | None, str]:
    """The LMs of the search, on the recogniser's device, and what the names of files say of them."""
    lms, scales = plan.lms, plan.lm_scales
    if scales and len(scales) != len(lms):
        raise UsageError(f"found {len(lms)} --lm and {len(scales)} --lm-scale, expected one scale for each LM, or none")
    loaded, text = {}, ""
    for spec, scale in zip(lms, scales or (LM_SCALE,) * len(lms), strict=True):
        name, rest = _named(spec)
        if name in loaded:
            raise UsageError(f"two LMs are called '{name}'; name them: --lm NAME=LM")
        lm = load(rest)
        lm.move_to(find_device(plan.device))
        loaded[name] = (lm, scale)
        text += f"-{name}-lm-scale-{scale}"
    text += f"-ilme-scale-{plan.ilme_scale}" if plan.ilme_scale is not None else ""
    lodr = None
    if plan.lodr:
        name, rest = _named(plan.lodr)
        lodr = load_ngram(rest), plan.lodr_scale
        text += f"-lodr-{name}-scale-{plan.lodr_scale}"
    text += f"-word-reward-{plan.word_reward}" if plan.word_reward else ""
    text += "-text-view-exact" if lms and plan.text_view == "exact" else ""
    return make_fusion(pieces, loaded, plan.ilme_scale, lodr, plan.word_reward, plan.text_view == "exact"), text


def _named(spec: str) -> tuple[str, str]:
    """`[NAME=]LM` in two; without a name, the LM's own: that of its folder or file."""
    name, rest = split_name(spec)
    return name or base_name(spec.partition("?")[0]), rest


def _without_audio(path: Path, cuts: CutSet) -> bool:
    """Whether the first cut has no audio but stored features, as those of Kaldi's `feats.scp`; a remark says so."""
    found = any(not cut.has_recording and cut.has_features for cut in islice(cuts, 1))
    if found:
        remark(f"{path}: the cuts have no audio; their stored features are taken, which must be like those of training")
    return found


def batches_of(
    path: Path,
    max_duration: float,
    max_seconds: float,
    allow_pipes: bool = False,
    wanted: Callable[[int], bool] | None = None,
    lost: set[str] | None = None,
) -> tuple[Iterator[Any], Callable[[], dict[str, str]], int | None]:
    """What `decode_set` needs of a manifest of cuts: its batches, a function that tells what was left out, its size.

    Args:
      wanted: the batches to be loaded, by their numbers from 0; the others are given as None.
      lost:   gets the ids of what is left out, with every batch; what the caller adds is left out too.
    Raises:
      DataError, FormatError: there is no such manifest, it has no usable cut, the same id twice, or one with blanks.
    """
    cuts = cuts_to_decode(path, allow_pipes)
    loader = make_loader(
        cuts,
        LoaderOptions(
            max_duration=max_duration,
            max_seconds=max_seconds,
            min_seconds=0.0,
            shuffle=False,
            stored=_without_audio(path, cuts),
        ),
    )
    ids = set[str]() if lost is None else lost

    def batches() -> Iterator[Any]:
        for batch in loader(wanted=wanted):
            ids.update(*loader.left_out.ids.values())
            yield batch
        ids.update(*loader.left_out.ids.values())

    def left_out() -> dict[str, str]:
        return {cut.id: cut_text(cut) for cut in cuts if cut.id in ids} if ids else {}

    return batches(), left_out, None if cuts.is_lazy else len(cuts)
