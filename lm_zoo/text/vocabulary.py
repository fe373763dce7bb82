"""Vocabularies: words or sentencepiece pieces, and the case of the text that they are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lm_zoo.errors import VocabError
from lm_zoo.files import write_bytes, write_text
from lm_zoo.reading import DECODED_UNK, is_tag, kaldi_fields, text_lines

BLANK = "<blk>"  # the recogniser's, among its pieces
ESPNET_BLANK = "<blank>"


SOS_EOS = "<sos/eos>"
BOS, EOS = "<s>", "</s>"
UNK_SOS_EOS = "<unk/sos/eos>"


UNK = "<unk>"


NUMBERS = ("spelled", "digits")


KEPT = 200_000  # words whose tokens a vocabulary remembers: a process that lives long meets ever new ones


def remember(found: dict[str, tuple[int, ...]], word: str, tokens: tuple[int, ...]) -> None:
    """Keeps the tokens of a word, of KEPT words at most: all are forgotten before one more."""
    if len(found) >= KEPT:
        found.clear()
    found[word] = tokens


def is_unknown(word: str) -> bool:
    """Whether a word of a text stands for unknown ones: `<unk>` or `[unk]` in any case, or sentencepiece's sign."""
    return word == DECODED_UNK or word.casefold() in (UNK, "[unk]")


@dataclass(frozen=True)
class TextForm:
    """What an LM's text looks like, beside its case.

    Attributes:
      punctuation: whether it has punctuation.
      numbers: "spelled" in English words, as are titles and signs, or "digits".
    """

    punctuation: bool
    numbers: str


def text_form(config: Mapping[str, Any]) -> TextForm | None:
    """What a `config.json` says of the LM's text; None for those written before it did."""
    if config.get("punctuation") is None or config.get("numbers") is None:
        return None
    return TextForm(config["punctuation"], config["numbers"])


class Vocabulary(Protocol):
    """Maps words to token ids.  A word is one or more tokens; tokens never cross a word boundary.

    What marks the begin or the end of a sentence is no word: as one it is unknown.
    """

    bos: int
    eos: int
    unk: int
    case: str  # "upper", "lower" or "mixed": the text that the LM was trained on
    form: TextForm | None  # of that text; None: found out from the vocabulary (lm_zoo.text.view)

    def __hash__(self) -> int: ...

    def __len__(self) -> int: ...

    def encode_word(self, word: str) -> tuple[int, ...]:
        """Token ids of one word (never empty); contains `unk` if the word, or a part of it, is unknown."""

    def save(self, folder: Path) -> None:
        """Writes the vocabulary's file into a model folder."""


class WordVocabulary:
    """One token a word; unknown words become `<unk>`.  Stored as `words.txt`, lines `WORD ID`."""

    form: TextForm | None = None
    FILE = "words.txt"

    def __init__(self, words: Sequence[str], case: str = "mixed") -> None:
        self.words = list(words)
        self.ids = {word: index for index, word in enumerate(self.words)}
        if len(self.ids) != len(self.words):
            raise VocabError("a word occurs twice in the vocabulary")
        self.bos, self.eos, self.unk = self._numbers()
        self.case = case

    def __len__(self) -> int:
        return len(self.words)

    def _numbers(self) -> tuple[int, int, int]:
        """Those of the begin and end of sentence, and of unknown words."""
        for symbol in (SOS_EOS, UNK):
            if symbol not in self.ids:
                raise VocabError(f"the vocabulary lacks {symbol}")
        return self.ids[SOS_EOS], self.ids[SOS_EOS], self.ids[UNK]

    def encode_word(self, word: str) -> tuple[int, ...]:
        token = self.ids.get(word, self.unk)
        return (self.unk if token == self.bos else token,)

    def save(self, folder: Path, file: str = FILE) -> None:
        lines = (f"{word} {index}\n" for index, word in enumerate(self.words))
        write_text(folder / file, "".join(lines))

    @classmethod
    def load(cls, folder: Path, case: str, file: str = FILE) -> WordVocabulary:
        path, words = folder / file, list[str]()
        try:
            lines = text_lines(path)
        except (OSError, UnicodeDecodeError) as error:
            raise VocabError(f"{path}: cannot be read ({error})") from None
        for number, line in enumerate(lines, start=1):
            fields = kaldi_fields(line)
            if len(fields) != 2 or fields[1] != str(len(words)):
                raise VocabError(f"{path}:{number}: found '{line[:60]}', expected 'WORD {len(words)}'")
            words.append(fields[0])
        try:
            return cls(words, case)
        except VocabError as error:
            raise VocabError(f"{path}: {error}") from None


class TokenList(WordVocabulary):
    """The tokens of pieces.  Of SpeechBrain's LMs some have `<s>` and `</s>` in the place of `<sos/eos>`, others one
    token for the begin, the end and all that is unknown, which is called `<unk/sos/eos>`."""

    def _numbers(self) -> tuple[int, int, int]:
        if UNK_SOS_EOS in self.ids:
            return (self.ids[UNK_SOS_EOS],) * 3
        if self.ids.keys() >= {BOS, EOS, UNK} and SOS_EOS not in self.ids:
            return self.ids[BOS], self.ids[EOS], self.ids[UNK]
        return super()._numbers()


