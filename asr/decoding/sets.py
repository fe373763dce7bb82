"""A set of utterances from the decoder to the files of results, whatever the decoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from asr.dataset.features import NARROW_BAND, SAMPLE_RATE
from asr.dataset.loader import A_CUT_EACH, partly_heard
from asr.dataset.manifests import check_ids, ids_of, is_shar, iter_cuts, load_cuts, own_name
from asr.decoding.decode import Decoded
from asr.decoding.results import Outputs, Results, empty_lattice, empty_nbest
from asr.errors import DataError
from lm_zoo.reading import is_read_once
from rescore.console import progress, remark, some_names
from rescore.errors import UsageError
from rescore.evaluation.wer import ErrorCounts, kaldi_lines
from rescore.files import make_folder
from rescore.skipping import count_skipped

if TYPE_CHECKING:
    from lhotse import CutSet


def decode_set(
    utterances: Iterable[tuple[str, str, Decoded | None]],
    left_out: Callable[[], dict[str, str]],
    total: int | None,
    outputs: Outputs,
    say: Callable[[str], None],
) -> ErrorCounts | None:
    """Writes what `Outputs` says of a set; the error rates go to `say`, a line at a time.

    Cuts that could not be loaded count as recognised without a word.  N-best lists and lattices wait on disk: memory
    does not grow with the number of utterances, but for their words.

    Args:
      utterances: id, transcript and what was recognised of each; None for what the decoder gives up.
      left_out: gives, after the last of them, the cuts that are not among them, with their texts.
      total: how many utterances there are, for the progress bar; None where that is not known.
    Returns:
      the errors, or None without any reference word.
    Raises:
      DataError: not one utterance could be recognised, or two have the same id.
    """
    results = Results(make_folder(outputs.folder))
    lost: dict[str, str] = {}
    for utt_id, text, decoded in progress(utterances, outputs.name, total):
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
        count_skipped(len(lost))
    for utt_id, text in lost.items():
        lattice = empty_lattice(utt_id, results.lattice_scores) if results.lattice_scores else None
        results.add(Decoded(empty_nbest(utt_id, results.scores), lattice), text)
    counts, written = results.write(outputs)
    for line in kaldi_lines(counts) if counts else ["no references: no error rate"]:
        say(f"{outputs.name}: {line}")
    for file in written:
        remark(f"wrote {file}")
    return counts


def folder_of_results(path: Path) -> Path:
    """The folder, which is made when something is written into it.

    Raises:
      UsageError: it is no folder.
    """
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path}: is a file, expected a folder for the results")
    return path


def cuts_to_decode(path: Path, allow_pipes: bool) -> CutSet:
    """The cuts of a manifest, with ids that differ and can stand in texts."""
    cuts = load_cuts(path, allow_pipes=allow_pipes)
    check_ids(path, ids_of(path, cuts))
    return cuts


def tell_of_cuts(paths: Sequence[Path], allow_pipes: bool) -> None:
    """Says which cuts hold a part alone of their words, all of which are references, and which are of narrow band.

    Nothing of Shar and of pipes.
    """
    for path in paths:
        if not path.exists() or is_read_once(path) or is_shar(path):
            continue
        partly, narrow = [], []
        for cut in iter_cuts(path, allow_pipes):
            if partly_heard(cut):
                partly.append(cut.id)
            if cut.has_recording and (cut.sampling_rate or SAMPLE_RATE) < SAMPLE_RATE:
                narrow.append(cut.id)
        if partly:
            remark(
                f"{path}: {len(partly)} cuts have words beyond their audio ({some_names(partly)}), all of which count "
                f"as references; {A_CUT_EACH}"
            )
        if narrow:
            few = f"fewer than {SAMPLE_RATE} samples a second"
            remark(f"{path}: {len(narrow)} cuts have {few} ({some_names(narrow)}); {NARROW_BAND}")


def set_names(paths: Sequence[Path]) -> list[str]:
    """The names of sets, which differ; all are there, as none is to be missed when others have been decoded.

    Raises:
      DataError: one is missing.  UsageError: two names are the same.
    """
    if missing := [str(path) for path in paths if not (path.exists() or is_read_once(path))]:
        raise DataError(f"{', '.join(missing)}: no such file; expected a manifest of cuts")
    names = [set_name(path) for path in paths]
    if len(set(names)) < len(names):
        raise UsageError(
            f"two manifests have the same set name, {', '.join(names)}; decode them one by one, with --out"
        )
    return names


def set_name(path: Path) -> str:
    """The name of a set from that of its manifest: `librispeech_cuts_test-clean.jsonl.gz` is `test-clean`."""
    stem = re.sub(r"(\.jsonl|\.json|\.yaml)?(\.gz)?$", "", own_name(path))
    return re.sub(r"^(.*_)?cuts?_|_cuts?$", "", stem) or stem
