"""From text files to a trained model folder: vocabulary, tokens, training loop."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_zoo.errors import ModelError, TextError, VocabError, nearest
from lm_zoo.files import atomic_folder, write_text
from lm_zoo.model_folder import is_like
from lm_zoo.reading import SPECIAL, is_piece
from lm_zoo.registry import NGRAM_FILES, build, find, read_config, settings_of
from lm_zoo.text.batches import TokenText, split_long, tokenize
from lm_zoo.text.coverage import MOST_UNKNOWN, check_case, said
from lm_zoo.text.sentences import read_sentences, read_word_list
from lm_zoo.text.tokenizer import build_pieces, build_words, count_words
from lm_zoo.text.vocabulary import PieceVocabulary, Vocabulary, is_unknown, load_vocabulary, read_pieces, text_form
from lm_zoo.training.card import CARD, write_card
from lm_zoo.training.config import LMProgress, TrainConfig, idle_settings
from lm_zoo.training.distributed import PORT, Ranks, start, to_start
from lm_zoo.training.run_identity import VOCAB, check_run, lm_identity, text_identity, vocab_identity
from lm_zoo.training.run_log import Remark, Reporter
from lm_zoo.training.train import check_settings, train
from lm_zoo.training.transfer import check_start, find_trained, inherit_settings, new_lm
from lm_zoo.training.wandb_log import find_wandb, with_wandb

_MARKS = {"<s>", "</s>"}


@dataclass
class TextRecipe:
    """Where the text comes from and how it is tokenised.

    Attributes:
      texts, valid: text specs as of `lm_zoo.text.sentences.read_sentences`.
      tokens: "bpe", "unigram" or "word" (None: "bpe"), of a new vocabulary.
      vocab_size: tokens of the vocabulary (None: 5000 pieces, or all words).
      vocab: name or folder of an LM whose vocabulary is taken instead; or a file of words, white space between
        them, or of words and numbers (`words.txt`); or a sentencepiece model (`bpe.model` of icefall).
      init: name or folder of a trained LM whose vocabulary, settings and weights the run starts from.
      longest: sentences of more tokens are cut, but not where windows are trained on.
    """

    texts: list[str]
    valid: str
    tokens: str | None = None
    vocab_size: int | None = None
    vocab: str | None = None
    init: str | None = None
    longest: int = 256


def run(
    kind: str,
    settings: dict[str, Any],
    recipe: TextRecipe,
    options: dict[str, Any],
    out: str,
    device: str,
    remark: Remark,
    world_size: int = 1,
    master_port: int = PORT,
) -> None:
    """Trains, or continues, the run in the folder `out`: here, as one of torchrun's, or in `world_size` processes."""
    folder, config = Path(out), train_config(options)
    for line in idle_settings(config, options, on_lists=False):
        remark(line)
    if recipe.init is not None:
        recipe.vocab = recipe.vocab or recipe.init
        settings = inherit_settings(kind, recipe.init, settings)
        check_start(recipe.init, folder)
    work = (kind, settings, recipe, config, folder, device, remark)
    if not to_start(world_size):
        run_here(*work)
        return
    check_settings(kind, config, world_size)
    _check(kind, settings, recipe, config, folder)
    build(kind, make_vocabulary(recipe, folder, remark), settings)  # mistakes are told once, not by each process
    start(run_here, work, world_size, master_port)


def run_here(
    kind: str,
    settings: dict[str, Any],
    recipe: TextRecipe,
    config: TrainConfig,
    folder: Path,
    device: str,
    remark: Remark,
) -> LMProgress:
    """The run of this process."""
    ranks = Ranks.start(device)
    check_settings(kind, config, ranks.size)
    if ranks.rank:
        ranks.wait()  # until rank 0 has written the vocabulary
        remark = _silent
    else:
        _check(kind, settings, recipe, config, folder)
    vocab = make_vocabulary(recipe, folder, remark)
    if not ranks.rank:
        ranks.wait()
    lm = new_lm(kind, vocab, settings, config.seed, recipe.init)  # what cannot be made is told before text is read
    longest = longest_of(recipe, config)
    valid_text = tokenise(vocab, [recipe.valid], longest, remark)  # the short one first: it may not suit
    train_text = tokenise(vocab, recipe.texts, longest, remark)
    info = {"data": [os.path.basename(text) for text in recipe.texts], "training": dataclasses.asdict(config)}
    if recipe.init is not None:
        before = read_config(find(recipe.init))
        vocab.form, info["started_from"] = text_form(before), before.get("trained", {})
    project = "" if ranks.rank else config.wandb
    made = {"kind": kind, "settings": settings_of(kind, settings), **info}
    with with_wandb(project, folder, made, _reporter(remark)) as report:
        work = (kind, settings, vocab, train_text, valid_text, folder, config, info, report, device)
        progress = train(*work, lm=lm, remark=remark)
    if not ranks.rank:
        finish_card(folder, remark)
    return progress


