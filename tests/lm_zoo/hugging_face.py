"""Tiny untrained Hugging Face folders, tokenizers included, made of a few sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TEXT = ["the cat sat on the mat", "the dog saw a cat", "a small dog sat", "don't say that", "A DOG"]
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def gpt2(folder: Path) -> Path:
    """Byte-level BPE, one special token for begin, end and unknown, as GPT-2 has it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    tokens = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    return _save(folder, tokenizer, tokens, gpt2_model)


def words(folder: Path, make_model: Any = None) -> Path:
    """The same model (or another) over whole words `A` to `H`, an unknown word, an end but no begin of sentence."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocab = {word: index for index, word in enumerate(["<unk>", "</s>", *"ABCDEFGH"])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return _save(folder, tokenizer, {"eos_token": "</s>", "unk_token": "<unk>"}, make_model or gpt2_model)


def bloom_model(size: int) -> Any:
    """ALiBi: distances that are counted along the sequence, so a tree cannot be one sequence."""
    from transformers import BloomConfig, BloomForCausalLM

    return BloomForCausalLM(BloomConfig(vocab_size=size, hidden_size=16, n_layer=2, n_head=2))


def mistral_model(size: int) -> Any:
    """Layers that look back six tokens, themselves among them."""
    from transformers import MistralConfig, MistralForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    return MistralForCausalLM(MistralConfig(vocab_size=size, num_key_value_heads=1, sliding_window=6, **sizes))


def mamba_model(size: int) -> Any:
    from transformers import MambaConfig, MambaForCausalLM

    return MambaForCausalLM(MambaConfig(vocab_size=size, hidden_size=16, num_hidden_layers=2, state_size=4))


def llama(folder: Path, split: bool = True) -> Path:
    """Sentencepiece-like unigram pieces with a word mark (across words without `split`), rotary positions."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM

    special = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=split)
    trainer = trainers.UnigramTrainer(vocab_size=50, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(TEXT * 3, trainer)

    def model(size: int) -> Any:
        sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
        return LlamaForCausalLM(LlamaConfig(vocab_size=size, num_key_value_heads=2, **sizes))

    return _save(folder, tokenizer, dict(zip(("unk_token", "bos_token", "eos_token"), special, strict=True)), model)


def bert(folder: Path) -> Path:
    """WordPiece that lower-cases, 16 positions."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertForMaskedLM

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=50, special_tokens=BERT_SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")

    def model(size: int) -> Any:
        sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
        return BertForMaskedLM(BertConfig(vocab_size=size, max_position_embeddings=16, **sizes))

    return _save(folder, tokenizer, dict(zip(names, BERT_SPECIAL, strict=True)), model)


def gpt2_model(size: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": size, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def _save(folder: Path, tokenizer: Any, special: dict[str, str], make_model: Any) -> Path:
    """Weights are made large enough that contexts matter."""
    import torch
    from transformers import PreTrainedTokenizerFast, logging

    logging.disable_progress_bar()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.save_pretrained(folder)
    torch.manual_seed(5)
    model = make_model(len(fast))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder
