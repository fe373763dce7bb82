"""What a decoding run leaves: icefall's recogs, errs and wer-summary files, N-best lists and lattices of `rescore`."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from asr.decoding.decode import Decoded
from asr.errors import DataError
from lm_zoo.reading import kaldi_fields
from lm_zoo.text.normalise import normalise
from rescore.evaluation.icefall_errs import write_errs
from rescore.evaluation.wer import ErrorCounts, corpus_errors
from rescore.files import atomic_text
from rescore.formats import write_lattices, write_nbest
from rescore.types import Hypothesis, Lattice, NbestList, Words


class Spool:
    """Objects that wait in a temporary file until all are there and can be given in the order of their names.

    The file has no name and goes when the Spool does; in memory is one number for each name.
    """

    def __init__(self, folder: Path) -> None:
        """`folder`: where the temporary file lies, for the room on its disk."""
        self._stream = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._places: dict[str, int] = {}

    def add(self, name: str, item: Any) -> None:
        """Raises DataError if the name was there before, OSError if the disk is full; then nothing can be added."""
        if name in self._places:
            raise DataError(f"utterance '{name}' occurs a second time; the ids of cuts must differ")
        self._places[name] = self._stream.seek(0, os.SEEK_END)
        try:
            pickle.dump(item, self._stream, pickle.HIGHEST_PROTOCOL)
            self._stream.flush()
        except OSError:  # what is still to be written would be tried again, and told, when Python throws the file away
            with suppress(OSError):
                self._stream.close()
            raise

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Any]:
        """All of them, sorted by name."""
        for name in sorted(self._places):
            self._stream.seek(self._places[name])
            yield pickle.load(self._stream)


def write_recogs(path: Path, refs: Mapping[str, Words], hyps: Mapping[str, Words]) -> None:
    """Two lines an utterance, sorted by id, as icefall's `store_transcripts`: `ID:\\tref=[...]`, `ID:\\thyp=[...]`."""
    with atomic_text(path) as stream:
        for utt_id in sorted(hyps):
            print(f"{utt_id}:\tref={list(refs[utt_id])}", file=stream)
            print(f"{utt_id}:\thyp={list(hyps[utt_id])}", file=stream)


def write_icefall(
    folder: Path, name: str, suffix: str, setting: str, refs: Mapping[str, Words], hyps: Mapping[str, Words]
) -> ErrorCounts:
    """Writes `recogs-NAME-SUFFIX.txt`, `errs-NAME-SUFFIX.txt` and `wer-summary-NAME-SUFFIX.txt`.

    Args:
      setting: what stands before the WER in the summary, such as `beam_size_4`.
    Raises:
      ReferencesError: references and hypotheses differ in their letter case, or there is no reference word.
    """
    write_recogs(folder / f"recogs-{name}-{suffix}.txt", refs, hyps)
    counts = corpus_errors(refs, hyps)
    write_errs(folder / f"errs-{name}-{suffix}.txt", dict(sorted(refs.items())), hyps)
    with atomic_text(folder / f"wer-summary-{name}-{suffix}.txt") as stream:
        print("settings\tWER", file=stream)
        print(f"{setting}\t{counts.wer:.2f}", file=stream)
    return counts


def empty_nbest(utt_id: str, names: Iterable[str]) -> NbestList:
    """Stands for an utterance that could not be decoded: no words, all scores 0."""
    return NbestList(utt_id, [Hypothesis((), dict.fromkeys(names, 0.0))])


def empty_lattice(utt_id: str, names: Iterable[str]) -> Lattice:
    """As `empty_nbest`: one arc without a word."""
    src, dst, labels = (np.array([value], dtype=np.int32) for value in (0, 1, 0))
    return Lattice(utt_id, 2, src, dst, labels, {name: np.zeros(1) for name in names}, [""], np.zeros(2))


def save_nbest(path: Path, lists: Iterable[NbestList]) -> None:
    """Writes N-best lists as they come, as JSON lines (`.jsonl`, `.jsonl.gz`)."""
    write_nbest(f"jsonl:{path}", lists)


