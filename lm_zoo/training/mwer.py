"""Training on N-best lists, so that the expected errors of a recogniser with the LM are few (MWER).

R. Prabhavalkar et al., "Minimum Word Error Rate Training for Attention-based Sequence-to-Sequence Models" (2018),
Section 3; for LMs that rescore: L. Xu et al., "RescoreBERT: Discriminative Speech Recognition Rescoring with BERT"
(2022), Section 3.3.  A list's hypotheses have the posteriors

    P_i = softmax_i(posterior * (score_i + scale * log p(hypothesis_i)))

where `score_i` is the total of all other scores, and the loss is `sum_i P_i errors_i`, a mean over lists.  That is
Prabhavalkar's loss but for a constant, the mean number of errors.  With text, a part of its usual loss is added.

The hypotheses go through the layers as a padded batch, the softmax layer sees each distinct prefix once.  A Bayesian LM
is trained under draws of its weights, without its divergence from the prior, which belongs to a likelihood; a lookup
dictionary stays as it is.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm_zoo.errors import ModelError, VocabError
from lm_zoo.inference.trie import encode_words
from lm_zoo.inference.viewed import Reader
from lm_zoo.registry import find, read_config, settings_of
from lm_zoo.text.batches import Batch, TokenText
from lm_zoo.text.coverage import MOST_UNKNOWN, Coverage, said
from lm_zoo.text.lists import ErrorList
from lm_zoo.text.view import View
from lm_zoo.text.vocabulary import Vocabulary, text_form
from lm_zoo.training import checkpoint
from lm_zoo.training.config import LMProgress, TrainConfig, idle_settings, list_defaults
from lm_zoo.training.distributed import Ranks, to_start
from lm_zoo.training.run import TextRecipe, finish_card, longest_of, make_vocabulary, tokenise, train_config
from lm_zoo.training.run_identity import check_run, lm_identity, text_identity
from lm_zoo.training.run_log import Remark, Reporter
from lm_zoo.training.runtime import autocast
from lm_zoo.training.train import LMRun, check_settings, epoch_batches
from lm_zoo.training.transfer import check_start, inherit_settings, new_lm
from lm_zoo.training.wandb_log import with_wandb


@dataclass
class TrainingLists:
    """What is trained on.

    Attributes:
      train, valid: the lists.
      scale: of the LM's score beside the other scores.
      identity: name -> value of all that they are made of.
      names: of the data, for the model's `config.json`.
    """

    train: list[ErrorList]
    valid: list[ErrorList]
    scale: float
    identity: dict[str, Any]
    names: list[str]


@dataclass
class ListBatch:
    """The hypotheses of some lists, one list after the other.

    Attributes:
      inputs: int64 `(hypotheses, time)`, the begin of sentence first.
      places: int64 `(pairs,)` in `(hypotheses * time,)`, where tokens are predicted; targets: int64 `(pairs,)`, those.
        A pair is a distinct prefix and a token that follows it in a hypothesis, or its end.
      pairs, rows: int64 `(tokens + hypotheses,)`, the pair of every token and end of every hypothesis, and which one.
      scores, errors: float32 `(hypotheses,)`.
      sizes: hypotheses of each list.
      text: a batch of text beside the lists.
    """

    inputs: Tensor
    places: Tensor
    targets: Tensor
    pairs: Tensor
    rows: Tensor
    scores: Tensor
    errors: Tensor
    sizes: list[int]
    text: Batch | None = None


def make_batch(vocab: Vocabulary, lists: Sequence[ErrorList], text: Batch | None = None) -> ListBatch:
    """A batch of whole lists."""
    sentences = [words for each in lists for words in each.sentences]
    encoded = encode_words(vocab, sentences)
    trie, lengths = encoded.trie(), np.diff(encoded.bounds)
    width = int(lengths.max(initial=0)) + 1
    # Of every token: its hypothesis and its place there.
    row = np.repeat(np.arange(len(sentences)), lengths)
    column = np.arange(len(row)) - np.repeat(encoded.bounds[:-1], lengths)
    inputs = np.full((len(sentences), width), vocab.eos, dtype=np.int64)
    inputs[:, 0] = vocab.bos
    inputs[row, column + 1] = encoded.tokens
    # Of every node: a place in the batch that has read it and what is before it.
    read = np.zeros(trie.num_nodes, dtype=np.int64)
    read[trie.paths] = row * width + column + 1
    ends, end = np.unique(trie.ends, return_inverse=True)
    places = np.concatenate([read[trie.parents[1:]], read[ends]])
    targets = np.concatenate([trie.tokens[1:], np.full(len(ends), vocab.eos)])
    pairs = np.concatenate([trie.paths - 1, trie.num_nodes - 1 + end.reshape(-1)])
    rows = np.concatenate([row, np.arange(len(sentences))])
    return ListBatch(
        inputs=torch.from_numpy(inputs),
        places=torch.from_numpy(places),
        targets=torch.from_numpy(targets),
        pairs=torch.from_numpy(pairs),
        rows=torch.from_numpy(rows),
        scores=torch.tensor([value for each in lists for value in each.scores], dtype=torch.float32),
        errors=torch.tensor([value for each in lists for value in each.errors], dtype=torch.float32),
        sizes=[len(each.sentences) for each in lists],
        text=text,
    )


def expected_errors(
    model: Callable[..., Tensor], batch: ListBatch, scale: float, posterior: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Of each list `(lists,)`: the expected errors, and the errors of the best hypothesis.

    Args:
      model: as `NeuralLM.forward`.
    """
    found = model(batch.inputs.to(device), batch.targets.to(device), None, batch.places.to(device))
    scores = batch.scores.to(device)
    lm = torch.zeros_like(scores).index_add(0, batch.rows.to(device), found[batch.pairs.to(device)])
    totals = (posterior * (scores + scale * lm)).split(batch.sizes)
    each = batch.errors.to(device).split(batch.sizes)
    expected = [(total.softmax(0) * wrong).sum() for total, wrong in zip(totals, each, strict=True)]
    best = [wrong[total.argmax()] for total, wrong in zip(totals, each, strict=True)]
    return torch.stack(expected), torch.stack(best)


