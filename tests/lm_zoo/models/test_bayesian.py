"""The Bayesian Transformer: KL, draws, scaling of the bound, priors, model averaging."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from lm_zoo.errors import ModelError
from lm_zoo.inference.scoring import score
from lm_zoo.models.bayesian import BayesianAverage, gaussian_kl
from lm_zoo.registry import build, load, save_folder
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary
from lm_zoo.training.train import train
from lm_zoo.training.transfer import convert_lm, new_lm
from tests.lm_zoo import zoo
from tests.lm_zoo.training.test_train import config, text

VOCAB = WordVocabulary([SOS_EOS, UNK, *"ABCDEFGH"], "upper")
PLAIN = {**zoo.SMALL, "activation": "gelu", "dropout": 0.0}
PARTS = {
    "embedding": {"input.embedding.weight"},
    "attention": {"layers.1.attention.in_proj.weight"},
    "feedforward": {"layers.1.linear1.weight", "layers.1.linear2.weight"},
}


def bayesian(**changes: Any) -> Any:
    torch.manual_seed(0)
    return build("bayesian", VOCAB, {**PLAIN, **changes})


def test_kl_is_that_of_torch_distributions() -> None:
    torch.manual_seed(0)
    mean, prior_mean, log_sigma, prior_log_sigma = torch.randn(4, 7, 5, dtype=torch.float64).unbind(0)
    expected = kl_divergence(Normal(mean, log_sigma.exp()), Normal(prior_mean, prior_log_sigma.exp())).sum()
    torch.testing.assert_close(gaussian_kl(mean, log_sigma, prior_mean, prior_log_sigma), expected)


@pytest.mark.parametrize("part", PARTS)
def test_only_the_chosen_weights_are_uncertain(part: str) -> None:
    lm = bayesian(uncertain=part, blocks="2", sigma=0.1)
    assert {place.replace("-", ".") for place in lm.log_sigma} == PARTS[part]
    drawn = lm.draw(torch.Generator().manual_seed(1))
    assert set(drawn) - {"output.weight"} == PARTS[part]
    for name in PARTS[part]:
        noise = (drawn[name] - lm.mean.get_parameter(name)) / 0.1
        assert noise.std().item() == pytest.approx(1.0, abs=0.2)
    assert lm.kl().item() == pytest.approx(
        sum(
            kl_divergence(Normal(lm.mean.get_parameter(name), 0.1), Normal(0.0, 1.0)).sum().item()
            for name in PARTS[part]
        ),
        rel=1e-5,
    )


def test_a_range_of_blocks() -> None:
    assert len(bayesian(blocks="1-2").log_sigma) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blocks": "3"}, "blocks 1 to 2"),
        ({"blocks": "2-1"}, "blocks 1 to 2"),
        ({"blocks": "all"}, "expected a number or a range"),
        ({"uncertain": "bias"}, "expected one of embedding, attention, feedforward"),
        ({"sigma": 0.0}, "sigma 0.0 must be above 0"),
    ],
)
def test_bad_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        bayesian(**changes)


@pytest.mark.parametrize("part", PARTS)
def test_the_training_loss_is_that_of_one_draw_and_reaches_mean_and_sigma(part: str) -> None:
    lm = bayesian(uncertain=part, sigma=0.3).train()
    inputs, targets = torch.tensor([[0, 2, 3], [0, 4, 5]]), torch.tensor([[2, 3, 0], [4, 5, -1]])
    torch.manual_seed(5)
    loss = lm(inputs, targets)
    loss.backward()
    torch.manual_seed(5)
    generator = torch.Generator()
    generator.set_state(torch.get_rng_state())
    drawn = lm.sample(generator)
    with torch.no_grad():
        logits = drawn.output(drawn.hidden(inputs))
    inside = targets >= 0
    expected = -logits[inside].gather(1, targets[inside].unsqueeze(1)).sum()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for place, log_sigma in lm.log_sigma.items():
        assert log_sigma.grad.abs().sum() > 0
        assert lm._weight(place).grad.abs().sum() > 0


def test_evaluation_uses_the_means() -> None:
    lm = bayesian(sigma=2.0).eval()
    tokens, lengths = torch.tensor([[2, 3, 4]]), torch.tensor([3])
    with torch.no_grad():
        torch.testing.assert_close(lm.score(tokens, lengths), lm.mean.score(tokens, lengths))


def test_an_epoch_sums_to_the_bound(tmp_path: Path) -> None:
    """Losses of the steps, each with its share of the KL, sum to NLL + KL (Eq. 9) when weighted by their tokens."""
    source = text(0, sentences=60)
    lm = bayesian()
    total = len(source.tokens) + 60
    shares = []

    counts: list[int] = []
    original = type(lm).kl

    def kl(self: Any) -> torch.Tensor:
        value = original(self)
        shares.append(value.item() / total)
        return value

    type(lm).kl = kl
    try:
        settings = config(lr=0.0, warmup=0, passes=1, valid_every=0, log_every=1, optimizer="sgd")
        train(
            "bayesian", PLAIN, VOCAB, source, text(1), tmp_path, settings, report=lambda r: counts.append(r["tokens"])
        )
    finally:
        type(lm).kl = original
    steps = np.diff([0, *sorted(set(counts))])
    assert steps.sum() == total
    assert len(steps) == len(shares)
    fresh = bayesian()
    assert float(np.dot(steps, shares)) == pytest.approx(fresh.kl().item(), rel=0.05)


def plain_folder(tmp_path: Path) -> Path:
    lm = zoo.neural("transformer-gelu-no-positions")
    save_folder(tmp_path / "plain", lm, "transformer", {"data": ["made up"]})
    return tmp_path / "plain"


def test_a_transformer_becomes_bayesian(tmp_path: Path) -> None:
    source = plain_folder(tmp_path)
    lm = convert_lm("bayesian", str(source), {"sigma": 0.02, "uncertain": "attention"}, tmp_path / "bayes")
    again, plain = load(str(tmp_path / "bayes")), load(str(source))
    sentences = [("A", "B"), ("C",), ()]
    assert again.score_words(sentences) == plain.score_words(sentences)
    sigma = torch.full((1,), 0.02)
    size = lm.log_sigma["layers-0-attention-in_proj-weight"].numel()
    assert lm.kl().item() == pytest.approx(size * kl_divergence(Normal(0.0, sigma), Normal(0.0, 1.0)).item(), rel=1e-4)
    draws = BayesianAverage(again, samples=4).score_words(sentences)
    assert draws != plain.score_words(sentences)


@pytest.mark.slow
def test_training_from_a_transformer_pulls_towards_it(tmp_path: Path) -> None:
    """With a prior that is very sure, the means stay at the Transformer's weights; with a wide one they move."""
    source = plain_folder(tmp_path)
    moved = {}
    for prior_sigma in (1e-4, 1.0):
        out = tmp_path / str(prior_sigma)
        settings = {**zoo.SMALL, "activation": "gelu", "positions": False, "prior_sigma": prior_sigma, "sigma": 1e-4}
        start = new_lm("bayesian", VOCAB, settings, 1, str(source))
        train("bayesian", settings, VOCAB, text(0), text(1), out, config(steps=60), lm=start)
        name = "layers.0.linear1.weight"
        change = load(str(out)).mean.get_parameter(name) - load(str(source)).get_parameter(name)
        moved[prior_sigma] = change.abs().mean().item()
    assert moved[1e-4] < 0.3 * moved[1.0]


