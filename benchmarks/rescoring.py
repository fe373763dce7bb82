"""Scoring N-best lists: distinct prefixes once, against padded batches of every hypothesis, in one run.

Example: python benchmarks/rescoring.py
Example: python benchmarks/rescoring.py --quick --json
Example: python benchmarks/rescoring.py --nbest dev.jsonl.gz --lists 10 --model transfornn

`padded` is the plain way with the same weights: the hypotheses of a list as one padded batch, plain torch modules in
float32, the softmax over the whole vocabulary at every position (icefall, ESPnet and the scripts of Kaldi do that).
Lists are made up to share prefixes as those of recognisers do, or read with --nbest.  Words/s are words of hypotheses
over seconds.
"""

from __future__ import annotations

import heapq
import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import click
import numpy as np
import torch
from measure import added_memory, heading, row, seconds

from lm_zoo.base import SOS_EOS, UNK, WordVocabulary
from lm_zoo.precision import DTYPES, product, ready
from lm_zoo.registry import build, load
from lm_zoo.trie import build_word_trie

Lists = list[list[tuple[str, ...]]]
LENGTH = 24  # words of a made-up utterance, about


def sausage(rng: np.random.Generator, words: list[str], length: int) -> list[list[tuple[float, str]]]:
    """Slots of words and their costs, the best first (0): two in five have rivals."""
    slots = []
    for _ in range(length):
        rivals = int(rng.integers(1, 4)) if rng.random() < 0.4 else 0
        costs = np.sort(rng.exponential(3.0, rivals))
        slots.append([(0.0, str(rng.choice(words))), *((float(cost), str(rng.choice(words))) for cost in costs)])
    return slots


def best_paths(slots: list[list[tuple[float, str]]], most: int) -> list[tuple[str, ...]]:
    """The exact N-best of a sausage, as far as there are so many."""
    heap: list[tuple[float, tuple[int, ...]]] = [(0.0, (0,) * len(slots))]
    seen, found = {heap[0][1]}, []
    while heap and len(found) < most:
        cost, choice = heapq.heappop(heap)
        found.append(tuple(slot[place][1] for slot, place in zip(slots, choice, strict=True)))
        for index, place in enumerate(choice):
            longer = (*choice[:index], place + 1, *choice[index + 1 :])
            if place + 1 < len(slots[index]) and longer not in seen:
                seen.add(longer)
                heapq.heappush(heap, (cost + slots[index][place + 1][0] - slots[index][place][0], longer))
    return found


