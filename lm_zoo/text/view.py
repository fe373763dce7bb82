"""What an LM sees of written text: each word in the form of the LM's own text, which may be several words or none.

An LM knows text of one case, with punctuation or without, with numbers in digits or in words (`TextForm`, of its
`config.json`, or found out from its vocabulary).  `He paid $5,` is for an LM of LibriSpeech's transcripts HE PAID FIVE
DOLLARS.  Words that are in the LM's form already stay as they are, and so does every word for an LM of mixed case.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import chain

from lm_zoo.reading import SPECIAL
from lm_zoo.text.normalise import basic_words
from lm_zoo.text.spoken import MONEY, SYMBOLS, spoken, spoken_word
from lm_zoo.text.vocabulary import UNK, PieceVocabulary, TextForm, Vocabulary, WordVocabulary, is_unknown

_MARKS = ",.?"  # what an LM of text with punctuation knows
_RULES = {
    "tags": "without tags such as [noise]",
    "unknown": "with <unk> for what is written otherwise",
    "case": "changed in case",
    "punctuation": "without punctuation",
    "numbers": "with numbers or signs in words",
    "spelling": "with words spelled out",
}


class View:
    """The words that an LM sees for written ones, and counts of what was changed for it.

    Attributes:
      case, form: those of the LM's text.
      texts, changed: texts that were counted, and those of them in which a word was changed.
      rules: texts by the rule after which a word of theirs was changed (see `_RULES`).
    """

    def __init__(self, vocab: Vocabulary | None) -> None:
        """`vocab` of the LM; None: every word stays as it is."""
        self._vocab = vocab
        self.case = "mixed" if vocab is None else vocab.case
        self.form = TextForm(True, "digits") if vocab is None else form_of(vocab)
        self.texts = self.changed = 0
        self.rules: Counter[str] = Counter()
        self._read: dict[str, tuple[str, ...]] = {}
        self._same: set[str] = set()  # of the words in `_read`: those that stay as they are

    @property
    def is_exact(self) -> bool:
        """Whether it is that of no LM, which changes nothing."""
        return self._vocab is None

    def parts(self, words: Sequence[str]) -> list[tuple[str, ...]]:
        """For each word of a sentence the words that the LM sees."""
        found = [self.word(word) for word in words]
        if self._same.issuperset(words) or not self._spells:
            return found
        heard = [place for place, word in enumerate(words) if found[place] or not SPECIAL.fullmatch(word)]
        together = spoken([words[place] for place in heard])  # where neighbours matter, such as $5 million
        for place, read in zip(heard, together, strict=True):
            if read != spoken_word(words[place]):
                found[place] = tuple(map(self._cased, read))
        return found

    def words(self, words: Sequence[str]) -> tuple[str, ...]:
        """The words that the LM sees for a sentence."""
        if self._same.issuperset(words):
            return tuple(words)
        return tuple(chain.from_iterable(self.parts(words)))

    def word(self, word: str) -> tuple[str, ...]:
        """The words that the LM sees for one word whose neighbours are not known."""
        read = self._read.get(word)
        if read is None:
            read = self._read[word] = self._shown(word)
            if read == (word,):
                self._same.add(word)
        return read

    def fold(self, words: Sequence[str], scores: Sequence[float]) -> list[float]:
        """Scores of the words that the LM sees, and of the sentence end, summed to those of the written words.

        A word that the LM does not see has 0.
        """
        if self._same.issuperset(words):
            return list(scores)
        values, sums = iter(scores), []
        for parts in self.parts(words):
            sums.append(sum((next(values) for _ in parts), 0.0))
        return [*sums, *values]

    def count(self, words: Sequence[str]) -> None:
        """Counts a text that the LM sees."""
        self.texts += 1
        self.words(words)
        if not self._same.issuperset(words):
            self.changed += 1
            self.rules.update({self._rule(word) for word in words if word not in self._same})

    def said(self, kind: str = "hypotheses") -> str:
        """What was changed, for a remark; "" if nothing was."""
        if not self.changed:
            return ""
        rules = ", ".join(f"{self.rules[rule]} {text}" for rule, text in _RULES.items() if self.rules[rule])
        return (
            f"{self.changed} of {self.texts} {kind} shown to the LM in the form of its own text: {rules}; what is "
            "written stays as it is (--text-view exact refuses such text)"
        )

    def _cased(self, word: str) -> str:
        if self.case == "mixed":
            return word
        return word.upper() if self.case == "upper" else word.lower()

    @property
    def _spells(self) -> bool:
        """Whether words are read by `lm_zoo.text.spoken`."""
        return self.case != "mixed" and not self.form.punctuation and self.form.numbers == "spelled"

    def _shown(self, word: str) -> tuple[str, ...]:
        if SPECIAL.fullmatch(word):
            return self._tag(word)
        cased = self._cased(word)
        if self.case == "mixed" or self.form.punctuation:
            return (cased,)
        in_form = word == cased and word.strip("'") != "" and self._letters.issuperset(word)
        if in_form or self._has(cased):
            return (cased,)
        read = spoken_word(word) if self._spells else tuple(basic_words(word))
        return tuple(map(self._cased, read))

    def _tag(self, word: str) -> tuple[str, ...]:
        """What is no speech, such as [noise], is seen by LMs that know it alone; `<unk>`, however written, by all."""
        if self._vocab is None or self._vocab.unk not in self._vocab.encode_word(word):
            return (word,)
        return (UNK,) if is_unknown(word) else ()

    def _has(self, word: str) -> bool:
        """Whether the LM has a word that is not of letters alone just so, such as `u.s.`"""
        has = isinstance(self._vocab, WordVocabulary) and word in self._vocab.ids
        return has and not self._letters.issuperset(word)

    def _rule(self, word: str) -> str:
        read = self._read[word]
        if is_unknown(word):
            return "unknown"
        if SPECIAL.fullmatch(word):
            return "tags"
        if read == (self._cased(word),):
            return "case"
        if any(character.isdigit() or character in SYMBOLS or character in MONEY for character in word):
            return "numbers"
        plain = "".join(character for character in self._cased(word) if character.isalpha())
        return "punctuation" if plain == "".join(read).replace("'", "") else "spelling"

    @cached_property
    def _letters(self) -> frozenset[str]:
        """Characters that words in the LM's form are made of: of pieces all, of words letters and apostrophes."""
        found = frozenset[str]() if self._vocab is None else alphabet(self._vocab)
        if isinstance(self._vocab, PieceVocabulary):
            return found
        return frozenset(each for each in found if each == "'" or unicodedata.category(each)[0] in "LM")


