"""Kaldi's plain lattices (`lattice4`: a transition id an arc) beside the compact ones that they stand for."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rescore.cli.main import cli
from rescore.errors import FormatError
from rescore.formats import copy_lattices, read_lattices, read_nbest, write_lattices
from rescore.formats.k2 import one_id_an_arc
from rescore.formats.kaldi_archive import read_all, read_records, write_records
from rescore.formats.kaldi_fst import COMPACT, PLAIN, RawLattice
from rescore.formats.kaldi_lattice import to_lattice
from rescore.formats.symbols import SymbolTable, read_symbols
from rescore.lattices.best_path import best_words, kaldi_scales
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.paths import best_path
from rescore.types import Lattice
from tests.rescore.formats.test_kaldi_lattice import TEXT, WORDS, same


def plain(lattice: Lattice) -> RawLattice:
    """As Kaldi's lattice-copy --write-compact=false: an arc for each transition id, the first with word and costs."""
    chains = one_id_an_arc(lattice)
    strings, states, arcs = chains.alignments, chains.num_states, chains.num_arcs
    assert strings is not None
    ids = np.zeros(arcs, dtype=np.int32)
    ids[strings.lengths == 1] = strings.ids
    finals = np.full((states, 2), np.inf, dtype=np.float32)
    finals[-1] = 0.0
    return RawLattice(
        lattice.utt_id,
        PLAIN,
        0,
        finals,
        strings.take(np.full(states, -1)),
        np.bincount(chains.src, minlength=states),
        ids,
        SymbolTable().to_ids(chains.labels, chains.symbols),
        (0.0 - np.stack([chains.scores["graph"], chains.scores["am"]], axis=1)).astype(np.float32),
        strings.take(np.full(arcs, -1)),
        chains.dst,
    )


@pytest.fixture
def archives(tmp_path: Path) -> tuple[str, str]:
    """The same lattices compact and plain; the last strings stand on the final weights of the former."""
    (tmp_path / "lat.1").write_text(TEXT)
    (tmp_path / "words.txt").write_text(WORDS)
    compact = list(read_lattices(f"kaldi:{tmp_path / 'lat.1'}?words=ids"))
    write_records(tmp_path / "plain.ark", map(plain, compact), {})
    return tuple(f"kaldi:{tmp_path / name}?words={tmp_path / 'words.txt'}" for name in ("lat.1", "plain.ark"))


def run(*args: object) -> str:
    result = CliRunner().invoke(cli, ["lattice", *map(str, args)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_same_paths_and_times(archives: tuple[str, str]) -> None:
    for compact, other in zip(*map(read_lattices, archives), strict=True):
        scales = {"graph": 1.0, "am": 0.3, "words": 0.1}
        assert exact_nbest(other, scales, 100) == exact_nbest(compact, scales, 100)
        assert other.times is not None and compact.times is not None
        assert other.times[-1] == pytest.approx(compact.times[-1])
    for lmwt, wip in ((1.0, 0.0), (10.0, 0.5)):
        assert best_words(read_lattices(archives[0]), lmwt, wip) == best_words(read_lattices(archives[1]), lmwt, wip)
    assert run("best-path", archives[0]) == run("best-path", archives[1]) == "utt-a A C\nutt-b B\n"
    assert run("mbr", archives[1], "--scale", "graph=1", "--posterior-scale", 1) == "utt-a B C\nutt-b B\n"


def test_copies_stay_plain_and_text_reads_back(archives: tuple[str, str], tmp_path: Path) -> None:
    source = archives[1].split("?")[0]
    assert copy_lattices(source, f"kaldi:{tmp_path / 'again.txt'}?text=yes") == 2
    text = (tmp_path / "again.txt").read_text()
    assert "\t7\t1\t0.5,10.0\n" in text  # src dst tid word graph,acoustic
    assert copy_lattices(f"kaldi:{tmp_path / 'again.txt'}", f"kaldi:{tmp_path / 'again.ark'}") == 2
    for (_, one), (_, two) in zip(read_all(tmp_path / "plain.ark"), read_all(tmp_path / "again.ark"), strict=True):
        assert one.arc_type == PLAIN and same(one, two)
    copy_lattices(source, f"kaldi:{tmp_path / 'copy.ark'}")
    assert (tmp_path / "copy.ark").read_bytes() == (tmp_path / "plain.ark").read_bytes()


def test_what_was_worked_on_is_written_compact(archives: tuple[str, str], tmp_path: Path) -> None:
    """Kaldi reads either form where it wants the other, so one is enough; paths, costs and ids are the same."""
    run("prune", archives[1], f"kaldi:{tmp_path / 'new.ark'}", "--words", tmp_path / "words.txt", "--beam", 1000)
    assert {raw.arc_type for raw in read_records(tmp_path / "new.ark")} == {COMPACT}
    for before, after in zip(
        read_lattices(archives[1]),
        read_lattices(f"kaldi:{tmp_path / 'new.ark'}?words={tmp_path / 'words.txt'}"),
        strict=True,
    ):
        assert exact_nbest(after, {"graph": 1.0, "am": 0.3}, 100) == exact_nbest(before, {"graph": 1.0, "am": 0.3}, 100)
        assert before.alignments is not None and after.alignments is not None
        assert before.alignments.ids.tolist() == after.alignments.ids.tolist()
        assert np.array_equal(before.times, after.times)


def test_both_forms_in_one_archive(archives: tuple[str, str], tmp_path: Path) -> None:
    copy_lattices(f"kaldi:{tmp_path / 'lat.1'}", f"kaldi:{tmp_path / 'compact.ark'}")
    (_, second) = read_records(tmp_path / "compact.ark")
    (first, _) = read_records(tmp_path / "plain.ark")
    write_records(tmp_path / "both.ark", [first, second], {})
    assert run("best-path", f"kaldi:{tmp_path / 'both.ark'}", "--words", tmp_path / "words.txt") == (
        "utt-a A C\nutt-b B\n"
    )
    write_lattices(f"kaldi:{tmp_path / 'out.ark'}", read_lattices(f"kaldi:{tmp_path / 'both.ark'}?words=ids"))


def test_real_lattices(shared_data: Path) -> None:
    """Ten lattices of a Kaldi system, taken apart: the same best paths at Kaldi's weights, and the same times."""
    folder = shared_data / "kaldi_lattices" / "indonesian"
    table = read_symbols(folder / "words.txt")
    for raw in islice(read_records(folder / "decode" / "lat.1.gz"), 10):
        compact = to_lattice(raw, table)
        other = to_lattice(plain(to_lattice(raw, SymbolTable())), table)
        for lmwt in (7.0, 17.0):
            scales = kaldi_scales(compact, lmwt, 0.5)
            assert best_path(other, scales).words == best_path(compact, scales).words
        assert compact.times is not None and other.times is not None and other.times[-1] == compact.times[-1]


def test_a_decoding_folder_of_kaldi_is_told_from_lists(tmp_path: Path) -> None:
    (tmp_path / "lat.1.gz").write_bytes(b"")
    for path in (tmp_path, tmp_path / "lat.1.gz"):
        with pytest.raises(FormatError, match=rf"but lattices \(lat.1.gz\); .* rescore lattice nbest kaldi:{path} "):
            list(read_nbest(f"kaldi:{path}"))
    (tmp_path / "dev.ark").write_bytes(b"")  # which is in no folder of lattices, by its name
    with pytest.raises(FormatError, match=r"but lattices \(dev.ark\); .* rescore lattice nbest kaldi:.*/dev.ark "):
        list(read_nbest(f"kaldi:{tmp_path}/dev.ark"))
