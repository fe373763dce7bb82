"""Vocabularies from lists of words, tables of words and numbers, and counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm_zoo.text.sentences import read_word_list
from lm_zoo.text.view import View
from lm_zoo.text.vocabulary import SOS_EOS, UNK
from lm_zoo.training.run import TextRecipe, make_vocabulary
from rescore.cli.main import cli


def test_counts_of_words_and_bigrams_are_a_list_of_words(tmp_path: Path) -> None:
    text, counts = tmp_path / "text", tmp_path / "counts"
    text.write_text("he said 7\nhe said that\n")
    cli.main(["--quiet", "count", "--text", str(text), "--out", str(counts)], standalone_mode=False)
    assert counts.read_text().split("\n")[4] == "2 <s> he"
    assert sorted(read_word_list(counts, lambda line: None)) == ["7", "he", "said", "that"]
    counts.write_text("1 he\n2 he went\n")
    assert read_word_list(counts, lambda line: None) == ["1", "he", "2", "he", "went"], "no counts"


def test_a_table_of_words_and_numbers_is_a_list_of_words(tmp_path: Path) -> None:
    table, words = tmp_path / "words.txt", tmp_path / "list.txt"
    table.write_text("<eps> 0\nhe 1\n<UNK> 2\nsaid 3\nthat 4\n#0 5\n<s> 6\n</s> 7\n")
    words.write_text("he said\nthat <UNK> 1\n")
    said: list[str] = []
    made = [
        make_vocabulary(TextRecipe([], "", "word", 9, str(path)), tmp_path / path.stem, said.append)
        for path in (table, words)
    ]
    assert [sorted(vocab.words) for vocab in made] == [  # type: ignore[attr-defined]
        sorted([SOS_EOS, UNK, "he", "said", "that", *more]) for more in ([], ["1"])
    ]
    assert f"{table}: a table of words and numbers; 4 words, 4 symbols left out" in said
    for option in ("tokens word", "vocab-size 9"):
        assert f"the vocabulary is that of {words}; --{option} says nothing" in said


@pytest.mark.parametrize("tokens", ["word", "bpe"])
def test_unknown_words_of_the_text_are_one_token_in_any_case(tokens: str, tmp_path: Path) -> None:
    """As in Kaldi's texts in upper case."""
    (tmp_path / "text").write_text("BUS <UNK>\nSUB <UNK>\n" * 3)
    recipe = TextRecipe([str(tmp_path / "text")], "", tokens, 9 if tokens == "bpe" else None)
    vocab = make_vocabulary(recipe, tmp_path / "lm", lambda line: None)
    assert vocab.encode_word("<UNK>") == vocab.encode_word("<unk>") == (vocab.unk,)
    assert vocab.unk not in vocab.encode_word("BUS")


def test_tags_of_a_list_that_are_not_in_the_text_are_no_words_of_the_lm(tmp_path: Path) -> None:
    """So that it is not shown them in hypotheses."""
    text, table, said = tmp_path / "text", tmp_path / "words.txt", list[str]()
    text.write_text("he said [noise] that\n")
    table.write_text("!SIL 0\n<SPOKEN_NOISE> 1\n<UNK> 2\n[noise] 3\nhe 4\nsaid 5\n")
    vocab = make_vocabulary(TextRecipe([str(text)], "", vocab=str(table)), tmp_path / "lm", said.append)
    assert sorted(vocab.words) == sorted([SOS_EOS, UNK, "[noise]", "he", "said"])  # type: ignore[attr-defined]
    assert View(vocab).words(("he", "!SIL", "[noise]", "<UNK>")) == ("he", "[noise]", UNK)
    assert said[1:] == [f"{table}: 2 tags that are not in the text left out (!SIL, <SPOKEN_NOISE>)"]
