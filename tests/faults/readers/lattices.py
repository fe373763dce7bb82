"""Readers of lattices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rescore.formats import read_lattices, write_lattices
from rescore.types import Alignments, Lattice
from tests.faults.damage import Target, begins, same, within_zip
from tests.faults.readers.inputs import WORDS, text

SLF = "VERSION=1.0\nbase=2.7\nN=3 L=2\nI=0 t=0.0\nI=1 t=0.5\nI=2 t=1.0\n"
SLF += 'J=0 S=0 E=1 W=A a=1.0 l=-1\nJ=1 S=1 E=2 W="B" a=2 l=0\n'
PFSG = "name a\nnodes 4 NULL A B NULL\ninitial 0\nfinal 3\ntransitions 3\n0 1 -100\n1 2 0\n2 3 -50.5\n"
TEXT_ARCHIVE = "a \n0 1 1 1.0,2.0,3_4\n1 2 2 0.5,0.25,\n2 0.0,0.0,\n\nb \n0 1 3 1.0,2.0,3\n1\n\n"
OPENFST = "a\n0 1 1 0.5\n0 1 2 2\n1 2 0\n2 0.5\n\n"
KEYED = "?words=DIR/words.txt"


def lattice(utt_id: str) -> Lattice:
    """0 -A|'tis-> 1 -eps-> 2 -B-> 3."""
    return Lattice(
        utt_id,
        4,
        np.array([0, 0, 1, 2], dtype=np.int32),
        np.array([1, 1, 2, 3], dtype=np.int32),
        np.array([1, 2, 0, 3], dtype=np.int32),
        {"am": np.array([-1.5, -2, 0, -3.25]), "graph": np.array([-1.0, -2, -3, -4])},
        ["", "A", "'tis", "B"],
        np.array([0.0, 0.25, 0.5, 1.0]),
        Alignments.of_lengths(np.array([9, 8, 0, 7]), np.ones(4, dtype=np.int64)),
    )


def values(lattices: list[Lattice]) -> list[Any]:
    """What a lattice says, to compare."""
    return [
        (
            each.utt_id,
            each.num_states,
            each.src.tolist(),
            each.dst.tolist(),
            [each.symbols[label] for label in each.labels],
            {name: column.tolist() for name, column in each.scores.items()},
            None if each.times is None else each.times.tolist(),
        )
        for each in lattices
    ]


def written(spec: str, damaged: str = "") -> Callable[[Path], Path]:
    """Writes lattices as `spec` says, under the folder; `damaged` is the file of what is written."""
    name, _, rest = spec.partition(":")
    path, _, options = rest.partition("?")

    def make(folder: Path) -> Path:
        (folder / "words.txt").write_text(WORDS)
        target = f"{name}:{folder / path}" + f"?{options.replace('WORDS', str(folder / 'words.txt'))}" * bool(options)
        write_lattices(target, [lattice("a"), lattice("b")])
        return folder / path / damaged

    return make


def graphs(name: str, options: str = "", up: int = 0) -> Callable[[Path], Any]:
    """Reads lattices; writes them as SLF, a file for each id, and reads them again: nothing may differ."""

    def read(path: Path) -> list[Any]:
        source = path.parents[up - 1] if up else path
        found = list(read_lattices(f"{name}:{source}{options.replace('DIR', str(path.parent))}"))
        with TemporaryDirectory() as out:
            write_lattices(f"slf:{out}/lattices", found)
            again = values(list(read_lattices(f"slf:{out}/lattices")))
        expected = values(sorted(found, key=lambda each: each.utt_id))
        assert [each[:5] for each in again] == [each[:5] for each in expected], "SLF differs"
        assert_scores_stay(again, expected)
        return values(found)

    return read


def assert_scores_stay(again: list[Any], expected: list[Any]) -> None:
    for one, two in zip(again, expected, strict=True):
        assert one[5].keys() == two[5].keys(), "SLF has other scores"
        for name, column in one[5].items():
            assert np.allclose(column, two[5][name], rtol=1e-12), f"SLF changes '{name}'"


def beside(name: str) -> Callable[[Path], Any]:
    """Reads a text archive beside the file of words, or its index, which is damaged."""
    return lambda path: graphs("kaldi-lat", KEYED)(path.with_name(name))


def indexed(folder: Path) -> Path:
    text("a.ark", TEXT_ARCHIVE)(folder)
    places = {key: TEXT_ARCHIVE.index(f"{key} \n") + 2 for key in "ab"}
    (folder / "lat.scp").write_text("".join(f"{key} a.ark:{place}\n" for key, place in places.items()))
    return folder / "lat.scp"


def ids(folder: Path) -> Path:
    written("k2:a.pt?words=WORDS")(folder)
    (folder / "ids").write_text("x\ny\n")
    return folder / "ids"


def with_ids(path: Path) -> object:
    return graphs("k2", f"{KEYED}&ids=DIR/ids")(path.with_name("a.pt"))


LATTICE_TARGETS = [
    Target("slf", text("a.slf", SLF), graphs("slf"), kept=same),
    Target("slf.gz", written("slf:lattices", "a.slf.gz"), graphs("slf", up=1), checked=True),
    Target("kaldi-lat binary", written("kaldi-lat:a.ark?words=WORDS"), graphs("kaldi-lat", KEYED), kept=begins),
    Target("kaldi-lat.gz", written("kaldi-lat:a.ark.gz?words=WORDS"), graphs("kaldi-lat", KEYED), checked=True),
    Target("kaldi-lat text", text("a.ark", TEXT_ARCHIVE), graphs("kaldi-lat", KEYED), kept=begins),
    Target("kaldi-lat words", text("words.txt", WORDS), lambda path: beside("a.ark")(_archived(path))),
    Target("kaldi-lat scp", indexed, graphs("kaldi-lat", KEYED), kept=begins),
    Target("openfst", written("openfst:a.fst.txt?score=am"), graphs("openfst"), kept=begins),
    Target("openfst numbers", text("a.fst.txt", OPENFST), graphs("openfst", KEYED), kept=begins),
    Target("pfsg", text("a.pfsg", PFSG), graphs("pfsg"), kept=same),
    Target("k2", written("k2:a.pt?words=WORDS"), graphs("k2", KEYED), checked=True),
    Target(
        "k2 pickle", written("k2:a.pt?words=WORDS"), graphs("k2", KEYED), within=within_zip(lambda n: n == "data.pkl")
    ),
    Target("k2 numbers", written("k2:a.pt?words=WORDS"), graphs("k2", KEYED), within=within_zip(str.isdigit)),
    Target("k2 ids", ids, with_ids),
]


def _archived(words: Path) -> Path:
    words.with_name("a.ark").write_text(TEXT_ARCHIVE)
    return words