class PieceVocabulary:
    """Sentencepiece pieces (BPE or unigram).  Stored as `bpe.model`, and the list of tokens as `token_list.txt`.

    Args:
      tokens: the pieces in the order of their numbers, with `<sos/eos>` and `<unk>` as ESPnet has them, or as in
        `TokenList`; pieces that are not among them are unknown.  None: the numbers are the model's, `<sos/eos>` = 1 and
        `<unk>` = 2 as in icefall.
    """

    form: TextForm | None = None
    FILE = "bpe.model"
    LIST = "token_list.txt"

    def __init__(self, model: bytes, case: str = "mixed", tokens: Sequence[str] | None = None) -> None:
        import sentencepiece

        self.model = model
        self.tokens = None if tokens is None else TokenList(tokens)
        if not model:
            raise VocabError("not a sentencepiece model, but empty")
        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            for index in range(self.processor.get_piece_size()):
                self.processor.id_to_piece(index)
        except (RuntimeError, UnicodeDecodeError) as error:
            raise VocabError(f"not a sentencepiece model, or damaged ({error})") from None
        if self.tokens is None:
            self.unk = self.processor.unk_id()
            self.bos = self.eos = self._number(SOS_EOS)
            if self.bos == self.unk:
                raise VocabError(f"the sentencepiece model lacks the piece {SOS_EOS}")
            self._marks = {self.bos, self._number(BLANK)}
        else:
            self.bos, self.eos, self.unk = self.tokens.bos, self.tokens.eos, self.tokens.unk
            marks = (SOS_EOS, BOS, EOS, ESPNET_BLANK)
            self._marks = {self.tokens.ids.get(mark, self.eos) for mark in marks} - {self.unk}
        self.case = case
        self._cache: dict[str, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return self.processor.get_piece_size() if self.tokens is None else len(self.tokens)

    @property
    def pieces(self) -> list[str]:
        """The tokens, in the order of their numbers."""
        return [*map(self.processor.id_to_piece, range(len(self)))] if self.tokens is None else self.tokens.words

    def _number(self, piece: str) -> int:
        """That of `<unk>` for what is no token."""
        return self.processor.piece_to_id(piece) if self.tokens is None else self.tokens.ids.get(piece, self.unk)

    def _encode(self, word: str) -> Iterable[int]:
        if self.tokens is None:
            return self.processor.encode(word)
        return map(self._number, self.processor.encode(word, out_type=str))

    def encode_word(self, word: str) -> tuple[int, ...]:
        tokens = self._cache.get(word)
        if tokens is None:
            tokens = tuple(self._encode(word)) if word != UNK else ()
            if not tokens or not self._marks.isdisjoint(tokens) or (self.unk in tokens and is_unknown(word)):
                tokens = (self.unk,)
            remember(self._cache, word, tokens)
        return tokens

    def save(self, folder: Path) -> None:
        write_bytes(folder / self.FILE, self.model)
        if self.tokens is not None:
            self.tokens.save(folder, self.LIST)

    @classmethod
    def load(cls, folder: Path, case: str) -> PieceVocabulary:
        listed = (folder / cls.LIST).exists()
        return cls.read(folder / cls.FILE, case, TokenList.load(folder, case, cls.LIST).words if listed else None)

    @classmethod
    def read(cls, path: Path, case: str = "mixed", tokens: Sequence[str] | None = None) -> PieceVocabulary:
        """The vocabulary in a file; VocabError, with its name, where that cannot be read."""
        try:
            return cls(path.read_bytes(), case, tokens)
        except FileNotFoundError:
            raise VocabError(f"{path}: no such file, expected the sentencepiece model of the tokens") from None
        except OSError as error:
            raise VocabError(f"{path}: cannot be read ({error.strerror})") from None
        except VocabError as error:
            raise VocabError(f"{path}: {error}") from None


def load_vocabulary(folder: Path, case: str, form: TextForm | None = None) -> WordVocabulary | PieceVocabulary:
    """The vocabulary of a model folder, whichever kind its files show."""
    vocab: WordVocabulary | PieceVocabulary
    for kind in (PieceVocabulary, WordVocabulary):
        if (folder / kind.FILE).exists():
            vocab = kind.load(folder, case)
            vocab.form = form
            return vocab
    raise VocabError(f"{folder}: no vocabulary; expected {PieceVocabulary.FILE} or {WordVocabulary.FILE}")


def text_case(words: Iterable[str]) -> str:
    """`upper`, `lower` or `mixed`, whichever the letters of the words are; tags do not count."""
    text = "".join(word for word in words if not is_tag(word))
    if text.upper() == text and text.lower() != text:
        return "upper"
    return "lower" if text.lower() == text else "mixed"


def encode(vocab: Vocabulary, words: Sequence[str]) -> list[int]:
    """Token ids of a sentence, without begin and end."""
    return [token for word in words for token in vocab.encode_word(word)]


def read_pieces(path: Path, case: str | None = None) -> PieceVocabulary:
    """The vocabulary of a `bpe.model`; its case is that of the pieces where it is not given.

    Raises:
      VocabError: it cannot be read, or is no sentencepiece model with `<sos/eos>`.
    """
    vocab = PieceVocabulary.read(path)
    vocab.case = case or text_case(vocab.pieces)
    return vocab


def same_tokens(first: Vocabulary, second: Vocabulary) -> bool:
    """Whether two vocabularies have the same tokens by the same numbers."""
    if isinstance(first, WordVocabulary) and isinstance(second, WordVocabulary):
        return first.words == second.words
    if isinstance(first, PieceVocabulary) and isinstance(second, PieceVocabulary):
        return first.model == second.model and first.pieces == second.pieces
    return first is second