def form_of(vocab: Vocabulary) -> TextForm:
    """The form of an LM's text: what its `config.json` says, or what its vocabulary shows."""
    if vocab.form is not None:
        return vocab.form
    characters = alphabet(vocab)
    if isinstance(vocab, WordVocabulary):
        punctuation = any(mark in vocab.ids for mark in _MARKS)
    else:
        punctuation = not characters.isdisjoint(_MARKS)
    digits = any(character.isdigit() for character in characters)
    return TextForm(punctuation, "digits" if digits or not _is_english(vocab) else "spelled")


def _is_english(vocab: Vocabulary) -> bool:
    """Whether the vocabulary has English's most frequent word as a token, and no other letters than English."""
    tokens = vocab.encode_word("THE" if vocab.case == "upper" else "the")
    letters = {character for character in alphabet(vocab) if character.isalpha()}
    return len(tokens) == 1 and tokens[0] != vocab.unk and "".join(letters).isascii()


@lru_cache(maxsize=8)
def alphabet(vocab: Vocabulary) -> frozenset[str]:
    """The characters of the words or pieces of a vocabulary; those of marks such as `<unk>` do not count."""
    if isinstance(vocab, WordVocabulary):
        entries: Iterable[str] = vocab.words
    elif isinstance(vocab, PieceVocabulary):
        entries = vocab.pieces
    else:
        return frozenset()
    return frozenset(chain.from_iterable(entry for entry in entries if not SPECIAL.fullmatch(entry))) - {"\u2581"}
