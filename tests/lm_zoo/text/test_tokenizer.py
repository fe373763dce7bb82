"""Vocabularies of words from counts."""

from __future__ import annotations

from lm_zoo.text.tokenizer import build_words
from lm_zoo.text.vocabulary import SOS_EOS, UNK


def test_the_most_frequent_words_those_as_frequent_by_the_alphabet() -> None:
    counts = {"D": 1, "C": 2, "<unk>": 9, "B": 2, "[unk]": 1, SOS_EOS: 5, "E": 3}
    assert build_words(counts).words == [SOS_EOS, UNK, "E", "B", "C", "D"]
    assert build_words(counts, 4).words == [SOS_EOS, UNK, "E", "B"]
