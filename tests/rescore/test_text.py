"""Text normalisation."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rescore.cli.main import cli
from rescore.errors import UsageError
from rescore.text import TextNormalizer

WORDS = st.text(alphabet="abC.-'ßΣσéİ_", min_size=1, max_size=8)
NORMALIZERS = st.builds(
    TextNormalizer,
    case=st.sampled_from([None, "upper", "lower"]),
    delete=st.sampled_from(["", ".", ".'"]),
    split=st.sampled_from(["", "-", "-_"]),
)


def reference(normalizer: TextNormalizer, word: str) -> tuple[str, ...]:
    """What the docstring says, one step after the other."""
    pieces = [word]
    for char in normalizer.split:
        pieces = [part for piece in pieces for part in piece.split(char)]
    for char in normalizer.delete:
        pieces = [piece.replace(char, "") for piece in pieces]
    if normalizer.case:
        pieces = [getattr(piece, normalizer.case)() for piece in pieces]
    return tuple(piece for piece in pieces if piece)


def test_pocketsphinx_words() -> None:
    normalizer = TextNormalizer(case="upper", delete=".", split="-")
    assert normalizer("u.s.-made") == ("US", "MADE")
    assert normalizer("don't") == ("DON'T",)
    assert normalizer("-") == ()
    assert normalizer.words(["mr.", ".", "well-known"]) == ("MR", "WELL", "KNOWN")


def test_identity() -> None:
    assert TextNormalizer().is_identity
    assert TextNormalizer().words(["a.", "B-c"]) == ("a.", "B-c")
    assert not TextNormalizer(case="lower").is_identity
    assert not TextNormalizer(delete=".").is_identity
    assert not TextNormalizer(split="-").is_identity


@settings(max_examples=50, deadline=None)
@given(NORMALIZERS, WORDS)
def test_agrees_with_the_slow_reference(normalizer: TextNormalizer, word: str) -> None:
    assert normalizer(word) == reference(normalizer, word)


@settings(max_examples=50, deadline=None)
@given(NORMALIZERS, st.lists(WORDS, max_size=5))
def test_words_are_normalised_one_by_one(normalizer: TextNormalizer, words: list[str]) -> None:
    assert normalizer.words(words) == tuple(piece for word in words for piece in normalizer(word))


@settings(max_examples=50, deadline=None)
@given(NORMALIZERS, st.lists(st.text(alphabet="abC.-'_", min_size=1), max_size=5))
def test_a_second_time_changes_nothing(normalizer: TextNormalizer, words: list[str]) -> None:
    once = normalizer.words(words)
    assert normalizer.words(once) == once


def test_contradictions() -> None:
    with pytest.raises(UsageError, match="unknown case 'Upper'; there are: upper, lower"):
        TextNormalizer(case="Upper")
    with pytest.raises(UsageError, match="'-' is to be deleted and to be split at"):
        TextNormalizer(delete="-.", split="-")


def test_usable_as_a_key() -> None:
    first = TextNormalizer(case="upper")
    first("a")
    assert first == TextNormalizer(case="upper") and hash(first) == hash(TextNormalizer(case="upper"))


def test_pieces_are_joined_to_words() -> None:
    normal = TextNormalizer("lower", pieces=True)
    assert normal.words(("\u2581THE", "\u2581C", "AT", "\u2581", "S")) == ("the", "cat", "s")
    assert normal.words(()) == () and not TextNormalizer(pieces=True).is_identity
    assert normal.words(("\u2581CAF", "<0xC3>", "<0xA9>", "\u2581", "<0xE7>", "<0x8C>")) == ("caf\u00e9", "\ufffd")
    assert normal.words(("\u2581A", "<unk>", "B", "<unk>", "\u2581C")) == ("a", "<unk>", "b", "<unk>", "c")


def test_words_are_left_out_as_they_come() -> None:
    normalizer = TextNormalizer("upper", delete=".", drop=("[noise]", "!SIL"))
    assert normalizer.words(["[noise]", "he", "!SIL", "said.", "[Noise]"]) == ("HE", "SAID", "[NOISE]")
    assert normalizer("[noise]") == () and normalizer("u.s.") == ("US",) and not normalizer.is_identity
    assert TextNormalizer(pieces=True, drop=("[noise]",)).words(["\u2581A", "B", "\u2581[noi", "se]"]) == ("AB",)


@pytest.mark.parametrize("option", ["--delete", "--split-words"])
@pytest.mark.parametrize(
    "command",
    [
        "convert a.slf slf:b",
        "lattice convert a.slf slf:b",
        "lattice rescore a.slf slf:b --ngram ngram",
        "lattice prune a.slf slf:b --beam 1",
        "lattice oracle a.slf --ref text",
        "lattice mbr a.slf",
        "lattice posteriors a.slf",
        "lattice draw a.slf",
        "kaldi score archives.1 --lm ngram",
    ],
)
def test_letters_are_not_taken_from_words(command: str, option: str) -> None:
    result = CliRunner().invoke(cli, [*command.split(), option, "[noise]"])
    assert "'[noise]' has letters, which would be taken from all words; to leave out whole words: --drop WORD" in str(
        result.exception
    )


@pytest.mark.parametrize("command", ["oracle", "mbr"])
def test_words_of_lattices_are_left_out(tmp_path: Path, command: str) -> None:
    links = ["J=0 S=0 E=1 W=ON a=-1", "J=1 S=1 E=2 W=[noise] a=-1", "J=2 S=2 E=3 W=ICE a=-1"]
    (tmp_path / "u.slf").write_text("\n".join(["VERSION=1.0", "N=4 L=3", *(f"I={n}" for n in range(4)), *links]) + "\n")
    (tmp_path / "text").write_text("u ON ICE\n")
    args = ["lattice", command, f"slf:{tmp_path}", "--ref", str(tmp_path / "text")]
    assert "1 ins" in CliRunner().invoke(cli, args).stdout
    left_out = CliRunner().invoke(cli, [*args, "--drop", "[noise]", "--delete", "[]"])
    assert left_out.stdout.startswith("%WER 0.00 [ 0 / 2, 0 ins, 0 del, 0 sub ]")
