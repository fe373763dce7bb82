"""Back-off n-gram LMs: ARPA files (also `.gz`, `.xz`) and KenLM binary files, queried by the package `kenlm`.

KenLM speaks log10; everything that leaves this file is a natural log.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lm_zoo.base import Context, WordLM
from lm_zoo.deadline import in_time
from lm_zoo.errors import ModelError, VocabError
from lm_zoo.ngram.arpa import read_vocabulary
from lm_zoo.ngram.kenlm_check import check_file
from lm_zoo.reading import BLANKS, read_json
from lm_zoo.text.coverage import MOST_UNKNOWN, check_text
from lm_zoo.text.vocabulary import SOS_EOS, UNK, TextForm, Vocabulary, WordVocabulary, text_case, text_form

if TYPE_CHECKING:
    from torch import Tensor

LN10 = math.log(10.0)
LONGEST_NAME = 255  # bytes that file systems take
SPECIAL = ("<s>", "</s>", "<unk>", "<UNK>")  # KenLM takes the last two for the same
IMPOSSIBLE = -90.0  # log10; SRILM writes -99 for a probability of 0, and KenLM takes -100 where a file has no <unk>
BOUNDARIES = ("<s>", "</s>")  # in KenLM words like any other; inside a sentence they are unknown words here


class NgramLM(WordLM):
    """An n-gram LM over words; a word that it does not know gets the probability of `<unk>`.

    So do empty words and those with blanks in them, which no n-gram has.

    States are small values that can be compared and hashed; histories that the LM cannot tell apart have equal states.
    """

    def __init__(self, path: str | Path, case: str | None = None, form: TextForm | None = None) -> None:
        """Loads a model file.

        Args:
          case, form: of the training text; None finds it out from the vocabulary.
        Raises:
          ModelError: `kenlm` is not installed, or the file is missing, damaged, or not a model that it reads.
        """
        self.path = Path(path)
        self._case, self._form = case, form
        self._words: set[str] = set()  # found to be words so far
        self._read_file()
        self.order: int = self._model.order

    def _read_file(self) -> None:
        kenlm = _import_kenlm()
        self._state_class = kenlm.State
        self._model = _load(kenlm, self.path)
        self._score = self._model.BaseScore
        self._known = _Known(self._model)

    def __getstate__(self) -> dict[str, Any]:
        """For a copy, and for other processes: these read the file, as KenLM's own pickles do (and print progress)."""
        kenlms = ("_state_class", "_model", "_score", "_known")
        return {name: value for name, value in vars(self).items() if name not in kenlms}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._read_file()

    @classmethod
    def load(cls, folder: str | Path) -> NgramLM:
        """The LM of a model folder, whose `config.json` says `file` and `case`."""
        path = Path(folder) / "config.json"
        try:
            config = read_json(path)
            name = config["file"]
            if not name or Path(name).name != name or len(name.encode()) > LONGEST_NAME:
                raise ValueError(f"'file' is {name[:80]!r}, expected the name of a file in the folder")
            return cls(Path(folder) / name, config.get("case"), text_form(config))
        except FileNotFoundError:
            raise ModelError(f"{folder}: not a model folder, it has no config.json") from None
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{path}: expected JSON with 'file' and 'case' ({error!r})") from None

    def start(self) -> Any:
        """The state after the begin of sentence."""
        state = self._state_class()
        self._model.BeginSentenceWrite(state)
        return state

    def extend(self, state: Any, word: str) -> tuple[float, Any, bool]:
        """`log p(word | state)`, the state after the word, and whether the LM knows the word."""
        new_state = self._state_class()
        known = self._known[word]
        return self._score(state, word if known else UNK, new_state) * LN10, new_state, known

    def end(self, state: Any) -> float:
        """`log p(</s> | state)`."""
        return self._score(state, "</s>", self._state_class()) * LN10

    def knows(self, word: str) -> bool:
        """Whether the word has a unigram of its own."""
        return self._known[word]

    def said(self) -> str:
        """Whether unknown words were met that the file gives no probability: each outweighs all other words."""
        state = self._state_class()
        self._model.NullContextWrite(state)
        score = self._score(state, UNK, self._state_class())
        if score > IMPOSSIBLE or all(self._known.values()):
            return ""
        return (
            f"{self.path} has no <unk>, or one of probability 0: each unknown word costs {-score * LN10:.0f} nats, and "
            "little else counts; estimate the LM with unknown words (SRILM: ngram-count -unk)"
        )

    def score_words(
        self, sentences: Sequence[Sequence[str]], max_unknown: float | None = MOST_UNKNOWN
    ) -> list[list[float]]:
        """See `LanguageModel.score_words`; for hypotheses too, as KenLM is faster than a trie in Python."""
        check_text(self, sentences, max_unknown)
        full_scores = self._model.full_scores
        return [[found[0] * LN10 for found in full_scores(self._text(words))] for words in in_time(sentences)]

    def _text(self, words: Sequence[str]) -> str:
        """A sentence as KenLM takes it."""
        if not self._words.issuperset(words):
            self._words.update(filter(_is_word, words))
            words = [word if word in self._words else UNK for word in words]
        return " ".join(words)

    def score_hypotheses(
        self,
        sentences: Sequence[Sequence[str]],
        max_unknown: float | None = MOST_UNKNOWN,
        contexts: Sequence[Context] | None = None,
    ) -> list[list[float]]:
        """See `LanguageModel.score_hypotheses`; between two sentences stand `</s>` and `<s>`.

        An n-gram LM that was estimated sentence by sentence has no n-gram across them: contexts change nothing.
        """
        start, states = self.start(), {context: self._after(context) for context in dict.fromkeys(contexts or ())}
        if all(state == start for state in states.values()):
            return self.score_words(sentences, max_unknown)
        check_text(self, sentences, max_unknown)
        pairs = in_time(zip(contexts or (), sentences, strict=True))
        return [self._from(states[context], words) for context, words in pairs]

    def _after(self, context: Context) -> Any:
        """The state at the begin of the sentence after these; of each only the last words count."""
        state = self.start()
        for words in context[-self.order :]:
            for word in words[-self.order :]:
                state = self.extend(state, word)[1]
            for mark in reversed(BOUNDARIES):
                new_state = self._state_class()
                self._score(state, mark, new_state)
                state = new_state
        return state

    def _from(self, state: Any, words: Sequence[str]) -> list[float]:
        scores = []
        for word in words:
            score, state, _ = self.extend(state, word)
            scores.append(score)
        return [*scores, self.end(state)]

    def score_sentences(
        self,
        sentences: Sequence[Sequence[str]],
        max_unknown: float | None = MOST_UNKNOWN,
        contexts: Sequence[Context] | None = None,
    ) -> list[float]:
        """The sums of `score_words`, several times as fast; to 1e-6 of them, as KenLM adds in single precision."""
        start = self.start()
        if any(self._after(context) != start for context in dict.fromkeys(contexts or ())):
            return super().score_sentences(sentences, max_unknown, contexts)
        check_text(self, sentences, max_unknown)
        score = self._model.score
        return [score(self._text(words)) * LN10 for words in in_time(sentences)]

    def vocabularies(self) -> Iterable[Vocabulary]:
        """None where there is none: KenLM binary files without their words."""
        try:
            return [self.vocab]
        except ModelError:
            return []

    @cached_property
    def vocab(self) -> WordVocabulary:  # type: ignore[override]
        """The words that the LM knows, in the file's order, after `<sos/eos>` (for `<s>` and `</s>`) and `<unk>`.

        Raises:
          ModelError: the file does not tell its words.
          VocabError: it has a word twice.
        """
        words = [word for word in read_vocabulary(self.path) if word not in SPECIAL]
        if repeated := [word for word, count in Counter([SOS_EOS, *words]).items() if count > 1]:
            raise VocabError(f"{self.path}: the word '{repeated[0]}' stands twice in it, expected every word once")
        vocab = WordVocabulary([SOS_EOS, UNK, *words], self._case or text_case(words))
        vocab.form = self._form
        return vocab

    def score(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """As `LanguageModel.score`."""
        import torch

        words = self.vocab.words
        result = torch.zeros(len(tokens), tokens.shape[1] + 1)
        for row, (sentence, length) in enumerate(zip(tokens.tolist(), lengths.tolist(), strict=True)):
            scores = self.score_words([[words[token] for token in sentence[:length]]], None)[0]
            result[row, : length + 1] = torch.tensor(scores)
        return result

    def initial_state(self) -> list[Any]:
        """As `LanguageModel.initial_state`; a state is one KenLM state a node, None before the begin of sentence."""
        return [None]

    def step(self, state: list[Any], parents: Tensor, tokens: Tensor) -> tuple[list[Any], Tensor]:
        """As `LanguageModel.step`; asks KenLM for every word of the vocabulary, so it is slow."""
        import torch

        words = self.vocab.words
        new_state = []
        for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True):
            old = state[parent]
            new_state.append(self.start() if old is None else self.extend(old, words[token])[1])
        scratch, score = self._state_class(), self._score
        targets = ["</s>" if word == SOS_EOS else word for word in words]
        rows = [[score(node, word, scratch) for word in targets] for node in new_state]
        return new_state, torch.tensor(rows, dtype=torch.float32).view(len(rows), len(words)) * LN10