def save_lattices(kind: str, path: Path, lattices: Iterable[Lattice], words: Iterable[str]) -> str:
    """Writes word lattices that `rescore` reads, as they come (k2's file holds all of them: they are in memory then).

    Args:
      kind: `slf` (a folder), `k2` (one `.pt`) or `kaldi-lat` (one `.ark`); the latter two get a `PATH.words.txt`.
      path: without a suffix.
      words: all that are in the lattices.
    Returns:
      the name by which `rescore` reads them: `FORMAT:PATH?words=...`.
    """
    if kind == "slf":
        spec = f"slf:{path}"
        if path.is_dir():  # of an earlier decoding, like the other files of this name
            shutil.rmtree(path)
    else:
        file = path.with_name(path.name + (".pt" if kind == "k2" else ".ark"))
        table = path.with_name(f"{path.name}.words.txt")
        with atomic_text(table) as stream:
            stream.writelines(f"{word} {number}\n" for number, word in enumerate(["<eps>", *sorted(words)]))
        spec = f"{kind}:{file}?words={table}"
    write_lattices(spec, lattices)
    return spec


@dataclass(frozen=True)
class Outputs:
    """Where the results of a set go.

    Attributes:
      folder, name, suffix: of icefall's files `recogs-NAME-SUFFIX.txt` and so on.
      setting: what stands before the WER in the summary.
      lattices: format of the lattices, or None.
      normaliser: of references and words in icefall's files and in the WER (`lm_zoo.text.normalise`); lists keep
        them as they are.
    """

    folder: Path
    name: str
    suffix: str
    setting: str
    lattices: str | None = None
    normaliser: str = "none"


class Results:
    """What is known of the utterances so far; lists and lattices are on disk.

    Attributes:
      refs, hyps: the words of each utterance.
      scores, lattice_scores: names of the scores in N-best lists and lattices.
    """

    def __init__(self, folder: Path) -> None:
        self.refs: dict[str, Words] = {}
        self.hyps: dict[str, Words] = {}
        self.scores: list[str] = []
        self.lattice_scores: list[str] = []
        self._symbols: set[str] = set()
        self._lists, self._lattices = Spool(folder), Spool(folder)

    def add(self, decoded: Decoded, text: str) -> None:
        utt_id = decoded.nbest.utt_id
        self._lists.add(utt_id, decoded.nbest)
        if decoded.lattice is not None:
            self._lattices.add(utt_id, decoded.lattice)
            self._symbols.update(decoded.lattice.symbols)
            self.lattice_scores = self.lattice_scores or list(decoded.lattice.scores)
        self.refs[utt_id], self.hyps[utt_id] = tuple(kaldi_fields(text)), decoded.words
        self.scores = self.scores or list(decoded.nbest.hyps[0].scores)

    def write(self, outputs: Outputs) -> tuple[ErrorCounts | None, list[str]]:
        """All files; each appears when it is whole.  Without references none of icefall's, nor those of before."""
        stem = f"{outputs.name}-{outputs.suffix}"
        with_refs = any(self.refs.values())
        nbest = outputs.folder / f"nbest-{stem}.jsonl.gz"
        save_nbest(nbest, (replace(one, ref=self.refs[one.utt_id] if with_refs else None) for one in self._lists))
        written = [str(nbest)]
        if outputs.lattices is not None:
            place = outputs.folder / f"lattices-{stem}"
            written.append(save_lattices(outputs.lattices, place, self._lattices, self._symbols - {""}))
        texts = [outputs.folder / f"{kind}-{stem}.txt" for kind in ("recogs", "errs", "wer-summary")]
        if not with_refs:
            for text in texts:  # of an earlier decoding, whose references are no longer there
                text.unlink(missing_ok=True)
            return None, written
        refs, hyps = (_normalised(found, outputs.normaliser) for found in (self.refs, self.hyps))
        counts = write_icefall(outputs.folder, outputs.name, outputs.suffix, outputs.setting, refs, hyps)
        return counts, [*map(str, texts), *written]


def _normalised(texts: Mapping[str, Words], name: str) -> dict[str, Words]:
    view = normalise(name)
    return {utt_id: tuple(kaldi_fields(view(" ".join(words)))) for utt_id, words in texts.items()}
