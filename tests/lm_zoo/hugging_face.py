"""Tiny untrained Hugging Face folders, tokenizers included, made of a few sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TEXT = ["the cat sat on the mat", "the dog saw a cat", "a small dog sat", "don't say that", "A DOG"]
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


LLAMA_CPP = {  # transformers' names of a Llama's weights -> llama.cpp's
    "embed_tokens": "token_embd",
    "lm_head": "output",
    "layers.": "blk.",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "attn_norm",
}


def gpt2(folder: Path, make_model: Any = None) -> Path:
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
    return _save(folder, tokenizer, tokens, make_model or gpt2_model)


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


def lfm2_model(size: int) -> Any:
    """A layer of convolutions and one of attention."""
    from transformers import Lfm2Config, Lfm2ForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    return Lfm2ForCausalLM(Lfm2Config(vocab_size=size, num_key_value_heads=1, full_attn_idxs=[1], **sizes))


def gemma3_model(size: int) -> Any:
    """A text model of 8 positions beside one of pictures: the sizes of each stand in a config of its own."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**sizes, "num_key_value_heads": 1, "head_dim": 8, "vocab_size": size, "max_position_embeddings": 8}
    pictures = {**sizes, "image_size": 8, "patch_size": 4}
    return Gemma3ForConditionalGeneration(Gemma3Config(text_config=text, vision_config=pictures, mm_tokens_per_image=4))


def cpmant_model(size: int) -> Any:
    """What is predicted depends on the length of the sentence."""
    from transformers import CpmAntConfig, CpmAntForCausalLM

    sizes = {"hidden_size": 16, "num_attention_heads": 2, "dim_head": 8, "dim_ff": 24, "num_hidden_layers": 2}
    return CpmAntForCausalLM(CpmAntConfig(vocab_size=size, **sizes))


def llama(folder: Path, split: bool = True) -> Path:
    """Sentencepiece-like unigram pieces with a word mark (across words without `split`), rotary positions."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    special = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=split)
    trainer = trainers.UnigramTrainer(vocab_size=50, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(TEXT * 3, trainer)

    tokens = dict(zip(("unk_token", "bos_token", "eos_token"), special, strict=True))
    return _save(folder, tokenizer, tokens, llama_model)


def llama_model(size: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=size, num_key_value_heads=2, **sizes))


def gguf(path: Path, folder: Path) -> Path:
    """A Llama with the tokenizer of `gpt2` in `folder`, and the same in a file as llama.cpp has it, in float32.

    Its rotary halves are interleaved, as llama.cpp wants queries and keys.
    """
    from gguf import GGUFWriter
    from transformers import AutoModelForCausalLM, AutoTokenizer

    gpt2(folder, llama_model)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    config = model.config
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    writer.add_token_list(tokens)
    writer.add_token_types([3, *[1] * (len(tokens) - 1)])  # a control token, then ordinary ones
    merges = json.loads((folder / "tokenizer.json").read_text())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_unk_token_id):
        add(tokenizer.bos_token_id)
    heads = {"self_attn.q_proj": config.num_attention_heads, "self_attn.k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        layer, values = name.removeprefix("model.").removesuffix(".weight"), tensor.numpy()
        for part, count in heads.items():
            if layer.endswith(part):
                values = values.reshape(count, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        for ours, theirs in LLAMA_CPP.items():
            layer = layer.replace(ours, theirs)
        writer.add_tensor(f"{'output_norm' if layer == 'norm' else layer}.weight", values.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


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
