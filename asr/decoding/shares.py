"""`asr decode` shared out: a part is a batch of the loader, which cuts a set the same way in every process."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asr.decoding.decode import Decoded, Decoder
from asr.decoding.load import batches_of
from asr.decoding.options import DecodeOptions, DecodeRun
from asr.decoding.results import Outputs
from asr.decoding.run import opened, recognised
from asr.decoding.run_written import opened_written, write_set
from asr.decoding.sets import decode_set, tell_of_cuts
from asr.decoding.shares_written import SUFFIX as SUFFIX_WRITTEN
from asr.decoding.shares_written import read_written, share_written
from asr.errors import DataError
from lm_zoo.files import locked
from lm_zoo.identity import content, lm_identity
from lm_zoo.reading import parse_json
from rescore import __version__
from rescore.evaluation.wer import ErrorCounts
from rescore.file_names import split_name
from rescore.files import atomic_text, read_lines
from rescore.formats.part_files import damage_told, lattice_from_json, lattice_to_json
from rescore.sharing.parts import (
    Note,
    Parts,
    Split,
    finished_splits,
    part_files,
    parts_beside,
    read_note,
    remove_parts,
    were_merged,
    whole_plan,
)
from rescore.sharing.shares import Sharing, share_out
from rescore.types import Hypothesis, NbestList
from rescore.workers import kept

if TYPE_CHECKING:
    from asr.model.transducer import Transducer

SUFFIX = ".decoded.gz"
Found = tuple[str, str, Decoded | None]  # id, transcript, and what was recognised


def run_shared(
    plan: DecodeRun, options: DecodeOptions, folder: Path | None, sharing: Sharing, say: Callable[[str], None]
) -> dict[str, ErrorCounts | None]:
    """Does the share that is asked for, or all of them, writes the results and gives the errors of each set.

    Args:
      folder: of an encoder-decoder; None for a transducer.
    """
    work = partial(_share, plan, options) if folder is None else partial(share_written, plan, options, folder)
    if sharing.split is not None:
        work(sharing.split)
        tell_of_cuts(plan.cuts, plan.allow_pipes)
        return {}
    # What is wrong with the options shows before any process starts.
    made = opened(plan, options)[1] if folder is None else opened_written(plan, options, folder)[1]
    tell_of_cuts(plan.cuts, plan.allow_pipes)
    share_out(work, sharing)
    return {outputs.name: merge_set(_folder(outputs), say) for outputs in made}


def merge(out: Path, say: Callable[[str], None]) -> dict[str, ErrorCounts | None]:
    """Writes the results of all sets whose shares are in a folder; the errors of each by the set's name.

    A set that was decoded in several ways goes by NAME-SUFFIX, as its files do.

    Raises:
      DataError: there are none.
      FormatError: a share or a part is missing.
    """
    folders = sorted(out.glob(".recogs-*.parts"))
    if not folders:
        raise DataError(f"{out}: no shares of a decoding; run asr decode --split K/N --out {out} first")
    left = [folder for folder in folders if not were_merged(folder)]
    plans = [whole_plan(folder, "outputs")["outputs"] for folder in left]
    count = Counter(made["name"] for made in plans)
    names = [made["name"] if count[made["name"]] == 1 else f"{made['name']}-{made['suffix']}" for made in plans]
    return {name: merge_set(folder, say) for name, folder in zip(names, left, strict=True)}


def merge_set(folder: Path, say: Callable[[str], None]) -> ErrorCounts | None:
    """Writes the results of a set from the folder of its parts, which goes; the errors."""
    shares, plan = finished_splits(folder), whole_plan(folder, "outputs")
    outputs = Outputs(**{**plan["outputs"], "folder": folder.parent})
    if plan.get("written"):
        files = part_files(folder, shares[0]["parts"], SUFFIX_WRITTEN)
        counts = write_set((found for file in files for found in read_written(file)), None, outputs, say)
        remove_parts(folder)
        return counts
    left_out = {utt_id: text for share in shares for utt_id, text in share["left out"].items()}
    files = part_files(folder, shares[0]["parts"], SUFFIX)
    counts = decode_set((found for file in files for found in _read(file)), lambda: left_out, None, outputs, say)
    remove_parts(folder)
    return counts


def _share(plan: DecodeRun, options: DecodeOptions, split: Split) -> None:
    decoder, made = kept((plan, options), lambda: opened(plan, options))
    for path, outputs in zip(plan.cuts, made, strict=True):
        folder = _folder(outputs)
        with locked(folder / f"split-{split.name}"):
            made_of = _plan_of(plan, options, path, outputs, decoder)
            _share_set(decoder, plan, path, partial(Parts, folder, made_of, split, SUFFIX))


def _share_set(decoder: Decoder, plan: DecodeRun, path: Path, open_parts: Callable[[], Parts]) -> None:
    """Does the parts of a share that are not there; the ids of what could not be loaded are in the note of each."""

    def wanted(index: int) -> bool:
        return parts.has(index) and not parts.path(index).exists()

    lost, noted = set[str](), set[str]()
    found, left_out, _ = batches_of(path, plan.max_duration, plan.max_seconds, plan.allow_pipes, wanted, lost)
    parts, number = open_parts(), 0  # what cannot begin leaves no plan
    for index, batch in enumerate(found):
        number = index + 1
        if batch is not None:
            parts.note(index, Note(skipped=sorted(lost - noted)))
            _write(parts.path(index), recognised(decoder, [batch]))
        elif parts.has(index):  # done by a run that was stopped
            lost.update(read_note(parts.folder, index).skipped)
        noted |= lost
    parts.finish({"parts": number, "left out": left_out()})


def _folder(outputs: Outputs) -> Path:
    return parts_beside(outputs.folder / f"recogs-{outputs.name}-{outputs.suffix}")


def _plan_of(plan: DecodeRun, options: DecodeOptions, path: Path, outputs: Outputs, decoder: Decoder) -> dict[str, Any]:
    """All that the results depend on, by content; audio by the names in the manifest."""
    lms = [*plan.lms, *([plan.lodr] if plan.lodr else [])]
    scales = ("lm_scales", "ilme_scale", "lodr_scale", "word_reward")
    others = ("text_view", "max_duration", "max_seconds", "device")
    return {
        "command": "asr decode",
        "version": __version__,
        "cuts": content([path]),
        "model": _digest(decoder.model, decoder.pieces.vocab.model),
        "--lm, --lodr": [lm_identity(split_name(lm)[1]) for lm in lms],
        "--lang-dir": content([plan.lang_dir]) if plan.lang_dir else None,
        "search": asdict(options),
        "settings": {name: getattr(plan, name) for name in (*scales, *others)},
        "outputs": {**vars(outputs), "folder": str(outputs.folder)},
    }


def _digest(model: Transducer, pieces: bytes) -> str:
    total = hashlib.blake2b(pieces, digest_size=16)
    for name, values in sorted(model.state_dict().items()):
        total.update(name.encode() + values.cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


# -- the file of a part -------------------------------------------------------------------------------------------


def _write(path: Path, utterances: Iterable[Found]) -> None:
    with atomic_text(path) as stream:
        for utt_id, text, decoded in utterances:
            entry: dict[str, Any] = {"utt_id": utt_id, "text": text}
            if decoded is not None:
                entry["hyps"] = [[hyp.words, hyp.scores] for hyp in decoded.nbest.hyps]
                entry["lattice"] = decoded.lattice and lattice_to_json(decoded.lattice)
            stream.write(json.dumps(entry, ensure_ascii=False) + "\n")


def _read(path: Path) -> Iterator[Found]:
    """The utterances of a part; raises a FormatError if it is damaged."""
    for number, line in read_lines(path):
        with damage_told(path, number):
            entry = parse_json(line)
            utt_id, text, decoded = entry["utt_id"], entry["text"], None
            if "hyps" in entry:
                hyps = [Hypothesis(tuple(words), scores) for words, scores in entry["hyps"]]
                lattice = entry["lattice"] and lattice_from_json(entry["lattice"])
                decoded = Decoded(NbestList(utt_id, hyps), lattice)
        yield utt_id, text, decoded