class MwerRun(LMRun):
    """The training of an LM on N-best lists."""

    def __init__(self, *args: Any, scale: float, text: TokenText | None) -> None:
        super().__init__(*args)
        self.scale, self.text = scale, text

    def loop(self, train_data: Any, valid_data: Any) -> LMProgress:
        """Validates the LM that it starts from, too, which is the best one until there is a better one."""
        if self.progress.valid_step < 0:
            self.validate(valid_data)
        return super().loop(train_data, valid_data)

    def prepare(self, data: Any) -> None:
        """Nothing depends on all lists."""

    def batches(self, data: Any, rng: np.random.Generator) -> Iterator[Any]:
        chosen = list_batches(data, self.lm.vocab, self.config.batch_tokens, rng)
        texts = self._texts(rng)
        return (make_batch(self.lm.vocab, lists, next(texts, None)) for lists in chosen)

    def _texts(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Batches of the text without an end; nothing where there is none."""
        while self.text is not None:
            yield from epoch_batches(self.text, self.lm.vocab, self.config, rng)

    def count(self, batch: ListBatch) -> int:
        return len(batch.sizes)

    def loss(self, batch: ListBatch) -> Tensor:
        config, device = self.config, self.ranks.device
        loss = expected_errors(self.model, batch, self.scale, config.posterior, device)[0].sum()
        if batch.text is not None:
            inputs, targets = (part.to(device) for part in batch.text)
            share = config.lm_loss * len(batch.sizes) / int((targets >= 0).sum())
            loss = loss + share * self.model(inputs, targets)
        return loss

    def once_a_step(self) -> Tensor:
        return torch.zeros((), device=self.ranks.device)

    def after_step(self, group: list[Any]) -> None:
        """Nothing: a dictionary holds what followed in text."""

    @torch.no_grad()
    def evaluate(self, data: Any) -> tuple[float, dict[str, float]]:
        """Expected errors an utterance, and those of the best hypotheses."""
        self.lm.eval()
        config, device, sums = self.config, self.ranks.device, np.zeros(2)
        for lists in list_batches(data, self.lm.vocab, config.batch_tokens, None):
            with autocast(config.dtype, device):
                batch = make_batch(self.lm.vocab, lists)
                found = expected_errors(self.lm, batch, self.scale, config.posterior, device)
            sums += [float(values.double().sum()) for values in found]
        loss, best = (sums / len(data)).tolist()
        return loss, {"valid_best": best}


def list_batches(
    lists: Sequence[ErrorList], vocab: Vocabulary, batch_tokens: int, rng: np.random.Generator | None
) -> list[list[ErrorList]]:
    """Lists whose padded hypotheses have at most `batch_tokens` tokens, one at least; in random order with `rng`."""
    order = range(len(lists)) if rng is None else rng.permutation(len(lists)).tolist()
    batches: list[list[ErrorList]] = []
    width = rows = 0
    for number in order:
        sentences = lists[number].sentences
        longest = 1 + max(sum(len(vocab.encode_word(word)) for word in words) for words in sentences)
        width, rows = max(width, longest), rows + len(sentences)
        if not batches or width * rows > batch_tokens:
            batches.append([])
            width, rows = longest, len(sentences)
        batches[-1].append(lists[number])
    return batches


def run_on_lists(
    kind: str,
    settings: dict[str, Any],
    recipe: TextRecipe,
    data: TrainingLists,
    options: dict[str, Any],
    out: str,
    device: str,
    remark: Remark,
    world_size: int = 1,
) -> LMProgress:
    """Trains an LM on lists, from `recipe.init`, or continues the run in the folder `out`.

    Args:
      recipe: the text beside the lists, if there is any; `valid` is of no meaning.
    Raises:
      ModelError: several processes, a state that is to be carried, or as `lm_zoo.training.train.train`.
    """
    given = {**options, "passes": 0} if "steps" in options and "passes" not in options else options
    folder, config = Path(out), train_config({**list_defaults(options.get("optimizer")), **given})
    if recipe.init is None:
        raise ModelError("training on N-best lists starts from a trained LM: give --init NAME|DIR")
    if config.carry:
        raise ModelError("training on N-best lists carries no state; leave out carry=true (the text may be windows)")
    if to_start(world_size) or Ranks.start(device).size > 1:
        raise ModelError("training on N-best lists runs in one process; leave out --world-size or torchrun")
    check_settings(kind, config, 1)
    for line in idle_settings(config, options, on_lists=True, on_text=bool(recipe.texts)):
        remark(line)
    recipe.vocab = recipe.init
    settings = inherit_settings(kind, recipe.init, settings)
    check_start(recipe.init, folder)
    check_run(folder, _made_of(kind, settings, recipe, data, config))
    vocab = make_vocabulary(recipe, folder, remark)
    lm = new_lm(kind, vocab, settings, config.seed, recipe.init)
    text = tokenise(vocab, recipe.texts, longest_of(recipe, config), remark) if recipe.texts else None
    before = read_config(find(recipe.init))
    vocab.form = text_form(before)
    view = View(vocab)
    _check_words(Reader(lm, view), [*data.train, *data.valid])
    train, valid = _useful(_seen(view, data.train), remark), _seen(view, data.valid)
    if shown := view.said():
        remark(shown)
    first = np.random.default_rng([config.seed, 0])
    count = ceil(len(list_batches(train, vocab, config.batch_tokens, first)) / config.accumulate)
    config = replace(config, steps=config.passes * count or config.steps)
    ranks = Ranks.start(device)
    info = {
        "data": [*data.names, *map(os.path.basename, recipe.texts)],
        "training": {**dataclasses.asdict(config), **_text_seen(config, before, bool(recipe.texts))},
        "started_from": before.get("trained", {}),
    }
    made = {"kind": kind, "settings": settings_of(kind, settings), **info}
    with with_wandb(config.wandb, folder, made, _reporter(remark)) as report:
        work = (lm.to(ranks.device), kind, config, folder, info, ranks, report, remark)
        progress = _run(MwerRun(*work, scale=data.scale, text=text), train, valid)
    finish_card(folder, remark)
    return progress


def _text_seen(config: TrainConfig, before: Mapping[str, Any], on_text: bool) -> dict[str, Any]:
    """What the LM that is trained on has seen of text before sentences (`before`: its `config.json`), if not now."""
    usual, training = TrainConfig(), before.get("training")
    now = on_text and (config.text, config.join) != (usual.text, usual.join)
    if now or not isinstance(training, dict):
        return {}
    return {name: training[name] for name in ("text", "join", "window", "carry") if name in training}


def _run(made: MwerRun, train: list[ErrorList], valid: list[ErrorList]) -> LMProgress:
    with closing(made) as run, run.stopping:
        run.begin(checkpoint.newest(run.out / "checkpoint"), run.config.seed, run.config.dtype)
        return run.loop(train, valid)


def _made_of(
    kind: str, settings: dict[str, Any], recipe: TextRecipe, data: TrainingLists, config: TrainConfig
) -> dict[str, Any]:
    texts = [text_identity(text) for text in recipe.texts]
    parts = {"text": texts, "init": lm_identity(recipe.init), "longest": recipe.longest}
    lists = {**data.identity, "scale": data.scale}
    train = dataclasses.asdict(config)
    return {"kind": kind, "settings": settings_of(kind, settings), "recipe": parts, "lists": lists, "train": train}


def _seen(view: View, lists: list[ErrorList]) -> list[ErrorList]:
    """The lists as the LM sees them."""
    for each in lists:
        for words in each.sentences:
            view.count(words)
    return [replace(each, sentences=[view.words(words) for words in each.sentences]) for each in lists]


def _check_words(lm: Reader, lists: Sequence[ErrorList]) -> None:
    """Raises VocabError for lists of pieces in place of words, or if more than half of their words are unknown."""
    coverage = Coverage(lm, "the lists", most=1.0)
    for each in lists:
        coverage.add(Counter(chain.from_iterable(each.sentences)), f"utterance {each.name}")
    if coverage.unknown > MOST_UNKNOWN * coverage.words:
        raise VocabError(
            f"the lists: {said(coverage)} to the LM; more than {MOST_UNKNOWN:.0%} are refused, as it would learn "
            "little: give lists in the language and the spelling of its text"
        )


def _useful(lists: list[ErrorList], remark: Remark) -> list[ErrorList]:
    """The lists without such as have nothing to choose."""
    kept = [each for each in lists if len(set(each.errors)) > 1]
    if not kept:
        raise ModelError("no list to train on: in each, all hypotheses have as many errors")
    remark(f"{len(kept)} lists to train on; {len(lists) - len(kept)} where all hypotheses have as many errors left out")
    return kept


def _reporter(remark: Remark) -> Reporter:
    def report(record: dict[str, Any]) -> None:
        if "valid_loss" in record:
            best = f"best hypotheses {record['valid_best']:.4f}"
            remark(f"step {record['step']}  valid errors an utterance: expected {record['valid_loss']:.4f}, {best}")
        else:
            remark(f"step {record['step']}  loss {record['loss']:.4f}  lr {record['lr']:.2e}")

    return report
