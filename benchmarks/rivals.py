"""What others do with N-best lists, where their packages are installed (the extra `bench`): padded batches.

Models are untrained and have about as many parameters, outside the input embeddings, as the LM they stand beside.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from hypotheses import Lists, Way, ours, padded

from lm_zoo.registry import load


def rivals(lm: Any, gpt2_layers: int | None = None) -> Iterator[Way]:
    warnings.simplefilter("ignore")  # both warn of what others will change
    for name, ways in (
        ("transformers", lambda: hugging_face(lm, gpt2_layers)),
        ("speechbrain", lambda: speechbrain(lm)),
    ):
        try:
            yield from ways()
        except (ImportError, OSError) as error:  # OSError: torchaudio, which SpeechBrain needs, for another torch
            print(f"({name} cannot be imported, no rows of it: {error})")


def layers(lm: Any, of_a_layer: int) -> int:
    inner = sum(p.numel() for p in lm.parameters()) - len(lm.vocab) * lm.config.dim
    return max(1, round(inner / of_a_layer))


def hugging_face(lm: Any, gpt2_layers: int | None) -> Iterator[Way]:
    """GPT-2 as a padded batch, and as `hf:PATH` by tree attention."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    size, dim = len(lm.vocab), lm.config.dim
    sizes = {"n_positions": 512, "n_embd": dim, "n_layer": gpt2_layers or layers(lm, 12 * dim * dim), "n_head": 8}
    config = transformers.GPT2Config(vocab_size=size, **sizes, bos_token_id=0, eos_token_id=0)
    with tempfile.TemporaryDirectory() as folder:
        made = folder_lm(transformers.GPT2LMHeadModel(config), Path(folder))
    made.vocab = lm.vocab  # the same tokens for everyone
    flops = 2.0 * sum(p.numel() for name, p in made.model.named_parameters() if p.dim() == 2 and "wpe" not in name)
    name = f"GPT-2 ({millions(made.model)} M) of transformers {version('transformers')}"

    def log_probs(inputs: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        return made.model(input_ids=inputs, attention_mask=inside.long(), use_cache=False).logits.log_softmax(dim=2)

    yield Way(f"{name}, padded", lambda lists: padded(lm.vocab, log_probs, lists), f"{name}, padded")
    for dtype in ("float32", "bfloat16"):
        cast = made if dtype == "float32" else made.cast(dtype)
        yield Way(
            f"the same as hf:, {dtype}", lambda lists, cast=cast: ours(cast, lists), f"{name}, padded", dtype, flops
        )


def folder_lm(model: Any, folder: Path) -> Any:
    """A model as `hf:PATH`, with a tokenizer of no use."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<unk>").save_pretrained(folder)
    model.save_pretrained(folder)
    return load(f"hf:{folder}")


class Tokens:
    """A vocabulary as the tokenizer that SpeechBrain asks for; 0 is left for the padding."""

    def __init__(self, vocab: Any) -> None:
        self.vocab = vocab

    def encode_as_ids(self, text: str) -> list[int]:
        return [token + 1 for word in text.split() for token in self.vocab.encode_word(word)]


def speechbrain(lm: Any) -> Iterator[Way]:
    """Its `TransformerLMRescorer`; input and output embeddings are apart."""
    from speechbrain.decoders.scorer import TransformerLMRescorer
    from speechbrain.lobes.models.transformer.TransformerLM import TransformerLM

    dim = lm.config.dim
    model = TransformerLM(
        len(lm.vocab) + 1, dim, 8, layers(lm, 8 * dim * dim), 0, 2 * dim, 0.0, torch.nn.ReLU, normalize_before=False
    )
    begin, end = lm.vocab.bos + 1, lm.vocab.eos + 1
    rescorer = TransformerLMRescorer(model, Tokens(lm.vocab), "cpu", bos_index=begin, eos_index=end, pad_index=0)
    name = f"TransformerLMRescorer ({millions(model)} M) of SpeechBrain {version('speechbrain')}"

    def score(lists: Lists) -> list[float]:
        return [x for hyps in lists for x in rescorer.rescore_hyps([[" ".join(hyp) for hyp in hyps]]).tolist()]

    yield Way(name, score, name)


def millions(model: torch.nn.Module) -> str:
    return f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}"