def _check(kind: str, settings: dict[str, Any], recipe: TextRecipe, config: TrainConfig, folder: Path) -> None:
    """As `check_run`; texts that begin as none are told before the others are read for long."""
    parts = made_of(kind, settings, recipe, config)
    for text in (*recipe.texts, recipe.valid):
        next(read_sentences(text), None)
    check_run(folder, parts)


def finish_card(folder: Path, remark: Remark) -> None:
    """Writes the model card, and says where it is or that somebody's own stays."""
    written = write_card(folder)
    remark(f"{folder / CARD}: " + ("the model card" if written else "changed by hand, it stays as it is"))


def made_of(kind: str, settings: dict[str, Any], recipe: TextRecipe, config: TrainConfig) -> dict[str, Any]:
    """All that a run depends on; texts, and the LMs that it takes something from, by their content."""
    return {
        "kind": kind,
        "settings": settings_of(kind, settings),
        "recipe": {
            "text": [text_identity(text) for text in recipe.texts],
            "valid": text_identity(recipe.valid),
            "tokens": recipe.tokens or "bpe",
            "vocab_size": recipe.vocab_size,
            "vocab": vocab_identity(recipe.vocab),
            "init": lm_identity(recipe.init),
            "longest": recipe.longest,
        },
        "train": dataclasses.asdict(config),
    }


def _silent(message: str) -> None:
    """The remarks of all ranks but the first."""


def train_config(options: dict[str, Any]) -> TrainConfig:
    """A TrainConfig from named values.

    Raises:
      ModelError: an unknown name, or a value of the wrong type; lists the known ones.
    """
    known = {field.name: field for field in dataclasses.fields(TrainConfig)}
    for name, value in options.items():
        if name not in known:
            raise ModelError(f"training has no setting '{name}'{nearest(name, known)}; it has: {', '.join(known)}")
        default = known[name].default
        if not is_like(value, default):
            raise ModelError(f"training setting '{name}' is {value!r}, expected something like {default!r}")
    if options.get("wandb"):
        find_wandb()
    return TrainConfig(**options)


def make_vocabulary(recipe: TextRecipe, folder: Path, remark: Remark) -> Vocabulary:
    """The run's own vocabulary if it has one already, another LM's, or a new one from the training text."""
    own = folder / VOCAB
    if case := (own / "case").read_text().strip() if (own / "case").exists() else "":
        return load_vocabulary(own, case)
    vocab: Vocabulary
    if recipe.vocab is not None:
        for option, value in (("tokens", recipe.tokens), ("vocab-size", recipe.vocab_size)):
            if value is not None:
                remark(f"the vocabulary is that of {recipe.vocab}; --{option} {value} says nothing")
    if recipe.vocab is not None and recipe.vocab.endswith(".model"):
        vocab = read_pieces(Path(recipe.vocab))
    elif recipe.vocab is not None and os.path.isfile(recipe.vocab) and not recipe.vocab.endswith(NGRAM_FILES):
        vocab = build_words(_listed_words(recipe.vocab, recipe.texts, remark))
    elif recipe.vocab is not None:
        source = find_trained(recipe.vocab)
        vocab = load_vocabulary(source, read_config(source).get("case", "mixed"))
    else:
        remark("counting words")
        counts = count_words(_sentences(recipe.texts))
        if recipe.tokens == "word":
            vocab = build_words(counts, recipe.vocab_size)
        else:
            spelled = {word: count for word, count in counts.items() if not is_unknown(word)}
            vocab = build_pieces(spelled, recipe.vocab_size or 5000, recipe.tokens or "bpe")
    shutil.rmtree(own, ignore_errors=True)  # without its case: an older version was stopped while it wrote it
    with atomic_folder(own) as made:
        vocab.save(made)
        write_text(made / "case", vocab.case + "\n")
    return vocab


