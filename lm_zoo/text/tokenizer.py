"""Building vocabularies from text: whole words, or sentencepiece BPE/unigram pieces."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from lm_zoo.errors import VocabError
from lm_zoo.text.vocabulary import BLANK, SOS_EOS, UNK, PieceVocabulary, WordVocabulary, is_unknown, text_case


def count_words(sentences: Iterable[list[str]]) -> Counter[str]:
    """How often each word occurs."""
    counts: Counter[str] = Counter()
    for words in sentences:
        counts.update(words)
    return counts


def build_words(counts: Mapping[str, int], size: int | None = None) -> WordVocabulary:
    """The `size` most frequent words (all if None; ties in alphabetical order), with `<sos/eos>` and `<unk>`.

    An `<unk>` in the text (as in the Penn Treebank), `<UNK>` (as in Kaldi's words.txt), `[unk]`, or what
    sentencepiece decodes it to, is the vocabulary's own.
    """
    own = (word for word in counts if word != SOS_EOS and not is_unknown(word))
    words = sorted(own, key=lambda word: (-counts[word], word))
    if size is not None:
        words = words[: size - 2]
    return WordVocabulary([SOS_EOS, UNK, *words], text_case(words))


def build_pieces(counts: Mapping[str, int], size: int, kind: str = "unigram") -> PieceVocabulary:
    """Sentencepiece model of `size` pieces from word counts; ids follow icefall: blank 0, `<sos/eos>` 1, `<unk>` 2.

    Args:
      kind: "unigram" or "bpe"; or "word": all words, whatever `size` says.
    Raises:
      VocabError: sentencepiece cannot make so many (or so few) pieces of this text.
    """
    import sentencepiece

    lines = (f"{word}\t{count}\n" for word, count in sorted(counts.items()))
    model = io.BytesIO()
    special: dict[str, Any] = {"user_defined_symbols": [BLANK, SOS_EOS]}
    if kind == "word":  # symbols of the user would be counted as words
        special = {"control_symbols": [BLANK, SOS_EOS], "use_all_vocab": True}
    try:
        sentencepiece.SentencePieceTrainer.train(
            input_format="tsv",
            sentence_iterator=(line.rstrip("\n") for line in lines),
            model_writer=model,
            vocab_size=size,
            model_type=kind,
            character_coverage=1.0,
            unk_id=2,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            normalization_rule_name="identity",
            minloglevel=2,
            **special,
        )
    except (RuntimeError, OSError) as error:
        raise VocabError(
            f"sentencepiece cannot make {size} {kind} pieces of {len(counts)} words: {error}; give another number, "
            "--vocab-size N, or more text"
        ) from None
    return PieceVocabulary(model.getvalue(), text_case(counts))