def test_adaptation_takes_the_posterior_as_prior(tmp_path: Path) -> None:
    source = plain_folder(tmp_path)
    lm = convert_lm("bayesian", str(source), {"sigma": 0.02}, tmp_path / "bayes")
    adapted = convert_lm("bayesian", str(tmp_path / "bayes"), {"prior_sigma": 0}, tmp_path / "adapted")
    assert adapted.kl().item() == pytest.approx(0.0, abs=1e-3)
    for place, spread in adapted.prior_log_sigma.items():
        torch.testing.assert_close(spread, lm.log_sigma[place].detach())
    with pytest.raises(ModelError, match="prior_sigma=0 takes the prior from a Bayesian LM"):
        convert_lm("bayesian", str(source), {"prior_sigma": 0}, tmp_path / "none")


def test_a_spread_that_is_there_is_not_set_anew(tmp_path: Path) -> None:
    convert_lm("bayesian", str(plain_folder(tmp_path)), {"sigma": 0.02}, tmp_path / "bayes")
    again = convert_lm("bayesian", str(tmp_path / "bayes"), {"sigma": 0.02, "prior_sigma": 2.0}, tmp_path / "again")
    assert again.config.prior_sigma == 2.0
    with pytest.raises(ModelError, match=r"its posterior has a spread of its own; leave out sigma=0.1"):
        convert_lm("bayesian", str(tmp_path / "bayes"), {"sigma": 0.1}, tmp_path / "other")
    more = convert_lm("bayesian", str(tmp_path / "bayes"), {"sigma": 0.1, "blocks": "1-2"}, tmp_path / "more")
    spreads = {round(spread.detach().exp().mean().item(), 4) for spread in more.log_sigma.values()}
    assert spreads == {0.02, 0.1}  # of block 1 and of block 2


