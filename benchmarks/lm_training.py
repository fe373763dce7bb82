"""Training of LMs: tokens a second and memory, ours against a plain `nn.TransformerEncoder`, and what waits for data.

The plain way: random sentences padded to the longest, the whole logits of all positions in `nn.CrossEntropyLoss`,
`torch.optim.AdamW`; once more with our batches, which are of sentences of like lengths.  Ours: a step of `rescore
train-lm`.  All with the same sizes, the same text of made-up sentences, gradients clipped, the optimiser's step
included, and the same number of padded tokens a batch.

Example: python benchmarks/lm_training.py speed --vocab 10000 --dim 512 --batch-tokens 2048
         python benchmarks/lm_training.py speed --vocab 200000 --dim 256 --batch-tokens 512 --models transformer
         python benchmarks/lm_training.py data books.txt
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from measure import added_memory, heading, row
from torch import Tensor, nn

from lm_zoo.layers.transformer import sinusoids
from lm_zoo.registry import build
from lm_zoo.text.batches import IGNORE, Batch, TokenText, pad_sentences, tokenize
from lm_zoo.text.sentences import read_sentences
from lm_zoo.text.tokenizer import build_pieces, count_words
from lm_zoo.text.vocabulary import SOS_EOS, UNK, Vocabulary, WordVocabulary
from lm_zoo.training.config import TrainConfig
from lm_zoo.training.distributed import Ranks
from lm_zoo.training.runtime import autocast
from lm_zoo.training.train import LMRun, epoch_batches

CPU = Ranks(0, 1, torch.device("cpu"))
SETTINGS: dict[str, dict[str, Any]] = {
    "transformer": {},
    "bayesian": {"activation": "relu"},
    "lookup": {"activation": "relu", "slots": 5000, "entries": 16, "update_after": 0},
    "transfornn": {"rnn_layers": 2},
    "lstm": {"rnn_layers": 2},
}


class Plain(nn.Module):
    """An LM as in torch's tutorials, with our embedding's scale and positions; the softmax layer is tied."""

    def __init__(self, vocab: int, dim: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        nn.init.normal_(self.embedding.weight, std=dim**-0.5)
        layer = nn.TransformerEncoderLayer(dim, 8, 2 * dim, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.dropout, self.decoder = nn.Dropout(0.1), nn.Linear(dim, vocab)
        self.decoder.weight = self.embedding.weight

    def forward(self, inputs: Tensor) -> Tensor:
        """int64 (batch, time) -> logits (batch, time, vocab)."""
        time, dim = inputs.shape[1], self.embedding.embedding_dim
        x = self.dropout(self.embedding(inputs) * dim**0.5 + sinusoids(0, time, dim))
        future = torch.full((time, time), float("-inf")).triu(1)
        return self.decoder(self.encoder(x, mask=future))


class PlainTrainer:
    def __init__(self, text: TokenText, vocab: Vocabulary, dim: int, layers: int, config: TrainConfig) -> None:
        torch.manual_seed(1)
        self.config, self.model = config, Plain(len(vocab), dim, layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.criterion = nn.CrossEntropyLoss(ignore_index=IGNORE)
        self.batches = self.random_batches(text, vocab)

    def random_batches(self, text: TokenText, vocab: Vocabulary) -> Iterator[Batch]:
        """Sentences as they come from a shuffled data set, as many as fit into a padded batch."""
        chosen: list[int] = []
        for number in np.random.default_rng(1).permutation(len(text.lengths)):
            longest = text.lengths[[*chosen, number]].max() + 1
            if longest * (len(chosen) + 1) > self.config.batch_tokens:
                yield pad_sentences(text, np.array(chosen), vocab)
                chosen = []
            chosen.append(number)

    def step(self, batch: Batch) -> None:
        inputs, targets = batch
        with autocast(self.config.dtype, CPU.device):
            logits = self.model(inputs)
            loss = self.criterion(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


class OurTrainer:
    def __init__(
        self, kind: str, text: TokenText, vocab: Vocabulary, dim: int, layers: int, config: TrainConfig
    ) -> None:
        torch.manual_seed(1)
        size = {"dim": dim} if kind == "lstm" else {"dim": dim, "heads": 8, "feedforward": 2 * dim}
        count = {} if kind == "lstm" else {"layers": 2 if kind == "transfornn" else layers}
        self.model = build(kind, vocab, size | count | SETTINGS[kind])
        self.run = LMRun(self.model, kind, config, Path(tempfile.mkdtemp()), {}, CPU, lambda record: None, print)
        self.run.targets = len(text.tokens) + len(text.lengths)
        self.model.begin_training(text)
        self.batches = epoch_batches(text, vocab, config, np.random.default_rng(1))

    def step(self, batch: Batch) -> None:
        self.run._step([batch])


def made_up(vocab: int, sentences: int) -> TokenText:
    """Sentences of 1 to 80 words, 18 on average; words by Zipf's law."""
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.lognormal(2.7, 0.6, sentences).astype(int), 1, 80)
    chances = 1.0 / np.arange(1, vocab - 1)
    tokens = rng.choice(np.arange(2, vocab), lengths.sum(), p=chances / chances.sum()).astype(np.int32)
    return TokenText(tokens, np.concatenate([[0], lengths.cumsum()]), len(tokens), 0)


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command()
@click.option("--vocab", default=10_000, show_default=True)
@click.option("--dim", default=512, show_default=True)
@click.option("--layers", default=4, show_default=True, help="Of the Transformers; the others have 2 + 2 and 2.")
@click.option("--batch-tokens", default=2048, show_default=True, help="Of a padded batch.")
@click.option("--models", default=",".join(SETTINGS), show_default=True)
@click.option("--dtypes", default="float32,bfloat16", show_default=True)
@click.option("--steps", default=3, show_default=True, help="Timed steps of each, in turns.")
def speed(vocab: int, dim: int, layers: int, batch_tokens: int, models: str, dtypes: str, steps: int) -> None:
    """CPU seconds of training steps, and what a step adds to memory at its peak; all models in turns."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; vocab {vocab}, dim {dim}, ", end="")
    print(f"{layers} layers, {batch_tokens} tokens a padded batch, {steps} steps\n")
    words = WordVocabulary([SOS_EOS, UNK, *(f"w{number}" for number in range(vocab - 2))])
    text = made_up(vocab, 4000)
    heading("model", "M parameters", "dtype", "padding", "tokens/s", "of plain", "peak MB of a step", "of plain")
    for dtype in dtypes.split(","):
        config = TrainConfig(batch_tokens=batch_tokens, dtype=dtype, lr=1e-4)
        sizes = (text, words, dim, layers, config)
        trainers: dict[str, Any] = {"plain": PlainTrainer(*sizes)}
        trainers["plain, our batches"] = PlainTrainer(*sizes)
        trainers["plain, our batches"].batches = epoch_batches(text, words, config, np.random.default_rng(1))
        trainers |= {kind: OurTrainer(kind, *sizes) for kind in models.split(",")}
        peaks = {name: warmed_up(trainer) for name, trainer in trainers.items()}
        spent, tokens, places = (dict.fromkeys(trainers, 0.0) for _ in range(3))
        for _, (name, trainer) in itertools.product(range(steps), trainers.items()):
            start = time.process_time()
            batch = next(trainer.batches)
            trainer.step(batch)
            spent[name] += time.process_time() - start
            tokens[name] += int((batch[1] >= 0).sum())
            places[name] += batch[1].numel()
        for name, trainer in trainers.items():
            rate, plain = tokens[name] / spent[name], tokens["plain"] / spent["plain"]
            million = sum(weight.numel() for weight in trainer.model.parameters()) / 1e6
            share = f"{peaks[name] / peaks['plain']:.2f}"
            title = name if isinstance(trainer, PlainTrainer) else f"ours, {name}"
            speeds = f"{1 - tokens[name] / places[name]:.0%}", f"{rate:,.0f}", f"{rate / plain:.2f}"
            row(title, f"{million:.1f}", dtype, *speeds, f"{peaks[name]:,.0f}", share)


def warmed_up(trainer: Any) -> float:
    """Two steps, after which all state is there; MB that the second adds at its peak, gradients included."""
    trainer.step(next(trainer.batches))
    return added_memory(partial(trainer.step, next(trainer.batches)))


@main.command()
@click.argument("path")
@click.option("--pieces", default=3000, show_default=True)
@click.option("--batch-tokens", default=8192, show_default=True)
@click.option("--dim", default=320, show_default=True, help="Of a TransfoRNN in bfloat16.")
@click.option("--steps", default=2, show_default=True)
def data(path: str, pieces: int, batch_tokens: int, dim: int, steps: int) -> None:
    """CPU seconds of reading, tokenising and batching a text, against those of the steps of an epoch over it."""
    clock = time.process_time
    start = clock()
    counts = count_words(read_sentences(path))
    counted = clock()
    vocab = build_pieces(counts, pieces, "bpe")
    built = clock()
    text = tokenize(vocab, read_sentences(path))
    tokenised = clock()
    config = TrainConfig(batch_tokens=batch_tokens, dtype="bfloat16", lr=1e-4)
    batches = sum(1 for _ in epoch_batches(text, vocab, config, np.random.default_rng(1)))
    batched = clock()
    trainer = OurTrainer("transfornn", text, vocab, dim, 2, config)
    trainer.step(next(trainer.batches))
    chosen = [next(trainer.batches) for _ in range(steps)]
    begin = clock()
    for batch in chosen:
        trainer.step(batch)
    each = (clock() - begin) / steps
    print(f"torch {torch.__version__}; {text.words:,} words, {len(text.tokens):,} tokens, {batches:,} batches\n")
    heading("", "CPU s", "of the epoch's steps, %")
    parts = {"counting words": counted - start, "making the pieces": built - counted, "tokenising": tokenised - built}
    parts |= {"all batches of an epoch": batched - tokenised, "steps of an epoch (from a few)": each * batches}
    for name, spent in parts.items():
        row(name, f"{spent:,.1f}", f"{100 * spent / (each * batches):.2f}")


if __name__ == "__main__":
    main()
