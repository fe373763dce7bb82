"""Whether a text suits an LM: the case of its letters, and the share of its words that the LM does not know.

All that scores words with LMs asks here: N-best lists, lattices, perplexity, Kaldi's files, icefall's searches, Python.
A word-level LM gives unknown words the probability of `<unk>`, so that text of another case, language or spelling gets
scores that look like any others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol

from lm_zoo.errors import VocabError
from lm_zoo.reading import is_piece, is_tag
from lm_zoo.text.view import alphabet
from lm_zoo.text.vocabulary import WordVocabulary

if TYPE_CHECKING:
    from lm_zoo.text.view import View
    from lm_zoo.text.vocabulary import Vocabulary

MOST_UNKNOWN = 0.5  # share of the running words of a text that may be unknown, unless more are allowed
ENOUGH = 1000  # words after which the share is looked at though more are to come
EXAMPLES = 100  # unknown words that are remembered


class Counted(Protocol):
    """What has counts of running words and of unknown ones among them."""

    words: int
    unknown: int


class Knowing(Protocol):
    """What is asked here of an LM (see `lm_zoo.base.LanguageModel`)."""

    def knows(self, word: str) -> bool: ...

    def vocabularies(self) -> Iterable[Vocabulary]: ...

    def own_vocabularies(self) -> Iterable[Vocabulary]: ...

    def check_case(self, words: Iterable[str]) -> None: ...


class Coverage:
    """Counts of a text's running words, and of those that an LM does not know, as the text goes by.

    Attributes:
      name: of the LM, for messages.
      most: the share of unknown words beyond which a text is refused, 0 to 1.
      words, unknown: counted so far.
    """

    def __init__(self, lm: Knowing, name: str, most: float = MOST_UNKNOWN) -> None:
        self.lm, self.name, self.most = lm, name, most
        self.words = self.unknown = 0
        self._known: dict[str, bool] = {}
        self._vocabularies = list({id(vocab): vocab for vocab in lm.vocabularies()}.values())

    def add(self, counts: Mapping[str, int], place: str | Callable[[str], str]) -> None:
        """Counts the words of more text: word -> how often it occurs there.

        Args:
          place: of the text, or where a word stands in it, for messages.
        Raises:
          VocabError: words of another case than the LM's, pieces in place of words, or too many unknown ones (once
            there are ENOUGH words).
        """
        new = [word for word in counts if word not in self._known]
        for vocab in self._vocabularies:
            word = other_case(vocab.case, new)
            if word is not None:
                check_case(vocab, [word], place if isinstance(place, str) else place(word))
        self._check_pieces(new, place)
        self._known.update((word, self.lm.knows(word)) for word in new)
        if new and self.words < ENOUGH:
            self.lm.check_case(self._known)
        known = self._known
        self.count(sum(counts.values()), sum(count for word, count in counts.items() if not known[word]))

    def count(self, words: int, unknown: int) -> None:
        """Counts words that were looked up elsewhere; raises as `add`."""
        self.words += words
        self.unknown += unknown
        if self.words >= ENOUGH:
            self.check()

    def knows(self, word: str) -> bool:
        """Whether the LM knows a word that was added."""
        return self._known[word]

    def check(self) -> None:
        """Raises a VocabError if more than the share `most` of all words so far is unknown; for the end of a text."""
        if self.unknown > self.most * self.words:
            raise VocabError(
                f"{self.name}: {said(self)} to the LM{self._examples()}; more than {self.most:.0%} "
                "are refused, as text of another language, spelling or case gets meaningless scores; bring the text "
                f"into the LM's form{self._advice()}, or allow more: --max-unknown 1 (in Python: max_unknown=1)"
            )

    def _check_pieces(self, words: Iterable[str], place: str | Callable[[str], str]) -> None:
        """Pieces would be read as words, as their marks are no letters, and nearly all that is left is known."""
        piece = next(filter(is_piece, words), None)
        if piece is not None and not all(map(_has_pieces, self.lm.own_vocabularies())):
            raise VocabError(
                f"{place if isinstance(place, str) else place(piece)}: found '{piece}', a piece of sentencepiece, but "
                "the LM scores words; join pieces to words first, in N-best lists: rescore convert SRC DST --pieces"
            )

    def _unknown_words(self) -> list[str]:
        return list(islice((word for word, known in self._known.items() if not known), EXAMPLES))

    def _examples(self) -> str:
        words = self._unknown_words()[:3]
        return f" ({', '.join(map(repr, words))} ...)" if words else ""

    def _advice(self) -> str:
        """The change of case after which it would know most of the words, if there is one."""
        words = self._unknown_words()
        for case in ("upper", "lower"):
            if 2 * sum(self.lm.knows(getattr(word, case)()) for word in words) > len(words):
                return f" (--case {case})"
        return ""


@contextmanager
def taken_back(coverages: Iterable[Coverage], views: Iterable[View]) -> Iterator[None]:
    """What is counted in the block does not count if that ends by an error: it may be done again."""
    known = [(coverage, coverage.words, coverage.unknown) for coverage in coverages]
    seen = [(view, view.texts, view.changed, view.rules.copy()) for view in views]
    try:
        yield
    except BaseException:
        for coverage, words, unknown in known:
            coverage.words, coverage.unknown = words, unknown
        for view, texts, changed, rules in seen:
            view.texts, view.changed, view.rules = texts, changed, rules
        raise


def said(counts: Counted, kind: str = "words") -> str:
    """`3 of 40 words unknown (7.5 %)`."""
    return f"{counts.unknown} of {counts.words} {kind} unknown ({100 * counts.unknown / max(1, counts.words):.1f} %)"


def check_text(lm: Knowing, sentences: Sequence[Sequence[str]], most: float | None = MOST_UNKNOWN) -> None:
    """Checks a text as a whole; `most` None: its words have been checked already.

    Raises:
      VocabError: as `Coverage`; or a string where words are wanted, whose characters would be scored as words, or an
        iterator, which is read but once.
    """
    for sentence in [sentences] if isinstance(sentences, (str, Iterator)) else sentences:
        if isinstance(sentence, (str, Iterator)):
            found = f"string {sentence[:60]!r}" if isinstance(sentence, str) else type(sentence).__name__
            raise VocabError(
                f"found the {found}, expected a sequence of sentences, each a sequence of words: "
                '["HE SAID SO".split(), ...]'
            )
    if most is not None:
        coverage, counts = Coverage(lm, "the text", most), Counter(chain.from_iterable(sentences))
        if (word := next((word for word in counts if not isinstance(word, str)), None)) is not None:
            raise VocabError(f"{coverage.name} has the word {word!r}, expected strings alone: tuple(map(str, ...))")
        coverage.add(counts, coverage.name)
        coverage.check()


def other_case(case: str, words: Iterable[str]) -> str | None:
    """The first word, but for tags, whose letters are not in `case`, "upper", "lower" or "mixed" (which all are)."""
    if case == "mixed":
        return None
    return next((word for word in words if not is_tag(word) and word != getattr(word, case)()), None)


def check_case(vocab: Vocabulary, words: Sequence[str], where: str) -> None:
    """Refuses text whose letters are in another case than the LM's training text, unless its script has no cases.

    Raises:
      VocabError: names the place, the word found and what to do.
    """
    word = other_case(vocab.case, words)
    if word is not None and _has_cases(vocab):
        letter = "U" if vocab.case == "upper" else "L"
        raise VocabError(
            f"{where}: found '{word}', but the LM was trained on {vocab.case}-case text; convert it first: N-best lists"
            f" and lattices by rescore convert SRC DST --case {vocab.case}, text by sed 's/.*/\\{letter}&/' "
            f"(in Python word.{vocab.case}())"
        )


@lru_cache(maxsize=8)
def _has_cases(vocab: Vocabulary) -> bool:
    """Whether some letters of the LM's own words have another case; Chinese ones and the like have none."""
    letters = alphabet(vocab)
    return not letters or any(letter.lower() != letter.upper() for letter in letters)


@lru_cache(maxsize=8)
def _has_pieces(vocab: Vocabulary) -> bool:
    """Whether the words of the LM are pieces themselves, as of an n-gram over a recogniser's tokens."""
    return isinstance(vocab, WordVocabulary) and any(map(is_piece, vocab.words))
