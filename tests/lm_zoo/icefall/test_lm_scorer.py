"""The LmScorer for icefall: the calls that icefall's searches make, against the zoo's own scores.

The loops are those of modified_beam_search_lm_shallow_fusion and of the N-best rescoring, without icefall: which
tensors go in, how the state is split into hypotheses and joined again, how lists are padded.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lm_zoo.errors import ModelError, VocabError
from lm_zoo.icefall.lm_scorer import LmScorer, ZooLM
from lm_zoo.registry import build, save_folder
from lm_zoo.text.tokenizer import build_pieces
from lm_zoo.text.vocabulary import PieceVocabulary
from tests.lm_zoo.zoo import neural

SMALL = {"dim": 16, "heads": 2, "feedforward": 24, "layers": 2}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("lstm", {"dim": 12}),
    "transfornn": ("transfornn", SMALL),
    "transformer": ("transformer", SMALL),
    "lookup": ("lookup", {**SMALL, "slots": 7, "entries": 3}),
    "icefall-transformer": ("icefall-transformer", {**SMALL, "embedding_dim": 16}),
    "bayesian": ("bayesian", SMALL),
    "bayesian?samples=2": ("bayesian", SMALL),
}
HYPS = [[5, 9, 3, 12], [], [7], [5, 9, 4], [19, 19, 2, 3, 3, 8]]
VOCAB = 20


@pytest.fixture(scope="module")
def vocab() -> PieceVocabulary:
    return build_pieces({"HELLO": 5, "WORLD": 3, "HELL": 2, "WORD": 9}, VOCAB, "bpe")


def scorer(name: str, vocab: PieceVocabulary, folder: Path, scale: float = 0.3) -> LmScorer:
    """As decode.py of a recipe makes it."""
    kind, settings = KINDS[name]
    torch.manual_seed(5)
    lm = build(kind, vocab, settings)
    with torch.no_grad():
        for tensor in lm.parameters():
            tensor.add_(0.2 * torch.randn_like(tensor))
    save_folder(folder / "lm", lm.eval(), kind, {})
    (folder / "bpe.model").write_bytes(vocab.model)
    where = f"{folder / 'lm'}{name[len(kind) :]}"
    params = SimpleNamespace(lm_exp_dir=where, bpe_model=str(folder / "bpe.model"), lm_epoch=7, lm_avg=1)
    made = LmScorer(lm_type="rnn", params=params, device=torch.device("cpu"), lm_scale=scale)
    made.to(torch.device("cpu"))
    return made.eval()


def own_scores(lm: Any, hyps: list[list[int]]) -> list[list[float]]:
    """One hypothesis at a time, nothing padded, the sentence end last."""
    rows = [torch.tensor([hyp], dtype=torch.long).view(1, len(hyp)) for hyp in hyps]
    return [lm.score(row, torch.tensor([row.shape[1]]))[0].tolist() for row in rows]


@pytest.mark.parametrize("name", KINDS)
def test_shallow_fusion(name: str, vocab: PieceVocabulary, tmp_path: Path) -> None:
    """Hypotheses grow side by side, at different speed; each token gets the zoo's own score."""
    LM = scorer(name, vocab, tmp_path)
    assert LM.lm_type == ("rnn" if name == "lstm" else "transformer") and LM.lm_scale == 0.3
    sos_id = getattr(LM, "sos_id", 1)
    init_score, init_states = LM.score_token(torch.tensor([[sos_id]]), torch.tensor([1]))
    assert init_score.shape == (1, VOCAB) and init_score.exp().sum() == pytest.approx(1.0, abs=1e-5)
    active = [SimpleNamespace(ys=[], state=init_states, lm_score=init_score.reshape(-1), found=[]) for _ in HYPS]
    for round_ in range(12):
        growing = [
            (hyp, tokens[len(hyp.ys)])
            for number, (hyp, tokens) in enumerate(zip(active, HYPS, strict=True))
            if len(hyp.ys) < len(tokens) and (round_ + number) % 2 == 0  # the others emit a blank
        ]
        if growing:
            scores, states = LM.score_token(*shallow_fusion_input(LM, growing, sos_id))
            assert scores.shape == (len(growing), VOCAB)
        for count, (hyp, token) in enumerate(growing):
            hyp.found.append(float(hyp.lm_score[token]))
            hyp.ys.append(token)
            hyp.lm_score = scores[count]
            if LM.lm_type == "rnn":
                hyp.state = (states[0][:, count, :].unsqueeze(1), states[1][:, count, :].unsqueeze(1))
    assert [hyp.ys for hyp in active] == HYPS
    for hyp, expected in zip(active, own_scores(LM.lm.lm, HYPS), strict=True):
        assert [*hyp.found, float(hyp.lm_score[sos_id])] == pytest.approx(expected, abs=1e-4)


