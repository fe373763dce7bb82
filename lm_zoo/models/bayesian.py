"""The Bayesian Transformer LM: Gaussian posteriors over some of the weights, trained by variational inference.

B. Xue, J. Yu, J. Xu, S. Liu, S. Hu, Z. Ye, M. Geng, X. Liu, H. Meng, "Bayesian Transformer Language Models for Speech
Recognition" (2021).  The model is the post-norm Transformer of Eqs. 2-7 (six blocks, 512/4096, GELU).  The weights of
one part (Table 1: embedding; Q, K and V of the attention; feed-forward) in a range of blocks have a diagonal Gaussian
posterior N(mu, sigma) each (Eq. 11); biases and LayerNorms do not.  Training draws them once a batch (K = 1) with
mu + sigma * epsilon (Eq. 13) and adds the exact divergence from the prior (Eq. 14).

Scaling.  The training loop minimises, a step, `NLL / tokens of the step + KL / tokens of the text`.  Steps weighted by
their tokens, one pass over the text sums to `NLL + KL`: the negative bound of Eq. 9.

The prior's mean is the Transformer that the run starts from (`--init`; zero without one), its standard deviation
`prior_sigma`.  A Bayesian LM that starts from a Bayesian one takes that one's posterior means; with `prior_sigma=0`
its posterior spread as well, weight by weight (adaptation, Section 5.2).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lm_zoo.base import Context
from lm_zoo.inference.interpolation import InterpolatedLM
from lm_zoo.inference.memory import in_parts
from lm_zoo.inference.neural import NeuralLM
from lm_zoo.inference.scoring import NODES, score
from lm_zoo.inference.state import State
from lm_zoo.inference.tree import Tree
from lm_zoo.inference.trie import Trie, sum_to_words
from lm_zoo.models.transformer import Transformer, TransformerConfig
from lm_zoo.text.coverage import MOST_UNKNOWN, check_text
from lm_zoo.text.vocabulary import Vocabulary

PARTS = ("embedding", "attention", "feedforward")


@dataclass
class BayesianConfig(TransformerConfig):
    """Defaults are the paper's: Section 4.2, and the best position of Table 1 (feed-forward, block 1)."""

    feedforward: int = 4096  # width inside a layer
    layers: int = 6  # Transformer layers
    activation: str = "gelu"  # "relu" or "gelu"
    uncertain: str = "feedforward"  # or "attention", "embedding"
    blocks: str = "1"  # "K" or "FIRST-LAST", from 1 at the bottom; of no meaning for the embedding
    sigma: float = 0.01  # standard deviation of the posterior at the start
    prior_sigma: float = 1.0  # standard deviation of the prior; 0: the posterior of the Bayesian LM that is adapted


