"""Tokens in icefall's lang folder: `bpe.model`, `tokens.txt`, `words.txt`; BPE pieces, or characters as words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from asr.errors import DataError
from lm_zoo.files import write_text
from lm_zoo.reading import kaldi_fields
from lm_zoo.text.sentences import read_sentences
from lm_zoo.text.vocabulary import PieceVocabulary
from rescore.files import atomic_folder

if TYPE_CHECKING:
    from lhotse.cut import Cut, MonoCut

BEFORE = ("<eps>", "!SILENCE", "<SPOKEN_NOISE>", "<UNK>")  # of icefall's words.txt
AFTER = ("#0", "<s>", "</s>")


def spaced(text: str) -> str:
    """The characters of a text with blanks between them: each is a word then, as in icefall's recipe of AISHELL."""
    return " ".join("".join(text.split()))


def with_characters(cuts: Iterable[MonoCut]) -> list[MonoCut]:
    """The cuts with transcripts whose words are characters."""
    return [cut.map_supervisions(lambda part: part.transform_text(spaced)) for cut in cuts]


def write_lang(folder: Path, texts: Sequence[str | Path], size: int | None) -> PieceVocabulary:
    """Makes `size` BPE pieces, or a token of each character, of texts as of `read_sentences`; writes the lang folder.

    A folder that has these tokens and words already is left as it is, so that a run that was killed can be repeated.

    Args:
      size: None: a token for every character, which is a word of its own.

    Raises:
      DataError: the folder has others.
      TextError: a text that cannot be read or has no words, or has utterance ids that are not said to be some.
      VocabError: sentencepiece cannot make so many pieces of them.
    """
    from lm_zoo.text.tokenizer import build_pieces, count_words

    counts: Counter[str] = Counter()
    for text in texts:
        sentences = read_sentences(text)
        counts += count_words(words if size is not None else spaced("".join(words)).split() for words in sentences)
    vocab = build_pieces(counts, size or len(counts), kind="bpe" if size else "word")
    symbols = [vocab.processor.id_to_piece(index) for index in range(len(vocab))]
    words = [*BEFORE, *sorted(counts.keys() - {*BEFORE, *AFTER}), *AFTER]
    tables = {"tokens.txt": _table(symbols), "words.txt": _table(words)}
    if folder.exists():
        if any(not (folder / name).is_file() or (folder / name).read_text("utf-8") != tables[name] for name in tables):
            names = ", ".join(map(str, texts))
            raise DataError(f"{folder}: has not the tokens and words of {names}; remove it first, or name a new folder")
        return vocab
    with atomic_folder(folder) as temporary:
        vocab.save(temporary)
        for name, content in tables.items():
            write_text(temporary / name, content)
    return vocab


def _table(symbols: list[str]) -> str:
    return "".join(f"{symbol} {index}\n" for index, symbol in enumerate(symbols))


def unspellable(cuts: Iterable[Cut], vocab: PieceVocabulary) -> list[str]:
    """The ids of cuts whose transcripts hold symbols that the tokens cannot spell."""
    from asr.dataset.loader import cut_text

    return [cut.id for cut in cuts if any(vocab.unk in vocab.encode_word(word) for word in kaldi_fields(cut_text(cut)))]