def shallow_fusion_input(LM: LmScorer, growing: list[Any], sos_id: int) -> tuple[Tensor, Tensor, Any]:
    """What modified_beam_search_lm_shallow_fusion hands to score_token for hypotheses and their next tokens."""
    if LM.lm_type == "rnn":
        token_list = [[token] for _, token in growing]
        x = torch.tensor(token_list).to(torch.int64).reshape(-1, 1)
        hs, cs = (torch.cat([hyp.state[k] for hyp, _ in growing], dim=1) for k in (0, 1))
        return x, torch.tensor([1 for _ in growing]), (hs, cs)
    token_list = [[sos_id, *hyp.ys, token] for hyp, token in growing]
    x = pad_sequence([torch.tensor(tokens) for tokens in token_list], batch_first=True, padding_value=0.0)
    return x.to(torch.int64), torch.tensor([len(tokens) for tokens in token_list]), None


@pytest.mark.parametrize("name", KINDS)
def test_nbest_rescoring(name: str, vocab: PieceVocabulary, tmp_path: Path) -> None:
    """modified_beam_search_lm_rescore: all hypotheses of a batch, padded with blanks, by name and by position."""
    LM = scorer(name, vocab, tmp_path)
    x, y, lengths = padded(HYPS)
    lm_scores = LM.lm(x=x, y=y, lengths=lengths)
    assert lm_scores.ndim == 2 and lm_scores.shape == x.shape
    expected = own_scores(LM.lm.lm, HYPS)
    assert (-1 * lm_scores.sum(dim=1)).tolist() == pytest.approx([sum(row) for row in expected], abs=1e-4)
    for found, row in zip(lm_scores.tolist(), expected, strict=True):
        assert found[: len(row)] == pytest.approx([-score for score in row], abs=1e-4)
        assert not any(found[len(row) :])
    assert torch.equal(LM.lm(x, y, lengths), lm_scores)
    alone = LM.lm(*padded([[]]))
    assert alone.shape == (1, 1) and float(alone) == pytest.approx(-expected[1][0], abs=1e-5)


@pytest.mark.parametrize("name", ["lstm", "transfornn"])
def test_unk_as_begin_and_end(name: str, vocab: PieceVocabulary, tmp_path: Path) -> None:
    """fast_beam_search_with_nbest_rnn_rescoring: it asks for pieces that are not there, and gets <unk>."""
    LM = scorer(name, vocab, tmp_path)
    assert vocab.processor.piece_to_id("sos_id") == vocab.processor.piece_to_id("eos_id") == 2
    for hyps in (HYPS, [[2, 5], [2], [2, 2, 9]]):
        assert torch.equal(LM.lm(*padded(hyps, mark=2)), LM.lm(*padded(hyps)))
    x, y, lengths = padded(HYPS, mark=2)
    with pytest.raises(VocabError, match="y ends with it"):
        LM.lm(x, padded(HYPS)[1], lengths)
    x[1, 0] = 1
    with pytest.raises(VocabError, match="y ends with it"):
        LM.lm(x, y, lengths)


