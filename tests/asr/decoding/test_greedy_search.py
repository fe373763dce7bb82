"""Greedy search against the search frame by frame in words, and what searches share."""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np
import pytest
import sentencepiece
import torch

from asr.decoding.greedy_search import GreedySearch, greedy
from asr.decoding.prefixes import Pieces, Prefixes
from asr.errors import DataError
from lm_zoo.text.vocabulary import UNK, PieceVocabulary
from tests.asr.tiny import Tiny, pieces, vocabulary

DECODERS = ("stateless", "lstm")


def greedy_by_hand(model: Tiny, encoded: torch.Tensor) -> tuple[list[int], list[int], float]:
    tokens, frames, total = [], [], 0.0
    for frame, vector in enumerate(encoded):
        output = model.decoder(torch.tensor([tokens], dtype=torch.long))[0, -1]
        joined = model.joiner(model.joiner.project_encoder(vector), model.joiner.project_decoder(output))
        best, symbol = joined.log_softmax(-1).max(-1)
        total += float(best)
        if symbol:
            tokens.append(int(symbol))
            frames.append(frame)
    return tokens, frames, total


@pytest.mark.parametrize("decoder", DECODERS)
def test_greedy_takes_the_best_symbol_of_each_frame(decoder: str) -> None:
    model = Tiny(6, decoder)
    encoded, lengths = model.encoded(9, 5, 0, 12)
    found = greedy(model, encoded, lengths)
    for row, length in enumerate(lengths.tolist()):
        tokens, frames, total = greedy_by_hand(model, encoded[row, :length])
        (hyp,) = found[row]
        assert (list(hyp.tokens), list(hyp.frames)) == (tokens, frames)
        assert hyp.scores["am"] == pytest.approx(total, abs=1e-5)
    assert any(hyps[0].tokens for hyps in found)


@pytest.mark.parametrize("decoder", DECODERS)
def test_greedy_piece_by_piece_is_the_same(decoder: str) -> None:
    model = Tiny(6, decoder)
    encoded, lengths = model.encoded(11, 7)
    run = GreedySearch(model, 2, encoded.device)
    for start in range(0, 11, 4):
        part = encoded[:, start : start + 4]
        run.advance(part, (lengths - start).clamp(0, part.shape[1]))
    for row, (whole,) in enumerate(greedy(model, encoded, lengths)):
        part = run.hypothesis(row)
        assert (part.tokens, part.frames) == (whole.tokens, whole.frames)
        assert part.scores["am"] == pytest.approx(whole.scores["am"], abs=1e-5)


def test_bad_encodings_are_refused() -> None:
    model = Tiny(4)
    encoded, lengths = model.encoded(4, 3)
    with pytest.raises(DataError, match=r"lengths \[5, 3\]"):
        greedy(model, encoded, lengths + torch.tensor([1, 0]))
    encoded[1, 2, 0] = torch.nan
    with pytest.raises(DataError, match="NaN or infinite values for utterance 2"):
        greedy(model, encoded, lengths)


def test_words_of_pieces() -> None:
    tokens = [token for word in ("THE", "CAT", "SAT") for token in vocabulary().encode_word(word)]
    assert pieces().words(tokens) == ("THE", "CAT", "SAT")
    assert pieces().words([0, 1, *tokens, 0]) == ("THE", "CAT", "SAT")
    assert pieces().starts[vocabulary().encode_word("CAT")[0]]
    with pytest.raises(DataError, match=r"the model has 4 tokens, but its bpe.model .* has 18"):
        pieces().check(Tiny(4))
    pieces().check(Tiny(18))


def test_the_unknown_symbol_is_a_word_of_its_own() -> None:
    tokens = [*vocabulary().encode_word("THE"), vocabulary().unk, *vocabulary().encode_word("CAT")]
    assert pieces().words(tokens) == ("THE", "<unk>", "CAT")
    assert pieces().starts[vocabulary().unk]


def test_words_are_those_of_sentencepiece() -> None:
    """As icefall's `sp.decode(...).split()` has them: a piece behind `<unk>` is no part of it."""
    vocab, rng = vocabulary(), np.random.default_rng(3)
    for length in range(1, 300):
        tokens = rng.choice([vocab.unk, *range(2, len(vocab))], length % 9 + 1).tolist()
        assert pieces().words(tokens) == tuple(vocab.processor.decode(tokens).replace("\u2047", UNK).split())
        pairs = list(pairwise([0, *tokens]))
        rows = pieces().beginning([before for before, _ in pairs])
        assert [pieces().begins(*pair) for pair in pairs] == [rows[k, token] for k, (_, token) in enumerate(pairs)]
        more = pieces().more_words([before for before, _ in pairs])
        counts = [len(pieces().words(tokens[:end])) for end in range(length % 9 + 2)]
        assert [more[k, token] for k, (_, token) in enumerate(pairs)] == np.diff(counts).tolist()


def test_pieces_that_are_bytes_spell_characters() -> None:
    """Of a model with `byte_fallback=true`, as icefall's `train_bpe_model.py --byte-fallback` makes it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat", "the hat"] * 9),
        model_writer=model,
        vocab_size=275,
        model_type="bpe",
        byte_fallback=True,
        user_defined_symbols=["<blk>", "<sos/eos>"],
        unk_id=2,
        bos_id=-1,
        eos_id=-1,
        minloglevel=2,
    )
    vocab = PieceVocabulary(model.getvalue())
    tokens = [token for word in ("the", "caf\u00e9", "\u732b") for token in vocab.encode_word(word)]
    assert vocab.unk not in tokens and Pieces(vocab).words(tokens) == ("the", "caf\u00e9", "\u732b")
    assert Pieces(vocab).words(tokens[:-1]) == ("the", "caf\u00e9", "\ufffd")


def test_equal_prefixes_are_one_node() -> None:
    tree = Prefixes()
    one = tree.child(tree.child(0, 3), 2)
    assert one == tree.child(tree.child(0, 3), 2) and one != tree.child(tree.child(0, 2), 3)
    assert tree.child(one, 0) == one
    assert tree.tokens(one) == (3, 2)
