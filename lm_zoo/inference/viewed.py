"""LMs asked about written words, of which they see what their view gives (`lm_zoo.text.view`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lm_zoo.base import LanguageModel, WordLM, one_a_word
from lm_zoo.text.view import View, alphabet, form_of
from lm_zoo.text.vocabulary import Vocabulary


def view_of(lm: LanguageModel, exact: bool = False) -> View:
    """What an LM sees of written text: the text itself with `exact`, or if the LM is made of LMs of different text."""
    vocabs = list(lm.vocabularies())
    alike = len({(vocab.case, form_of(vocab), alphabet(vocab)) for vocab in vocabs}) == 1
    return View(vocabs[0] if alike and not exact else None)


def same_words(view: View, first: Sequence[str], other: Sequence[str]) -> bool:
    """Whether an LM, which sees `other`, has the same words as another one, which sees `first`, but for their case."""
    return len(first) == len(other) and tuple(view.words(first)) == tuple(other)


class Reader:
    """An LM as a text's coverage asks it (`lm_zoo.text.coverage`)."""

    def __init__(self, lm: LanguageModel, view: View) -> None:
        self.lm, self.view = lm, view

    def knows(self, word: str) -> bool:
        """Whether the LM knows all that it sees of the word."""
        return all(self.lm.knows(part) for part in self.view.word(word))

    def vocabularies(self) -> Iterable[Vocabulary]:
        """Those whose case the text may not suit: none, if the view sees to that."""
        return self.lm.vocabularies() if self.view.is_exact else []

    def own_vocabularies(self) -> Iterable[Vocabulary]:
        """See `LanguageModel.own_vocabularies`."""
        return self.lm.own_vocabularies()

    def check_case(self, words: Iterable[str]) -> None:
        self.lm.check_case(words)


class ViewedLM(Reader):
    """An LM over written words, as far as perplexity asks: a word has the sum of all that the LM sees for it."""

    def score_words(self, sentences: Sequence[Sequence[str]], max_unknown: float | None = None) -> list[list[float]]:
        """Values a written word, and one of the sentence end; see `LanguageModel.score_words`."""
        seen = [self.view.words(words) for words in sentences]
        scores = one_a_word(self.lm, seen, self.lm.score_words(seen, max_unknown=max_unknown))
        return [self.view.fold(words, row) for words, row in zip(sentences, scores, strict=True)]

    def token_count(self, word: str) -> int:
        """The tokens of all that the LM sees of the word."""
        return sum(map(self.lm.token_count, self.view.word(word)))


class ViewedNgram(Reader, WordLM):
    """An n-gram over written words: a word has the scores of all words that the LM sees for it, or 0 for none."""

    lm: WordLM

    def __init__(self, lm: WordLM, view: View) -> None:
        super().__init__(lm, view)

    def start(self) -> Any:
        return self.lm.start()

    def extend(self, state: Any, word: str) -> tuple[float, Any, bool]:
        """See `WordLM.extend`."""
        total, known = 0.0, True
        for part in self.view.word(word):
            score, state, knows = self.lm.extend(state, part)
            total, known = total + score, known and knows
        return total, state, known

    def end(self, state: Any) -> float:
        return self.lm.end(state)