def padded(hyps: list[list[int]], blank: int = 0, mark: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    pairs = [([mark, *hyp], [*hyp, mark]) for hyp in hyps]
    x, y = ([torch.tensor(row) for row in rows] for rows in zip(*pairs, strict=True))
    lengths = torch.tensor([len(hyp) + 1 for hyp in hyps])
    return (*(pad_sequence(rows, batch_first=True, padding_value=blank) for rows in (x, y)), lengths)


def test_the_first_state_is_that_of_each_hypothesis(vocab: PieceVocabulary, tmp_path: Path) -> None:
    """The states of one begin of sentence, joined for several hypotheses, and of a batch of them, are the same."""
    LM = scorer("lstm", vocab, tmp_path)
    one, state = LM.score_token(torch.tensor([[1]]), torch.tensor([1]))
    three, states = LM.score_token(torch.tensor([[1]] * 3), torch.tensor([1] * 3))
    assert states[0].shape == states[1].shape == (2, 3, 12)
    assert torch.allclose(torch.cat([state[0]] * 3, dim=1), states[0]) and torch.allclose(one.expand(3, -1), three)


def test_the_state_can_be_moved_where_icefall_moves_it(vocab: PieceVocabulary, tmp_path: Path) -> None:
    """ctc_prefix_beam_search_shallow_fussion calls .cpu() of both parts, whatever the kind of LM."""
    for name in ("lstm", "transfornn"):
        _, state = scorer(name, vocab, tmp_path / name).score_token(torch.tensor([[1]]), torch.tensor([1]))
        assert len(state) == 2 and all(part.cpu().device.type == "cpu" for part in state)


def test_sentences_that_are_not_shifted(vocab: PieceVocabulary, tmp_path: Path) -> None:
    LM = scorer("lstm", vocab, tmp_path)
    x, y, lengths = padded(HYPS)
    for wrong in ((x, x, lengths), (y, y, lengths), (x, y, lengths - (lengths > 1).long())):
        with pytest.raises(VocabError, match=r"x begins with 1 \(or all with 2\), y ends with it"):
            LM.lm(*wrong)


def test_lms_that_icefall_cannot_ask(vocab: PieceVocabulary, tmp_path: Path) -> None:
    save_folder(tmp_path / "words", neural("lstm"), "lstm", {})
    with pytest.raises(VocabError, match=r"train an LM over them .*--vocab data/lang_bpe_500/bpe.model"):
        ZooLM(str(tmp_path / "words"))
    LM = scorer("lstm", vocab, tmp_path)
    other = tmp_path / "other.model"
    other.write_bytes(build_pieces({"HELLO": 5, "WORLD": 3, "WORD": 9}, 15, "bpe").model)
    with pytest.raises(VocabError, match=r"its pieces are not those of .*other.model; train an LM over them"):
        ZooLM(LM.params.lm_exp_dir, other)
    with pytest.raises(ModelError, match="no LM is called"):
        ZooLM("none")
    with pytest.raises(ModelError, match="--lm-exp-dir is missing: expected a model folder"):
        LmScorer("rnn", SimpleNamespace(lm_exp_dir=None), "cpu")


@pytest.mark.parametrize("size", ["--vocab-size", "--lm-vocab-size"])  # before April 2023, and since
@pytest.mark.parametrize("own", [False, True])
def test_icefalls_options_are_taken(size: str, own: bool) -> None:
    """`own`: the script has a --vocab-size itself."""
    parser = argparse.ArgumentParser()
    if own:
        parser.add_argument("--vocab-size", type=int, default=5000)
    LmScorer.add_arguments(parser)
    line = f"--lm-exp-dir exp/lm --lm-epoch 99 --lm-avg 1 {size} 400 --rnn-lm-num-layers 3 --rnn-lm-tie-weights 1"
    params = parser.parse_args([*line.split(), "--transformer-lm-nhead", "8"])
    assert (params.lm_exp_dir, params.lm_epoch, getattr(params, size[2:].replace("-", "_"))) == ("exp/lm", 99, 400)
    if size == "--lm-vocab-size":
        assert getattr(params, "vocab_size", None) == (5000 if own else None)


def test_an_lm_over_the_pieces_of_a_recogniser(vocab: PieceVocabulary, tmp_path: Path) -> None:
    from lm_zoo.training.run import TextRecipe, make_vocabulary

    (tmp_path / "bpe.model").write_bytes(vocab.model)
    recipe = TextRecipe(["none"], "none", vocab=str(tmp_path / "bpe.model"))
    made = make_vocabulary(recipe, tmp_path / "run", lambda message: None)
    assert isinstance(made, PieceVocabulary) and (made.model, made.case) == (vocab.model, "upper")


def test_tokens_of_another_recogniser_are_refused(vocab: PieceVocabulary, tmp_path: Path) -> None:
    """Pieces that the LM has as `<unk>`, or not at all; and a remark where nothing says whose pieces they are."""
    lm = scorer("lstm", vocab, tmp_path).lm

    def score(tokens: list[int]) -> Tensor:
        x, y = torch.tensor([[1, *tokens]]), torch.tensor([[*tokens, 1]])
        return lm(x=x, y=y, lengths=torch.tensor([len(x[0])]))

    with pytest.raises(VocabError, match=f"found the token {VOCAB}, but the LM has {VOCAB} pieces"):
        score([5, VOCAB])
    score([2] * 400)
    with pytest.raises(VocabError, match=r"1002 of 1002 words unknown.*more than 50%"):
        score([2] * 602)


def test_pieces_that_are_not_compared(vocab: PieceVocabulary, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scorer("lstm", vocab, tmp_path)
    assert not caplog.records
    ZooLM(str(tmp_path / "lm"))
    assert "nothing says that its pieces are the recogniser's" in caplog.text