def test_averaging_is_the_mean_of_the_draws_probabilities() -> None:
    lm = zoo.neural("bayesian")
    average = BayesianAverage(lm, samples=5, seed=3)
    tokens, lengths = torch.tensor([[2, 3, 4]]), torch.tensor([3])
    with torch.no_grad():
        got = average.score(tokens, lengths)
        generator = torch.Generator().manual_seed(3)
        each = torch.stack([lm.sample(generator).score(tokens, lengths) for _ in range(5)])
    torch.testing.assert_close(got.float(), (each.exp().mean(0)).log(), rtol=1e-4, atol=1e-5)
    again = BayesianAverage(lm, samples=5, seed=3).score_words([("A", "B")])
    assert again == average.score_words([("A", "B")])
    assert BayesianAverage(lm, samples=5, seed=4).score_words([("A", "B")]) != again


def test_uncertainty_is_the_spread_of_the_word_scores() -> None:
    average = BayesianAverage(zoo.neural("bayesian"), samples=4)
    sentences = [("A", "B", "C"), ()]
    rows = average.score_with_uncertainty(sentences)[1]
    assert [len(row) for row in rows] == [4, 1]
    draws = np.array([lm.score_words(sentences)[0] for lm in average.lms])
    assert rows[0] == pytest.approx(draws.std(axis=0).tolist(), abs=1e-5)
    single = BayesianAverage(zoo.neural("bayesian"), samples=1)
    assert single.score_with_uncertainty(sentences)[1][0] == [0.0] * 4


def test_averages_are_taken_in_parts_as_the_lm_itself_is(monkeypatch: pytest.MonkeyPatch) -> None:
    average = BayesianAverage(zoo.neural("bayesian"), samples=3)
    sentences = [("A", "B", "C"), (), ("B",), ("C", "A"), ("A", "B")]
    whole = average.score_with_uncertainty(sentences)
    sizes: list[int] = []

    def counted(lm: Any, prefixes: Any) -> Any:
        sizes.append(prefixes.num_nodes)
        return score(lm, prefixes)

    monkeypatch.setattr("lm_zoo.models.bayesian.NODES", 4)
    monkeypatch.setattr("lm_zoo.models.bayesian.score", counted)
    for found, wanted in zip(average.score_with_uncertainty(sentences), whole, strict=True):
        for row, same in zip(found, wanted, strict=True):
            assert row == pytest.approx(same, abs=1e-5)
    assert len(sizes) > 3  # draws, of a part each


def test_draws_take_as_long_contexts_as_the_lm() -> None:
    lm = zoo.neural("bayesian")
    lm.most_tokens = 6
    average = BayesianAverage(lm, samples=2)
    assert {one.most_tokens for one in average.lms} == {6} and average.most_tokens == 6  # which `nbest` says


@pytest.mark.slow
def test_more_data_makes_the_posterior_narrower(tmp_path: Path) -> None:
    """The longer the text, the less the KL to the wide prior weighs."""
    spread = []
    for sentences in (20, 2000):
        out = tmp_path / str(sentences)
        settings = config(steps=60, lr=0.05)
        train("bayesian", {**PLAIN, "sigma": 0.5}, VOCAB, text(0, sentences), text(1), out, settings)
        spread.append(torch.cat([p.exp().flatten() for p in load(str(out)).log_sigma.values()]).mean().item())
    assert spread[1] < 0.8 * spread[0]