def _listed_words(path: str, texts: list[str], remark: Remark) -> Counter[str]:
    """The words of a list, without tags that are not in the text: the LM would score them, and know nothing of them."""
    words = Counter(read_word_list(path, remark))
    tags = {word for word in words if SPECIAL.fullmatch(word) and not is_unknown(word)}
    strange = tags.difference(itertools.chain.from_iterable(_sentences(texts))) if tags else tags
    if strange:
        named = ", ".join(sorted(strange)[:3])
        remark(f"{path}: {len(strange)} tags that are not in the text left out ({named}{' ...' * (len(strange) > 3)})")
    return Counter({word: count for word, count in words.items() if word not in strange})


def _sentences(texts: list[str]) -> Iterator[list[str]]:
    return itertools.chain.from_iterable(read_sentences(text) for text in texts)


def longest_of(recipe: TextRecipe, config: TrainConfig) -> int | None:
    """Tokens beyond which sentences are cut; None for windows, in which pieces would end where the text does not."""
    return recipe.longest if config.text == "sentences" else None


def tokenise(vocab: Vocabulary, texts: list[str], longest: int | None, remark: Remark) -> TokenText:
    """The texts as tokens, sentences of more than `longest` cut.

    Raises:
      VocabError: another case than the vocabulary's, pieces in place of words, or more than half of the words are
        unknown.
      TextError: a text that cannot be read, or has marks of begins or ends of sentences in it.
    """

    def checked() -> Iterator[list[str]]:
        for name in texts:
            for number, words in enumerate(read_sentences(name, remark), start=1):
                if number <= 1000:
                    check_case(vocab, words, f"{name}, sentence {number}")
                    _check_pieces(vocab, words, f"{name}, sentence {number}")
                if not _MARKS.isdisjoint(words):
                    found = "<s> or </s> as a word; sentence begins and ends are added here: remove them"
                    raise TextError(f"{name}, sentence {number}: found {found}")
                yield words

    whole = tokenize(vocab, checked())
    text, cut = (whole, 0) if longest is None else split_long(whole, longest)
    names = ", ".join(os.path.basename(name) for name in texts)
    remark(
        f"{names}: {len(whole.offsets) - 1} sentences, {text.words} words, {len(text.tokens)} tokens, "
        f"{text.unknown} unknown" + ("" if longest is None else f", {cut} sentences of more than {longest} tokens cut")
    )
    if text.unknown > MOST_UNKNOWN * text.words:
        raise VocabError(
            f"{names}: {said(text)}; more than {MOST_UNKNOWN:.0%} are refused, as an LM would learn little: give "
            "a vocabulary of this text (a table of pieces is none of words; their model is: --vocab bpe.model)"
        )
    return text


def _check_pieces(vocab: Vocabulary, words: list[str], where: str) -> None:
    """Raises VocabError where text for an LM over pieces is of pieces already, which would be taken apart again."""
    piece = next(filter(is_piece, words), None) if isinstance(vocab, PieceVocabulary) else None
    if piece is not None:
        raise VocabError(
            f"{where}: found '{piece}', a piece of sentencepiece, expected words, of which pieces are made here; join "
            "them first: sed 's/ //g; s/\u2581/ /g'"
        )


def _reporter(remark: Remark) -> Reporter:
    def report(record: dict[str, Any]) -> None:
        if "valid_loss" in record:
            ppl = record["valid_ppl"]
            remark(f"step {record['step']}  valid ppl a token {ppl:{'.3f' if ppl < 1e6 else '.2e'}}")
        else:
            remark(
                f"step {record['step']}  loss {record['loss']:.4f}  lr {record['lr']:.2e}  "
                f"{record['tokens_per_s']:.0f} tokens/s"
            )

    return report
