"""`asr decode` with an encoder-decoder shared out: a part is some cuts, in the order of the manifest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asr.dataset.loader import cut_text
from asr.decoding.options import DecodeOptions, DecodeRun
from asr.decoding.results import Outputs
from asr.decoding.run_written import opened_written, recognise
from asr.decoding.sets import cuts_to_decode
from asr.decoding.written import WrittenDecoder
from lm_zoo.files import locked
from lm_zoo.identity import content
from lm_zoo.reading import parse_json
from rescore.files import atomic_text, read_lines
from rescore.formats.part_files import damage_told
from rescore.sharing.parts import Parts, Split, bites, parts_beside
from rescore.workers import kept

if TYPE_CHECKING:
    from lhotse.cut import Cut

SUFFIX = ".written.gz"
CUTS = 16  # of a part: what a share that is killed has to do again, at most


def share_written(plan: DecodeRun, options: DecodeOptions, folder: Path, split: Split) -> None:
    """Does one share of all sets, with the encoder-decoder in `folder`."""
    decoder, made, made_by = kept((plan, options, folder), lambda: opened_written(plan, options, folder))
    for path, outputs in zip(plan.cuts, made, strict=True):
        cuts = cuts_to_decode(path, plan.allow_pipes)  # what cannot begin leaves no plan
        parts_folder = parts_beside(outputs.folder / f"recogs-{outputs.name}-{outputs.suffix}")
        with locked(parts_folder / f"split-{split.name}"):
            parts = Parts(parts_folder, _plan_of(path, outputs, made_by), split, SUFFIX)
            _share_set(decoder, cuts, parts)


def _share_set(decoder: WrittenDecoder, cuts: Iterable[Cut], parts: Parts) -> None:
    number = 0
    for index, (_, bite) in enumerate(bites(cuts, CUTS)):
        number = index + 1
        if not parts.has(index) or parts.path(index).exists():
            continue
        with atomic_text(parts.path(index)) as stream:
            for cut in bite:
                stream.write(json.dumps([cut_text(cut), recognise(decoder, cut)], ensure_ascii=False) + "\n")
    parts.finish({"parts": number})


def _plan_of(path: Path, outputs: Outputs, made_by: dict[str, Any]) -> dict[str, Any]:
    """All that the results depend on, by content; audio by the names in the manifest."""
    written = {**vars(outputs), "folder": str(outputs.folder)}
    return {"command": "asr decode", "written": True, "cuts": content([path]), "outputs": written, **made_by}


def read_written(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The transcript and the entry of each utterance of a part.

    Raises:
      FormatError: the part is damaged.
    """
    for number, line in read_lines(path):
        with damage_told(path, number):
            text, entry = parse_json(line)
            if not isinstance(text, str) or not isinstance(entry["id"], str):
                raise ValueError("no utterance")
        yield text, entry