def made_up(words: list[str], count: int, most: int, length: int, seed: int) -> Lists:
    rng = np.random.default_rng(seed)
    return [
        best_paths(sausage(rng, words, int(rng.integers(length // 2, length * 3 // 2))), most) for _ in range(count)
    ]


def read(path: str, count: int, most: int) -> Lists:
    from rescore.formats import read_nbest

    return [[hyp.words for hyp in nbest.hyps[:most]] for nbest in itertools.islice(read_nbest(path), count)]


# -- ways to score ------------------------------------------------------------------------------------------------


@torch.no_grad()
def padded(lm: Any, lists: Lists) -> list[float]:
    """The plain way: see above.  Natural logs of whole sentences."""
    scores = []
    for hyps in lists:
        tokens = [[token for word in hyp for token in lm.vocab.encode_word(word)] for hyp in hyps]
        lengths = torch.tensor([len(part) for part in tokens])
        batch = torch.full((len(tokens), int(lengths.max())), lm.vocab.eos)
        for index, part in enumerate(tokens):
            batch[index, : len(part)] = torch.tensor(part)
        inputs = torch.cat([torch.full((len(batch), 1), lm.vocab.bos), batch], dim=1)
        targets = torch.cat([batch, torch.full((len(batch), 1), lm.vocab.eos)], dim=1)
        found = lm.output(lm.hidden(inputs)).gather(2, targets.unsqueeze(2)).squeeze(2)
        inside = torch.arange(targets.shape[1]) <= lengths.unsqueeze(1)
        scores += (found * inside).sum(dim=1).tolist()
    return scores


def ours(lm: Any, lists: Lists) -> list[float]:
    return [sum(words) for words in lm.score_hypotheses([hyp for hyps in lists for hyp in hyps])]


def flops_a_node(lm: Any) -> float:
    """Multiplications and additions in products with weights, of one prefix."""
    weights = [p.numel() for name, p in lm.named_parameters() if p.dim() == 2 and "embedding" not in name]
    tied = lm.output.weight.numel() if lm.config.tied else 0
    return 2.0 * (sum(weights) + tied)


def rate(dtype: str, dim: int, rounds: int = 5) -> float:
    """FLOP/s of 2048 x dim by dim x 2048 products."""
    weight, x = torch.randn(2048, dim), torch.randn(2048, dim)
    multiply = product(weight, None, dtype)
    multiply(x)
    return 2.0 * 2048 * 2048 * dim / seconds(lambda: multiply(x), rounds)


def gpt2(dim: int, vocab_size: int, parameters: int) -> Any:
    """An untrained GPT-2 of Hugging Face with as many parameters outside the embeddings, about."""
    import transformers

    layers = max(1, round((parameters - vocab_size * dim) / (12 * dim * dim)))
    sizes = {"vocab_size": vocab_size, "n_positions": 512, "n_embd": dim, "n_layer": layers, "n_head": 8}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(config).eval()


@torch.no_grad()
def padded_gpt2(model: Any, lm: Any, lists: Lists) -> None:
    for hyps in lists:
        tokens = [[0, *(token for word in hyp for token in lm.vocab.encode_word(word))] for hyp in hyps]
        width = max(map(len, tokens))
        batch = torch.tensor([part + [0] * (width - len(part)) for part in tokens])
        mask = torch.tensor([[1] * len(part) + [0] * (width - len(part)) for part in tokens])
        logits = model(input_ids=batch, attention_mask=mask).logits.log_softmax(dim=2)
        logits[:, :-1].gather(2, batch[:, 1:].unsqueeze(2)).sum()


def rivals(lm: Any, dim: int) -> Iterator[tuple[str, Callable[[Lists], Any]]]:
    """What others do, where their packages are installed."""
    count = sum(p.numel() for p in lm.parameters())
    try:
        model = gpt2(dim, len(lm.vocab), count)
    except ImportError:
        print("(transformers is not installed: no GPT-2)")
    else:
        name = f"Hugging Face GPT-2 ({sum(p.numel() for p in model.parameters()) / 1e6:.1f} M), padded"
        yield name, lambda lists: padded_gpt2(model, lm, lists)
    try:
        from speechbrain.lobes.models.transformer.TransformerLM import TransformerLM
    except ImportError:
        print("(speechbrain is not installed: no Transformer LM of it)")
        return
    rescorer = TransformerLM(len(lm.vocab), dim, 8, 4, 0, 4 * dim, 0.0, torch.nn.ReLU).eval()
    yield "SpeechBrain's Transformer LM, padded", lambda lists: _speechbrain(rescorer, lm, lists)


@torch.no_grad()
def _speechbrain(model: Any, lm: Any, lists: Lists) -> None:
    for hyps in lists:
        tokens = [[lm.vocab.bos, *(token for word in hyp for token in lm.vocab.encode_word(word))] for hyp in hyps]
        width = max(map(len, tokens))
        batch = torch.tensor([part + [0] * (width - len(part)) for part in tokens])
        model(batch[:, :-1]).log_softmax(dim=2).gather(2, batch[:, 1:].unsqueeze(2)).sum()


# -- the table ----------------------------------------------------------------------------------------------------


@click.command(help=__doc__)
@click.option("--nbest", help="N-best lists to score instead of made-up ones.")
@click.option("--lists", "count", default=8, show_default=True)
@click.option("--size", "sizes", multiple=True, type=int, default=(10, 100, 500), show_default=True)
@click.option("--length", default=LENGTH, show_default=True, help="Words of a made-up utterance, about.")
@click.option("--model", help="An LM of the zoo, or a folder; default: an untrained TransfoRNN.")
@click.option("--dim", default=512, show_default=True)
@click.option("--vocab", "vocab_size", default=10_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--quick", is_flag=True, help="100-best alone, two rounds, no rivals.")
@click.option("--json", "as_json", is_flag=True, help="The ratios of 100-best lists, as JSON, on the last line.")
@click.option("--cpu", is_flag=True, help="CPU seconds in place of wall time (other work on the machine).")
@click.option("--seed", default=1, show_default=True)
def main(
    nbest: str | None,
    count: int,
    sizes: tuple[int, ...],
    length: int,
    model: str | None,
    dim: int,
    vocab_size: int,
    rounds: int,
    quick: bool,
    as_json: bool,
    cpu: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    names = [f"W{number}" for number in range(vocab_size - 2)]
    lm = load(model) if model else build("transfornn", WordVocabulary([SOS_EOS, UNK, *names]), {"dim": dim}).eval()
    if quick:
        sizes, rounds = (100,), 2
    clock = time.process_time if cpu else time.perf_counter
    dim = lm.config.dim
    millions = sum(p.numel() for p in lm.parameters()) / 1e6
    print(f"{type(lm).__name__}, d = {dim}, {len(lm.vocab)} tokens, {millions:.1f} M parameters; ", end="")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {'CPU' if cpu else 'wall'} seconds\n")
    ways: dict[str, Callable[[Lists], Any]] = {"padded, float32": lambda lists: padded(lm, lists)}
    made = {dtype: ready(lm, dtype) for dtype in DTYPES}
    ways |= {f"ours, {dtype}": lambda lists, dtype=dtype: ours(made[dtype], lists) for dtype in DTYPES}
    ways |= {} if quick else dict(rivals(lm, dim))
    rates = {dtype: rate(dtype, dim) for dtype in DTYPES}
    print("products: " + ", ".join(f"{dtype} {value / 1e9:.0f} GFLOP/s" for dtype, value in rates.items()) + "\n")
    heading(
        "N-best", "tokens a prefix", "way", "words/s", "of padded", "of the GEMM limit", "peak MB", "error a sentence"
    )
    result = {}
    for size in sizes:
        lists = read(nbest, count, size) if nbest else made_up(names, count, size, length, seed)
        result = table(lm, lists, size, ways, rates, rounds, clock)
    if as_json:
        print(json.dumps(result))


def table(
    lm: Any,
    lists: Lists,
    size: int,
    ways: dict[str, Callable[[Lists], Any]],
    rates: dict[str, float],
    rounds: int,
    clock: Callable[[], float],
) -> dict[str, float]:
    """Rows of one size of lists; the ratios that `--json` gives."""
    hyps = [hyp for part in lists for hyp in part]
    words = sum(map(len, hyps))
    tokens, trie = build_word_trie(lm.vocab, hyps)
    sharing = len(tokens.tokens) / trie.num_nodes
    for way in ways.values():
        way(lists[:1])
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):  # in turns
        for name, way in ways.items():
            best[name] = min(best[name], seconds(lambda way=way: way(lists), 1, clock))
    reference = np.array(ways["padded, float32"](lists))
    result = {}
    for name, way in ways.items():
        dtype = name.removeprefix("ours, ")
        ratio, share, error = best["padded, float32"] / best[name], "", ""
        if dtype in rates:
            limit = trie.num_nodes * flops_a_node(lm) / rates[dtype]
            share = f"{limit / best[name]:.0%}"
            error = f"{np.abs(np.array(way(lists)) - reference).mean():.1e}"
            result |= {f"ratio_{dtype}": round(ratio, 2), f"share_{dtype}": round(limit / best[name], 3)}
        peak = added_memory(lambda way=way: way(lists))
        row(size, f"{sharing:.1f}", name, f"{words / best[name]:.0f}", f"{ratio:.2f}", share, f"{peak:.0f}", error)
    result["share_of_gemm_limit"] = min(result["share_float32"], result["share_bfloat16"])
    return result


if __name__ == "__main__":
    main()
