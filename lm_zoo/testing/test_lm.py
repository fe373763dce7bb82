"""What every LM must do: all ways to score agree, are log-probabilities, and depend on nothing but the sentence.

`TestWords` asks for words, which every LM takes; `TestTokens` asks token by token, and is skipped where an LM has no
tokens.  The LM is that of `--lm`; a test module that imports the classes may have fixtures `lm` and `words` of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from lm_zoo import base
from lm_zoo.errors import VocabError
from lm_zoo.inference.history_cache import ROOT, Histories
from lm_zoo.inference.trie import build_trie, score_by_steps, score_trie, sequence_scores
from lm_zoo.text.vocabulary import SOS_EOS

STRANGE = "ZZZQXJ"  # no LM over words knows it
COMMON = ["A", "B", "C", "D", *["THE", "AND", "OF", "TO", "IN", "HE", "SHE", "IT", "WAS", "IS"]]


@pytest.fixture(scope="module")
def lm(request: pytest.FixtureRequest) -> Any:
    """The LM of `--lm`, in evaluation mode on the CPU."""
    from lm_zoo.registry import load

    name = request.config.getoption("--lm")
    if not name:
        pytest.fail("name the LM to test: pytest --pyargs lm_zoo.testing --lm package.module:Class?option=value")
    return load(name)


@pytest.fixture(scope="module")
def words(request: pytest.FixtureRequest, lm: Any) -> list[str]:
    """A few words that the LM knows."""
    given = request.config.getoption("--lm-words", default=None)
    if given:
        found = given.split()
    else:
        cases = [str.lower, str.upper] if all(vocab.case != "upper" for vocab in lm.vocabularies()) else [str.upper]
        by_case = [[case(word) for word in COMMON if lm.knows(case(word))] for case in cases]
        found = max(by_case, key=len)
    unknown = [word for word in found if not lm.knows(word)]
    if len(found) < 3 or unknown:
        pytest.fail(
            f"the LM does not know {unknown or 'three common words'}; name some that it does: --lm-words 'A B C'"
        )
    return found


def sentences_of(words: list[str], count: int = 30, seed: int = 5) -> list[tuple[str, ...]]:
    """Random sentences of known and unknown words, an empty one among them."""
    rng = np.random.default_rng(seed)
    return [(), *(tuple(map(str, rng.choice([*words, STRANGE], rng.integers(0, 6)))) for _ in range(count))]


class TestWords:
    def test_a_value_a_word_and_one_for_the_end(self, lm: Any, words: list[str]) -> None:
        sentences = sentences_of(words)
        for sentence, scores in zip(sentences, lm.score_words(sentences, max_unknown=1), strict=True):
            assert len(scores) == len(sentence) + 1
            assert all(isinstance(score, float) and math.isfinite(score) for score in scores)

    def test_values_are_log_probabilities(self, lm: Any, words: list[str]) -> None:
        """What may follow a word has probabilities that do not sum to more than 1."""
        assert all(score <= 1e-6 for row in lm.score_words(sentences_of(words), max_unknown=1) for score in row)
        if lm.pseudo_likelihood:
            pytest.skip("a masked LM gives no distribution over what follows")
        known = list(dict.fromkeys(words))
        *following, ended = lm.score_words([*((words[0], word) for word in known), (words[0],)], max_unknown=1)
        assert sum(math.exp(row[1]) for row in following) + math.exp(ended[1]) <= 1 + 1e-4

    def test_ways_to_ask_agree(self, lm: Any, words: list[str]) -> None:
        sentences = sentences_of(words)
        expected = lm.score_words(sentences, max_unknown=1)
        for got, wanted in zip(lm.score_hypotheses(sentences, max_unknown=1), expected, strict=True):
            assert got == pytest.approx(wanted, abs=1e-4)
        assert lm.score_sentences(sentences, max_unknown=1) == pytest.approx([*map(sum, expected)], abs=1e-3)

    def test_company_and_order_do_not_matter(self, lm: Any, words: list[str]) -> None:
        """No state goes from one sentence into the next."""
        sentences = sentences_of(words)
        together = lm.score_words(sentences, max_unknown=1)
        backward = lm.score_words(sentences[::-1], max_unknown=1)[::-1]
        for sentence, one, other in list(zip(sentences, together, backward, strict=True))[:10]:
            assert lm.score_words([sentence], max_unknown=1)[0] == pytest.approx(one, abs=1e-4)
            assert other == pytest.approx(one, abs=1e-4)

    def test_later_words_do_not_change_earlier_scores(self, lm: Any, words: list[str]) -> None:
        if lm.pseudo_likelihood:
            pytest.skip("a masked LM looks ahead")
        short, long = lm.score_words([tuple(words[:2]), tuple(words[:3])], max_unknown=1)
        assert short[:2] == pytest.approx(long[:2], abs=1e-4)

    def test_nothing_to_score(self, lm: Any) -> None:
        assert lm.score_words([], max_unknown=1) == []
        assert len(lm.score_words([()], max_unknown=1)[0]) == 1

    def test_strings_are_refused(self, lm: Any, words: list[str]) -> None:
        for given in (" ".join(words), [" ".join(words)]):
            for ask in (lm.score_words, lm.score_hypotheses):
                with pytest.raises(VocabError, match="found the string"):
                    ask(given)

    def test_mostly_unknown_text_is_refused(self, lm: Any, words: list[str]) -> None:
        if lm.knows(STRANGE):
            pytest.skip("an LM over pieces of words knows every word")
        with pytest.raises(VocabError, match="words unknown"):
            lm.score_words([(words[0], STRANGE, STRANGE)])

    @pytest.mark.parametrize("mark", ["<s>", "</s>", SOS_EOS])
    def test_marks_of_the_sentence_are_no_words(self, lm: Any, words: list[str], mark: str) -> None:
        if lm.pseudo_likelihood or lm.knows(STRANGE):
            pytest.skip("an LM over pieces of words may spell them")
        assert not lm.knows(mark)
        marked, unknown = lm.score_words([(words[0], mark, words[1]), (words[0], STRANGE, words[1])], max_unknown=1)
        assert marked[1] < -0.1
        if not has_tokens(lm) or len(lm.vocab.encode_word(mark)) == 1:
            assert marked == pytest.approx(unknown, abs=1e-5)


def has_tokens(lm: Any) -> bool:
    """Whether the LM can be asked token by token."""
    return type(lm).step is not base.LanguageModel.step


@pytest.fixture
def tokens_of(lm: Any) -> Any:
    """The LM, if it can be asked token by token."""
    if not has_tokens(lm):
        pytest.skip(f"a {type(lm).__name__} scores words, and cannot be asked token by token")
    return lm


def random_sequences(lm: Any, count: int = 40, longest: int = 8, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    choices = [token for token in range(min(len(lm.vocab), 50)) if token not in (lm.vocab.eos, lm.vocab.bos)][:4]
    return [list(map(int, rng.choice(choices, rng.integers(0, longest)))) for _ in range(count)] + [[]]


def padded(lm: Any, sequences: list[list[int]], extra: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    filler = max(lm.vocab.unk, 0)
    tokens = torch.full((len(sequences), max(map(len, sequences)) + extra), filler)
    for row, sequence in enumerate(sequences):
        tokens[row, : len(sequence)] = torch.tensor(sequence, dtype=torch.long)
    return tokens, torch.tensor([len(sequence) for sequence in sequences])


@torch.no_grad()
def step_scores(lm: Any, sequence: list[int]) -> list[float]:
    """The slow, obvious way: one sequence, one step a token."""
    state, scores, read = lm.initial_state(), [], lm.vocab.bos
    for token in [*sequence, lm.vocab.eos]:
        state, rows = lm.step(state, torch.zeros(1, dtype=torch.long), torch.tensor([read]))
        scores.append(float(rows[0, token]))
        read = token
    return scores


class TestTokens:
    @pytest.fixture(autouse=True)
    def _no_gradients(self) -> Iterator[None]:
        with torch.no_grad():
            yield

    def test_score_is_the_chain_of_steps(self, tokens_of: Any) -> None:
        sequences = random_sequences(tokens_of)
        scores = tokens_of.score(*padded(tokens_of, sequences))
        for row, sequence in enumerate(sequences):
            expected = step_scores(tokens_of, sequence)
            assert scores[row, : len(expected)].tolist() == pytest.approx(expected, abs=1e-4)
            assert not scores[row, len(expected) :].any()

    def test_trie_scoring_is_score(self, tokens_of: Any) -> None:
        sequences = random_sequences(tokens_of, count=100, seed=1)
        trie = build_trie(sequences)
        assert trie.num_nodes - 1 < sum(map(len, sequences))
        expected = tokens_of.score(*padded(tokens_of, sequences)).sum(dim=1).numpy()
        for rows in (3, 4096):
            got = sequence_scores(trie, *score_trie(tokens_of, trie, rows=rows))
            np.testing.assert_allclose(got, expected, atol=1e-4)

    def test_rows_are_distributions(self, tokens_of: Any) -> None:
        begin = torch.tensor([tokens_of.vocab.bos] * 2)
        state, rows = tokens_of.step(tokens_of.initial_state(), torch.zeros(2, dtype=torch.long), begin)
        read = [token for token in range(len(tokens_of.vocab)) if token != tokens_of.vocab.eos][:3]
        state, rows = tokens_of.step(state, torch.tensor([0, 1, 0]), torch.tensor(read))
        assert rows.shape == (3, len(tokens_of.vocab))
        assert torch.isfinite(rows).all()
        if not isinstance(tokens_of, base.WordLM):  # an n-gram may have been pruned or made by hand, not normalised
            np.testing.assert_allclose(rows.exp().sum(dim=1).numpy(), 1.0, atol=1e-5)

    def test_padding_does_not_matter(self, tokens_of: Any) -> None:
        sequences = random_sequences(tokens_of, seed=2)
        together = tokens_of.score(*padded(tokens_of, sequences, extra=5))
        for row in (0, 7, 40):
            alone = tokens_of.score(*padded(tokens_of, [sequences[row]]))[0]
            assert together[row, : len(alone)].tolist() == pytest.approx(alone.tolist(), abs=1e-4)

    def test_step_leaves_its_state_as_it_was(self, tokens_of: Any) -> None:
        one, other = [token for token in range(len(tokens_of.vocab)) if token != tokens_of.vocab.eos][:2]
        first, _ = tokens_of.step(tokens_of.initial_state(), torch.tensor([0]), torch.tensor([tokens_of.vocab.bos]))
        _, before = tokens_of.step(first, torch.tensor([0]), torch.tensor([one]))
        tokens_of.step(first, torch.tensor([0]), torch.tensor([other]))
        _, after = tokens_of.step(first, torch.tensor([0]), torch.tensor([one]))
        assert torch.equal(before, after)

    def test_histories_that_grow_word_by_word(self, tokens_of: Any, words: list[str]) -> None:
        """As lattices and shallow fusion ask: prefixes of one length from different steps, each behind its own."""
        histories = Histories(tokens_of, ["", *words], nodes=2)
        rng = np.random.default_rng(4)
        sentences = rng.integers(1, 1 + len(words), (20, 4))
        nodes, totals = np.full(len(sentences), ROOT), np.zeros(len(sentences))
        for place in range(4):
            scores, nodes = histories.extend(nodes, sentences[:, place], np.full(len(sentences), place == 3))
            totals += scores
        texts = [tuple(words[word - 1] for word in sentence) for sentence in sentences.tolist()]
        expected = [sum(row) for row in base.score_in_batches(tokens_of, texts)]
        assert totals.tolist() == pytest.approx(expected, abs=1e-4)

    def test_words_are_the_sums_of_their_tokens(self, tokens_of: Any, words: list[str]) -> None:
        """Running text, steps and the padded reference give the same words the same scores."""
        sentences = sentences_of(words)
        expected = base.score_in_batches(tokens_of, sentences)
        for way in (tokens_of.score_words(sentences, max_unknown=1), score_by_steps(tokens_of, sentences)):
            for got, wanted in zip(way, expected, strict=True):
                assert got == pytest.approx(wanted, abs=1e-4)
