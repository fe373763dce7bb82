"""`asr decode`: from a model, LMs and manifests of cuts to files of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from asr.decoding.decode import Decoded, Decoder
from asr.decoding.load import batches_of, check_case, check_tokens, read_lms, read_model
from asr.decoding.options import DecodeOptions, DecodeRun
from asr.decoding.prefixes import Pieces
from asr.decoding.results import Outputs
from asr.decoding.sets import decode_set, folder_of_results, set_names, tell_of_cuts
from asr.decoding.transcribe import PRETRAINED
from asr.decoding.word_graph import load_graph
from lm_zoo.files import locked
from lm_zoo.inference.devices import find_device
from rescore.errors import UsageError
from rescore.evaluation.wer import ErrorCounts


def run(plan: DecodeRun, options: DecodeOptions, say: Callable[[str], None]) -> dict[str, ErrorCounts | None]:
    """Decodes all sets; the error rates go to `say`, a line at a time, and are returned by set (see `decode_set`).

    Raises:
      RescoreError, LMError: whatever the user can mend.
    """
    decoder, made = opened(plan, options)
    tell_of_cuts(plan.cuts, plan.allow_pipes)
    with ExitStack() as stack:
        for outputs in made:  # not the folder: decodings with other settings write there at the same time
            stack.enter_context(locked(outputs.folder / f"recogs-{outputs.name}-{outputs.suffix}.txt"))
        return decode_sets(decoder, plan, made, say)


def opened(plan: DecodeRun, options: DecodeOptions) -> tuple[Decoder, list[Outputs]]:
    """The decoder, with its model and LMs loaded, and where the results of each set go."""
    names = set_names(plan.cuts)
    if plan.out is None and plan.folder is not None and plan.folder.resolve().parent == PRETRAINED:
        raise UsageError(f"{plan.folder.name}: a model that ships; give --out, the folder of the results")
    device = find_device(plan.device)
    model, vocab, folder, model_name = read_model(plan)
    check_tokens(vocab, plan.bpe_model, folder)
    pieces, normaliser = Pieces(vocab), plan.normalise or "none"
    if normaliser == "none":
        for path in plan.cuts:
            check_case(path, plan.allow_pipes, pieces)
    fusion, fused = read_lms(plan, pieces)
    graph, searched = None, ""
    if plan.lang_dir:
        graph = load_graph(plan.lang_dir, pieces, options.ngram_lm_scale)
        searched = f"-{plan.lang_dir.resolve().name}-ngram-lm-scale-{options.ngram_lm_scale:g}"
    decoder = Decoder(model, pieces, options, fusion, graph, device)
    results = folder_of_results(plan.out or folder / options.method)
    setting = (options.setting + searched + fused).replace("-", "_")
    suffix = f"{model_name}-{options.suffix}{searched}{fused}"
    return decoder, [Outputs(results, name, suffix, setting, plan.lattices, normaliser) for name in names]


def decode_sets(
    decoder: Decoder, plan: DecodeRun, made: list[Outputs], say: Callable[[str], None]
) -> dict[str, ErrorCounts | None]:
    """Decodes each set into its outputs; the errors of each."""
    errors: dict[str, ErrorCounts | None] = {}
    for path, outputs in zip(plan.cuts, made, strict=True):
        found, left_out, total = batches_of(path, plan.max_duration, plan.max_seconds, plan.allow_pipes)
        errors[outputs.name] = decode_set(recognised(decoder, found), left_out, total, outputs, say)
    return errors


def recognised(decoder: Decoder, batches: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str, Decoded | None]]:
    """Id, transcript and what was recognised of each utterance; None for what the decoder gives up."""
    for batch in batches:
        ids = [str(utt_id) for utt_id in batch["ids"]]
        decoded = decoder(batch["features"], batch["lengths"], ids) if ids else []
        found = {one.nbest.utt_id: one for one in decoded}
        for utt_id, text in zip(ids, batch["texts"], strict=True):
            yield utt_id, text, found.get(utt_id)