class BayesianTransformer(NeuralLM):
    """See the module's description.  Scoring uses the posterior means (Eq. 18); `average` averages over draws.

    Attributes:
      mean: the Transformer of the posterior means.
      log_sigma: natural logs of the posterior standard deviations, by place; a place is the name of a weight of
        `mean` with "." written as "-".
      prior_mean, prior_log_sigma: the prior, by place; set when a run starts, and not stored with the model.
    """

    Config = BayesianConfig
    added = ("log_sigma.",)

    def __init__(self, vocab: Vocabulary, config: BayesianConfig) -> None:
        super().__init__(vocab, config)
        if config.sigma <= 0 or config.prior_sigma < 0:
            raise ValueError(f"sigma {config.sigma} must be above 0, prior_sigma {config.prior_sigma} not below 0")
        plain = {field.name: getattr(config, field.name) for field in fields(TransformerConfig)}
        self.mean = Transformer(vocab, TransformerConfig(**plain))
        self.log_sigma = nn.ParameterDict(
            {
                name.replace(".", "-"): nn.Parameter(torch.full_like(self._weight(name), math.log(config.sigma)))
                for name in uncertain_names(config)
            }
        )
        spread = math.log(config.prior_sigma or 1.0)
        self.prior_mean = {place: torch.zeros_like(sigma) for place, sigma in self.log_sigma.items()}
        self.prior_log_sigma = {
            place: torch.full_like(sigma, spread).detach() for place, sigma in self.log_sigma.items()
        }

    @property
    def output(self) -> Any:  # type: ignore[override]
        return self.mean.output

    def _weight(self, name: str) -> Tensor:
        return self.mean.get_parameter(name.replace("-", "."))

    def hidden(self, inputs: Tensor) -> Tensor:
        return self.mean.hidden(inputs)

    def hidden_after(self, state: State, inputs: Tensor) -> tuple[State, Tensor]:
        return self.mean.hidden_after(state, inputs)

    def tree_hidden(self, tree: Tree) -> Tensor:
        return self.mean.tree_hidden(tree)

    def initial_state(self) -> State:
        return self.mean.initial_state()

    def step_hidden(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        return self.mean.step_hidden(state, tokens)

    def forward(self, inputs: Tensor, targets: Tensor, state: State | None = None, places: Tensor | None = None) -> Any:
        """Training: the loss under one draw of the weights (Eqs. 12, 13); evaluation: under the means (Eq. 18)."""
        if not self.training:
            return self.mean(inputs, targets, state, places)
        return functional_call(self.mean, self.draw(), (inputs, targets, state, places))

    def undecayed(self) -> set[str]:
        """The posterior's parameters: the KL divergence alone pulls at them (Eq. 9)."""
        return {f"log_sigma.{place}" for place in self.log_sigma} | {
            f"mean.{place.replace('-', '.')}" for place in self.log_sigma
        }

    def draw(self, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """One draw of the uncertain weights, by name of the weight in `mean` (Eq. 13)."""
        drawn: dict[str, Tensor] = {}
        for place, log_sigma in self.log_sigma.items():
            mean = self._weight(place)
            where = mean.device if generator is None else generator.device
            noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=where)
            drawn[place.replace("-", ".")] = mean + log_sigma.exp() * noise.to(mean.device)
        if "input.embedding.weight" in drawn and self.config.tied:
            drawn["output.weight"] = drawn["input.embedding.weight"]
        return drawn

    @property
    def plain(self) -> NeuralLM:
        return self.mean

    def kl(self) -> Tensor:
        """KL(posterior || prior) over all uncertain weights, natural log (Eq. 14)."""
        total = torch.zeros((), device=self.device)
        for place, log_sigma in self.log_sigma.items():
            prior_mean = self.prior_mean[place].to(self.device)
            prior_log_sigma = self.prior_log_sigma[place].to(self.device)
            total = total + gaussian_kl(self._weight(place), log_sigma, prior_mean, prior_log_sigma)
        return total

    def started_from(self, trained: NeuralLM) -> None:
        """Takes the weights of a Transformer or of a Bayesian one, which become the prior's means.

        Raises:
          ValueError: `trained` has not what the prior is to be, or a posterior whose spread is not to be set anew.
        """
        own = set(trained.log_sigma) if isinstance(trained, BayesianTransformer) else set[str]()
        if own == set(self.log_sigma) and trained.config.sigma != self.config.sigma:
            raise ValueError(f"its posterior has a spread of its own; leave out sigma={self.config.sigma}")
        for place in self.log_sigma:
            self.prior_mean[place] = self._weight(place).detach().clone()
        if self.config.prior_sigma:
            return
        if not isinstance(trained, BayesianTransformer) or set(trained.log_sigma) != set(self.log_sigma):
            raise ValueError("prior_sigma=0 takes the prior from a Bayesian LM of the same uncertain weights")
        self.prior_log_sigma = {place: sigma.detach().clone() for place, sigma in trained.log_sigma.items()}

    def sample(self, generator: torch.Generator) -> Transformer:
        """A Transformer whose uncertain weights are one draw; the other weights are shared, not copied."""
        drawn = self.draw(generator)
        shared = {id(p): p for name, p in self.mean.named_parameters() if name not in drawn}
        lm = copy.deepcopy(self.mean, dict(shared))
        with torch.no_grad():
            for name, value in drawn.items():
                lm.get_parameter(name).copy_(value)
        lm.most_tokens = self.most_tokens
        return lm.eval()


def uncertain_names(config: BayesianConfig) -> list[str]:
    """Names of the uncertain weights in the Transformer.

    Raises:
      ValueError: an unknown part, or blocks that there are not.
    """
    if config.uncertain not in PARTS:
        raise ValueError(f"uncertain is '{config.uncertain}', expected one of {', '.join(PARTS)}")
    if config.uncertain == "embedding":
        return ["input.embedding.weight"]
    first, _, last = config.blocks.partition("-")
    if not (first.isdigit() and (last or first).isdigit()):
        raise ValueError(f"blocks is '{config.blocks}', expected a number or a range such as 1-3")
    begin, end = int(first), int(last or first)
    if not 1 <= begin <= end <= config.layers:
        raise ValueError(f"blocks is '{config.blocks}', but there are blocks 1 to {config.layers}")
    # in_proj stacks Q, K and V: with diagonal Gaussians its rows are three independent posteriors (Section 3.3).
    inner = ["attention.in_proj.weight"] if config.uncertain == "attention" else ["linear1.weight", "linear2.weight"]
    return [f"layers.{block - 1}.{name}" for block in range(begin, end + 1) for name in inner]


def gaussian_kl(mean: Tensor, log_sigma: Tensor, prior_mean: Tensor, prior_log_sigma: Tensor) -> Tensor:
    """KL(N(mean, sigma) || N(prior_mean, prior_sigma)), summed over all elements; all of one shape (Eq. 14)."""
    variance_ratio = (2 * (log_sigma - prior_log_sigma)).exp()
    distance = (mean - prior_mean) ** 2 * (-2 * prior_log_sigma).exp()
    return (prior_log_sigma - log_sigma + (variance_ratio + distance - 1) / 2).sum()


def functional_call(module: nn.Module, weights: dict[str, Tensor], inputs: tuple[Any, ...]) -> Any:
    """`module(*inputs)` with some of its weights replaced."""
    if hasattr(torch, "func"):
        return torch.func.functional_call(module, weights, inputs)
    from torch.nn.utils.stateless import functional_call as call  # torch 1.13

    return call(module, weights, inputs)


class BayesianAverage(InterpolatedLM):
    """Model averaging over `samples` draws of the weights (Eq. 8), the same draws for everything that is scored.

    Attributes:
      with_uncertainty: whether rescoring writes the predictive uncertainty as a column too.
    """

    lms: Sequence[NeuralLM]

    def __init__(self, lm: BayesianTransformer, samples: int, seed: int = 1, with_uncertainty: bool = False) -> None:
        """Raises ValueError if `samples` is below 1."""
        if samples < 1:
            raise ValueError(f"samples is {samples}, expected 1 or more")
        generator = torch.Generator().manual_seed(seed)
        super().__init__([lm.sample(generator) for _ in range(samples)], [1.0 / samples] * samples)
        self.with_uncertainty = with_uncertainty

    def score_words(
        self, sentences: Sequence[Sequence[str]], max_unknown: float | None = MOST_UNKNOWN
    ) -> list[list[float]]:
        """As `LanguageModel.score_words`; probabilities are averaged a token."""
        return self.score_hypotheses(sentences, max_unknown)

    def score_hypotheses(
        self,
        sentences: Sequence[Sequence[str]],
        max_unknown: float | None = MOST_UNKNOWN,
        contexts: Sequence[Context] | None = None,
    ) -> list[list[float]]:
        """As `LanguageModel.score_hypotheses`."""
        check_text(self, sentences, max_unknown)
        return self.score_with_uncertainty(sentences, contexts)[0]

    def score_with_uncertainty(
        self, sentences: Sequence[Sequence[str]], contexts: Sequence[Context] | None = None
    ) -> tuple[list[list[float]], list[list[float]]]:
        """Natural logs a word, the sentence end last, and the predictive uncertainty of each.

        The uncertainty of a word is the standard deviation of its natural-log probability over the draws.
        """
        def by_draw(_: NeuralLM, prefixes: Trie) -> list[tuple[np.ndarray, np.ndarray]]:
            return [score(lm, prefixes) for lm in self.lms]

        means: list[list[float]] = []
        spread: list[list[float]] = []
        for words, prefixes, draws in in_parts(self.lms[0], sentences, by_draw, NODES, contexts):
            nodes, ends = (np.logaddexp.reduce(scores) - math.log(len(draws)) for scores in zip(*draws, strict=True))
            means += sum_to_words(words, prefixes, nodes, ends)
            each = [sum_to_words(words, prefixes, *draw) for draw in draws]
            spread += [np.std(np.array(rows), axis=0).tolist() for rows in zip(*each, strict=True)]
        return means, spread
