"""`asr decode` with an encoder-decoder: from manifests of cuts to files of results.

What has been found is kept in `nbest-SET-SUFFIX.part.jsonl`, a line an utterance in the order of the cuts; a run that
was killed goes on there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from asr.dataset.loader import cut_text, load_errors, load_samples, load_trouble
from asr.decoding.decode import Decoded
from asr.decoding.journal import Journal
from asr.decoding.options import DecodeOptions, DecodeRun
from asr.decoding.results import Outputs
from asr.decoding.sets import cuts_to_decode, decode_set, folder_of_results, set_names, tell_of_cuts
from asr.decoding.written import NORMALISER, WrittenDecoder
from asr.errors import DataError
from asr.seq2seq.models import load, model_files
from lm_zoo.files import locked, write_text
from lm_zoo.identity import content
from lm_zoo.reading import kaldi_fields
from lm_zoo.text.normalise import normalise
from rescore import __version__
from rescore.console import remark, some_names
from rescore.errors import UsageError
from rescore.evaluation.wer import ErrorCounts
from rescore.files import file_identity, write_kaldi_text
from rescore.types import Hypothesis, NbestList, Words

if TYPE_CHECKING:
    from lhotse.cut import Cut

FOR_TRANSDUCERS = {  # of `DecodeRun`: the option that it comes from
    "exp_dir": "--exp-dir",
    "lms": "--lm",
    "lodr": "--lodr",
    "ilme_scale": "--ilme-scale",
    "word_reward": "--word-reward",
    "lang_dir": "--lang-dir",
    "lattices": "--lattices",
    "bpe_model": "--bpe-model",
}


def run_written(
    plan: DecodeRun, options: DecodeOptions, folder: Path, say: Callable[[str], None]
) -> dict[str, ErrorCounts | None]:
    """Decodes all sets with the encoder-decoder in `folder`; the error rates go to `say`, and are returned by set.

    Raises:
      RescoreError, LMError: whatever the user can mend.
    """
    decoder, made, made_by = opened_written(plan, options, folder)
    tell_of_cuts(plan.cuts, plan.allow_pipes)
    errors: dict[str, ErrorCounts | None] = {}
    for path, outputs in zip(plan.cuts, made, strict=True):
        with locked(outputs.folder / f"recogs-{outputs.name}-{outputs.suffix}.txt"):
            errors[outputs.name] = _decode_cuts(decoder, path, plan.allow_pipes, outputs, made_by, say)
    return errors


def opened_written(
    plan: DecodeRun, options: DecodeOptions, folder: Path
) -> tuple[WrittenDecoder, list[Outputs], dict[str, Any]]:
    """The decoder with its model loaded, where the results of each set go, and all that they are made by but cuts."""
    check_plan(plan, options)
    names, normaliser = set_names(plan.cuts), plan.normalise or NORMALISER
    recogniser = load(folder, Path(str(plan.folder)).name, torch.get_num_threads())
    recogniser = replace(recogniser, max_seconds=min(plan.max_seconds, recogniser.max_seconds))
    decoder = WrittenDecoder(recogniser, options.method, options.beam_size, normalise(normaliser))
    made_by = {
        "model": [file_identity(path) for path in model_files(folder)],
        "options": asdict(decoder.options),
        "method": options.method,
        "normalise": normaliser,
        "max_seconds": recogniser.max_seconds,
        "version": __version__,
    }
    assert plan.out is not None
    results, suffix = folder_of_results(plan.out), f"{recogniser.name}-{options.suffix}"
    made = [Outputs(results, name, suffix, options.setting, normaliser=normaliser) for name in names]
    return decoder, made, made_by


def _decode_cuts(
    decoder: WrittenDecoder,
    path: Path,
    allow_pipes: bool,
    outputs: Outputs,
    made_by: dict[str, Any],
    say: Callable[[str], None],
) -> ErrorCounts | None:
    cuts = cuts_to_decode(path, allow_pipes)
    made_by = {**made_by, "cuts": content([path])}
    journal = Journal(outputs.folder / f"nbest-{outputs.name}-{outputs.suffix}.part.jsonl", made_by)
    if journal.count:
        remark(f"{journal.path}: goes on after {journal.count} utterances")
    found = ((cut_text(cut), entry) for cut, entry in entries(decoder, cuts, journal))
    errors = write_set(found, None if cuts.is_lazy else len(cuts), outputs, say)
    journal.remove()
    return errors


def write_set(
    found: Iterable[tuple[str, dict[str, Any]]], total: int | None, outputs: Outputs, say: Callable[[str], None]
) -> ErrorCounts | None:
    """Writes the results of a set, of the transcript and the entry (see `entries`) of each of `total` utterances."""
    cut_off: list[str] = []
    single: dict[str, Words] = {}

    def utterances() -> Iterator[tuple[str, str, Decoded | None]]:
        for text, entry in found:
            utt_id = entry["id"]
            if "lost" in entry:
                remark(f"cut {utt_id} left out: {entry['lost']}")
            elif entry["cut"]:
                cut_off.append(utt_id)
            single[utt_id] = tuple(kaldi_fields(entry.get("single", "")))
            yield utt_id, text, decoded(entry)

    errors = decode_set(utterances(), dict, total, outputs, say)
    stem = f"{outputs.name}-{outputs.suffix}"
    write_kaldi_text(outputs.folder / f"single-{stem}.txt", single)
    write_text(outputs.folder / f"cut-off-{stem}.txt", "".join(f"{utt_id}\n" for utt_id in cut_off))
    if cut_off:
        remark(f"{outputs.name}: {len(cut_off)} utterances cut off at the limit of length ({some_names(cut_off)})")
    return errors


def check_plan(plan: DecodeRun, options: DecodeOptions) -> None:
    """Raises UsageError for settings that only transducers have, and without a folder for the results."""
    found = [option for name, option in FOR_TRANSDUCERS.items() if getattr(plan, name)]
    found += [] if options.length_norm else ["--length-norm"]
    if found:
        raise UsageError(
            f"{plan.folder}: an encoder-decoder takes no {', '.join(found)}; rescore its N-best lists instead"
        )
    if plan.device != "cpu":
        raise UsageError(f"{plan.folder}: an encoder-decoder runs on the CPU, found --device {plan.device}")
    if plan.out is None:
        raise UsageError(f"{plan.folder}: give --out, the folder of the results")


def entries(decoder: WrittenDecoder, cuts: Iterable[Cut], journal: Journal) -> Iterator[tuple[Cut, dict[str, Any]]]:
    """What is found for each cut, from the journal as far as it goes.

    An entry has `id`, and either `hyps` (text, scores), `single` and `cut` (see `WrittenList`), or `lost`, the reason.

    Raises:
      DataError: the journal is of other cuts.
    """
    known = iter(journal)
    for cut in cuts:
        entry = next(known, None)
        if entry is None:
            journal.add(entry := recognise(decoder, cut))
        elif entry["id"] != cut.id:
            problem = f"found {entry['id']}, expected {cut.id}, as the cuts have"
            raise DataError(f"{journal.path}: of other cuts ({problem}); remove it or name another --out")
        yield cut, entry


def recognise(decoder: WrittenDecoder, cut: Cut) -> dict[str, Any]:
    """The entry of a cut, see `entries`."""
    try:
        found = decoder.nbest(load_samples(cut), cut.id)
    except load_errors() as error:
        return {"id": cut.id, "lost": load_trouble(cut, error)}
    hyps = [[" ".join(hyp.words), hyp.scores] for hyp in found.nbest.hyps]
    return {"id": cut.id, "hyps": hyps, "single": found.single, "cut": found.cut}


def decoded(entry: dict[str, Any]) -> Decoded | None:
    """An entry of the journal as the results take it; None for one that is lost."""
    if "lost" in entry:
        return None
    hyps = [Hypothesis(tuple(kaldi_fields(text)), scores) for text, scores in entry["hyps"]]
    return Decoded(NbestList(entry["id"], hyps), None)
