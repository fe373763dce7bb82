"""`asr decode`: from a model, LMs and manifests of cuts to files of results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from asr.decoding.decode import Decoded, Decoder
from asr.decoding.k2_beam_search import load_graph
from asr.decoding.load import batches_of, read_lms, read_model
from asr.decoding.options import DecodeOptions, DecodeRun
from asr.decoding.prefixes import Pieces
from asr.decoding.results import Outputs, Results, empty_lattice, empty_nbest
from asr.errors import DataError
from lm_zoo.files import locked
from lm_zoo.inference.devices import find_device
from rescore.console import progress, remark
from rescore.errors import UsageError
from rescore.evaluation.wer import ErrorCounts, kaldi_lines
from rescore.files import make_folder


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
    device = find_device(plan.device)
    model, vocab, folder, model_name = read_model(plan)
    pieces = Pieces(vocab)
    fusion, fused = read_lms(plan, pieces)
    graph = (load_graph(plan.lang_dir / "LG.pt"), plan.lang_dir / "words.txt") if plan.lang_dir else None
    decoder = Decoder(model, pieces, options, fusion, graph, device)
    results = make_folder(plan.out or folder / options.method)
    setting, suffix = (options.setting + fused).replace("-", "_"), f"{model_name}-{options.suffix}{fused}"
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


def decode_set(
    decoder: Decoder,
    batches: Iterable[dict[str, Any]],
    left_out: Callable[[], dict[str, str]],
    total: int | None,
    outputs: Outputs,
) -> tuple[ErrorCounts | None, list[str]]:
    """Decodes the batches of `asr.dataset.loader` and writes what `Outputs` says.

    Cuts that could not be loaded count as recognised without a word.  N-best lists and lattices wait on disk: memory
    does not grow with the number of utterances, but for their words.

    Args:
      left_out: gives, after the last batch, the cuts that are in no batch, with their texts.
      total: how many utterances there are, for the progress bar; None where that is not known.
    Returns:
      the errors (None without any reference word), and what was written.
    Raises:
      DataError: not one utterance could be recognised, or two have the same id.
    """
    results = Results(make_folder(outputs.folder))
    lost: dict[str, str] = {}
    for utt_id, text, decoded in progress(_utterances(decoder, batches), outputs.name, total):
        if decoded is None:
            lost[utt_id] = text
        else:
            results.add(decoded, text)
    lost |= left_out()
    if not results.hyps:
        raise DataError(f"{outputs.name}: none of {len(lost)} utterances could be recognised; see those left out")
    if lost:
        count = len(results.hyps) + len(lost)
        remark(f"{outputs.name}: {len(lost)} of {count} utterances were not recognised; they count as without a word")
    for utt_id, text in lost.items():
        results.add(Decoded(empty_nbest(utt_id, results.scores), empty_lattice(utt_id)), text)
    return results.write(outputs)


def _utterances(decoder: Decoder, batches: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str, Decoded | None]]:
    """Id, transcript and what was recognised of each utterance; None for what the decoder gives up."""
    for batch in batches:
        ids = [str(utt_id) for utt_id in batch["ids"]]
        decoded = decoder(batch["features"], batch["lengths"], ids) if ids else []
        found = {one.nbest.utt_id: one for one in decoded}
        for utt_id, text in zip(ids, batch["texts"], strict=True):
            yield utt_id, text, found.get(utt_id)


def set_name(path: Path) -> str:
    """The name of a set from that of its manifest: `librispeech_cuts_test-clean.jsonl.gz` is `test-clean`."""
    stem = re.sub(r"(\.jsonl|\.json|\.yaml)?(\.gz)?$", "", path.name)
    return re.sub(r"^(.*_)?cuts?_|_cuts?$", "", stem) or stem
