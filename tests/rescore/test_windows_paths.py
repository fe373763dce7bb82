"""Paths of Windows, wherever a name may have a prefix: `C:` is a drive and no format, module or column."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm_zoo.errors import ModelError
from lm_zoo.hub import hub_name
from lm_zoo.plugins import plug_in
from lm_zoo.registry import find
from lm_zoo.text.sentences import parse_text_spec
from rescore.file_names import base_name
from rescore.formats import is_lattice, options_of, parse_spec
from rescore.workflows.columns import column_of
from rescore.workflows.compare import parse_system

LISTS = r"C:\exp\dev.jsonl.gz"


@pytest.mark.parametrize(
    ("spec", "name", "path"),
    [
        (LISTS, "jsonl", LISTS),
        ("d:/exp/dev.jsonl", "jsonl", "d:/exp/dev.jsonl"),
        (rf"jsonl:{LISTS}", "jsonl", LISTS),
        (r"slf:C:\lattices", "slf", r"C:\lattices"),
        (r"k2:C:\lat.pt?words=C:\lang\words.txt", "k2", r"C:\lat.pt"),
        (r"nemo:C:\preds.tsv?n=4&manifest=C:\test.json", "nemo", r"C:\preds.tsv"),
    ],
)
def test_lists_and_lattices(spec: str, name: str, path: str) -> None:
    assert parse_spec(spec) == (name, Path(path))
    assert is_lattice(spec) == (name in ("slf", "k2"))


def test_options_of_formats() -> None:
    assert options_of(r"k2:C:\lat.pt?words=C:\lang\words.txt") == {"words": r"C:\lang\words.txt"}


@pytest.mark.parametrize("name", [r"C:\lms\books", "C:/lms/books", r"C:\lms\books.arpa.gz", r"C:\lms\books.arpa.xz"])
def test_lms(name: str) -> None:
    assert plug_in(name) is None and hub_name(name) is None
    with pytest.raises(ModelError, match="no LM is called"):  # it is not here, but understood as a path
        find(name)
    assert column_of(name) == ("books", name)
    assert column_of(f"mine={name}") == ("mine", name)
    assert base_name(name).startswith("books")
    hub = hub_name(rf"hf:{name}?case=lower")
    assert hub is not None and hub.base == name


def test_systems_and_texts() -> None:
    assert parse_system(rf"first={LISTS}") == ("first", LISTS)
    assert parse_text_spec(r"kaldi:C:\text") == (1, Path(r"C:\text"))
    assert parse_text_spec(r"C:\text") == (0, Path(r"C:\text"))