class _Known(dict[str, bool]):
    """Whether a model has a unigram of a word, by words that were asked for."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __missing__(self, word: str) -> bool:
        known = self[word] = _is_word(word) and word in self.model
        return known


def _is_word(word: str) -> bool:
    """Whether KenLM takes it for one word of a sentence."""
    return word not in ("", *BOUNDARIES) and not any(blank in word for blank in BLANKS)


def _import_kenlm() -> ModuleType:
    try:
        import kenlm
    except ImportError as error:
        raise ModelError(
            f"n-gram LMs need the package kenlm, which cannot be imported ({error}); "
            "install it with: pip install kenlm==0.3.0 (needs a C++ compiler and cmake); from Python 3.13 on, where it "
            "cannot be compiled: pip install camel-kenlm"
        ) from None
    return kenlm


def _load(kenlm: ModuleType, path: Path) -> Any:
    if not path.is_file():
        raise ModelError(f"{path}: no such file, expected an ARPA file or a KenLM binary file")
    check_file(path)
    config = kenlm.Config()
    config.show_progress = False
    config.arpa_complain = kenlm.ARPALoadComplain.NONE
    try:
        return kenlm.Model(str(path), config)
    except (OSError, RuntimeError, MemoryError, ArithmeticError, ValueError, LookupError) as error:
        advice = "; a KenLM that was built without liblzma reads no .xz: unpack it" if path.suffix == ".xz" else ""
        raise ModelError(
            f"{path}: KenLM cannot read it, expected an ARPA file (also .gz, .xz) or a KenLM binary file, "
            f"of order 2 to 6 ({error}){advice}"
        ) from None
