"""Names of the zoo's LMs, and what their model folders hold beside the weights: kind, settings, vocabulary."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lm_zoo.errors import ModelError, VocabError, nearest
from lm_zoo.hub import HubFolders, find_folders, hub_name
from lm_zoo.model_folder import (
    CONFIG,
    LOG,
    RUN,
    WEIGHTS,
    check_shapes,
    is_like,
    read_object,
    read_tensors,
    write_model,
)
from lm_zoo.plugins import PlugIn, installed, plug_in
from lm_zoo.text.view import form_of
from lm_zoo.text.vocabulary import NUMBERS, PieceVocabulary, Vocabulary, load_vocabulary, text_form

if TYPE_CHECKING:
    from lm_zoo.base import LanguageModel, WordLM
    from lm_zoo.inference.neural import NeuralLM
    from lm_zoo.models.bayesian import BayesianTransformer
    from lm_zoo.ngram.grammar_fst import GrammarLM

KINDS = {
    "transfornn": ("lm_zoo.models.transfornn", "TransfoRNN", "Transformer layers, then LSTM layers"),
    "transformer": ("lm_zoo.models.transformer", "Transformer", "causal Transformer"),
    "bayesian": (
        "lm_zoo.models.bayesian",
        "BayesianTransformer",
        "Transformer with Gaussian posteriors over some weights",
    ),
    "lookup": ("lm_zoo.models.lookup", "Lookup", "Transformer with a lookup dictionary of what followed"),
    "ngram-embedding": (
        "lm_zoo.models.ngram_embedding",
        "NgramEmbedding",
        "Transformer that also embeds the last N tokens",
    ),
    "lstm": ("lm_zoo.models.lstm", "LSTM", "stacked LSTM"),
    "icefall-transformer": ("lm_zoo.models.icefall_transformer", "IcefallTransformer", "icefall's Transformer LM"),
    "speechbrain-transformer": (
        "lm_zoo.models.speechbrain_transformer",
        "SpeechBrainTransformer",
        "SpeechBrain's Transformer LM",
    ),
    "speechbrain-rnn": ("lm_zoo.models.speechbrain_rnn", "SpeechBrainRNN", "SpeechBrain's LSTM LM"),
    "ngram": ("lm_zoo.ngram.kenlm_lm", "NgramLM", "back-off n-gram, ARPA or KenLM binary"),
}
SIZES = {"dim", "heads", "feedforward", "rnn_layers", "slots", "entries", "order"}  # settings that are 1 or more
HUGGING_FACE = {"hf": ("lm_zoo.models.hf_causal", "HFCausalLM"), "hf-mlm": ("lm_zoo.models.hf_masked", "HFMaskedLM")}
LARGEST_SEED = (1 << 63) - 1  # that torch takes, of any sign
PRETRAINED = Path(__file__).parent / "pretrained"
GRAMMAR = ".fst"  # Kaldi's G.fst
NGRAM_FILES = (".arpa", ".arpa.gz", ".arpa.xz", ".bin", ".binary", ".klm", ".mmap", GRAMMAR)


def model_class(kind: str) -> type[Any]:
    """The class of a kind of LM; raises as `check_kind`."""
    check_kind(kind)
    module, name, _ = KINDS[kind]
    return getattr(importlib.import_module(module), name)


def check_kind(kind: object) -> None:
    """Raises ModelError for an unknown kind; the message lists the known ones."""
    if not isinstance(kind, str) or kind not in KINDS:
        like = nearest(str(kind), KINDS)
        raise ModelError(f"no kind of LM is called '{kind}'{like}; there are: {', '.join(sorted(KINDS))}")


def neural_class(kind: str) -> type[NeuralLM]:
    """As `model_class`, of a kind that has settings and weights.

    Raises:
      ModelError: an unknown kind, or n-grams.
    """
    cls = model_class(kind)
    if kind == "ngram":
        raise ModelError(f"a neural LM is expected here, found the kind '{kind}'; rescore train-ngram makes n-gram LMs")
    return cls


def pretrained() -> dict[str, Path]:
    """Name -> folder of the trained models that ship with the package."""
    return {folder.parent.name: folder.parent for folder in sorted(PRETRAINED.glob(f"*/{CONFIG}"))}


def find(name: str) -> Path:
    """The model folder (or n-gram file) that a name or path means; of the hub, one on this machine.

    Raises:
      ModelError: neither a shipped model nor a model folder nor an n-gram file; lists the shipped ones.
    """
    if (found := find_folders(name)) is not None:
        return found.folder
    path = Path(name)
    if (path / CONFIG).is_file() or (path.is_file() and path.name.endswith(NGRAM_FILES)):
        return path
    shipped = pretrained()
    if name in shipped:
        return shipped[name]
    if path.is_dir():
        raise ModelError(
            f"{name}: not a model folder, it has no {CONFIG}; such folders are written by: rescore train-lm"
        )
    if path.is_file():
        raise ModelError(f"{name}: not an n-gram file; expected a name that ends in {', '.join(NGRAM_FILES)}")
    like = nearest(name, [*shipped, *installed()])
    others = f"installed packages bring: {', '.join(installed())}; " if installed() else ""
    raise ModelError(
        f"no LM is called '{name}' and there is no such folder or file{like}; shipped are: "
        f"{', '.join(shipped) or 'none'}; {others}a model folder or an n-gram file (.arpa, .arpa.gz, .bin) can "
        "be given by its path"
    )


def foreign(name: str) -> PlugIn | None:
    """The plug-in that `name` means (see `lm_zoo.plugins`); None where it means something of the zoo or a path."""
    body = name.partition("?")[0]
    if hub_name(body) is not None or body in pretrained() or Path(body).exists():
        return None
    return plug_in(name)


def of_sentences(name: str) -> bool:
    """Whether an LM was trained by `lm_zoo.training` on single sentences, without the text before them."""
    if foreign(name) is not None:
        return False
    found = find_folders(name)
    if found is not None and not found.is_of_the_zoo:
        return False
    path = find(name.partition("?")[0]) if found is None else found.folder
    training = {} if path.is_file() else read_config(path).get("training", {})
    return isinstance(training, dict) and training.get("text") == "sentences" and not training.get("join")


def describe(folders: Iterable[Path] = ()) -> list[dict[str, Any]]:
    """The shipped LMs, or those in the folders.

    Each has name (of a folder: its path), kind, params (n-grams of an n-gram LM), bytes of the folder, valid_loss
    (natural log a token), word_ppl, data, case, licence.
    """
    named = {str(folder): folder for folder in folders} or pretrained()
    rows = []
    for name, folder in named.items():
        config = read_config(folder)
        rows.append(
            {
                "name": name,
                "kind": config["kind"],
                "params": config.get("params", 0),
                "bytes": sum(file.stat().st_size for file in folder.iterdir() if file.is_file()),
                "valid_loss": config.get("trained", {}).get("valid_loss"),
                "word_ppl": config.get("word_ppl"),
                "word_ppl_text": config.get("word_ppl_text", ""),
                "case": config.get("case", "mixed"),
                "data": config.get("data", []),
                "licence": config.get("licence", ""),
            }
        )
    return rows


def load(name: str, dtype: str = "float32", device: str = "cpu") -> LanguageModel:
    """Loads an LM by name, model folder, n-gram file, `hf:NAME` or `hf-mlm:NAME` (`lm_zoo.hub`), in evaluation mode.

    LMs of others are loaded as `package.module:Class?option=value` or by the name of an entry point (`lm_zoo.plugins`).
    A Bayesian LM takes options: `NAME?samples=8&seed=1&uncertainty=true` averages over draws of its weights.

    Args:
      dtype: of the weights of Hugging Face's models, so that there is never a larger copy; all others are float32.
      device: where those of 4 or 8 bits go; all others are on the CPU.
    """
    if (found := find_folders(name)) is not None:
        return _of_hub(found, dtype, device)
    if (other := foreign(name)) is not None:
        return other.load()
    name, mark, query = name.partition("?")
    path = find(name)
    config = {"kind": "ngram"} if path.is_file() else read_config(path)
    if mark and config["kind"] != "bayesian":
        raise ModelError(f"'{name}' is a {config['kind']}, which has no options; found '?{query}'")
    if path.is_file():
        return load_grammar(path) if path.name.endswith(GRAMMAR) else model_class("ngram")(path)
    if config["kind"] == "ngram":
        return model_class("ngram").load(path)
    lm = load_folder(path, config)
    return _averaged(cast("BayesianTransformer", lm), name, query) if mark else lm


def _of_hub(found: HubFolders, dtype: str, device: str) -> LanguageModel:
    from lm_zoo.models.hf_load import Loading

    options = dict(found.name.options)
    if found.is_of_the_zoo:
        if options or found.adapter:
            raise ModelError(f"{found.folder}: a model folder of the zoo, which has no such options and adapters")
        return load_folder(found.folder)
    how = Loading(dtype, options.pop("bits", ""), options.pop("device_map", ""), device, found.adapter)
    module, cls = HUGGING_FACE[found.name.prefix]
    made: LanguageModel = getattr(importlib.import_module(module), cls)(found.folder, **options, how=how)
    return made


def load_grammar(path: Path, phi: bool = False) -> GrammarLM:
    """The LM of Kaldi's `G.fst`; `phi` as in `lm_zoo.ngram.grammar_fst.GrammarLM`."""
    from lm_zoo.ngram.grammar_fst import GrammarLM

    return GrammarLM(path, phi)


def _averaged(lm: BayesianTransformer, name: str, query: str) -> LanguageModel:
    """A Bayesian LM with `samples=K&seed=S&uncertainty=true`."""
    from lm_zoo.models.bayesian import BayesianAverage

    parts = query.split("&")
    values = dict(part.partition("=")[::2] for part in parts)
    expected = "expected samples=K, seed=S and uncertainty=true or false, joined by '&', each once"
    try:
        if len(values) < len(parts):
            raise KeyError
        samples, seed = int(values.pop("samples")), int(values.pop("seed", "1"))
        uncertainty = {"true": True, "false": False}[values.pop("uncertainty", "false")]
        if values or abs(seed) > LARGEST_SEED:
            raise KeyError
        return BayesianAverage(lm, samples, seed, uncertainty)
    except (KeyError, ValueError):
        raise ModelError(f"'{name}': found the options '{query}', {expected}") from None


def load_ngram(name: str) -> WordLM:
    """Loads an n-gram LM by name, model folder or file.

    Raises:
      ModelError: there is none, or the name is that of another kind of LM.
    """
    if foreign(name) is not None:
        raise ModelError(
            f"'{name}' is an LM of another package, expected an n-gram LM; give it with --lm (in Python as one of lms)"
        )
    path = find(name)
    if path.is_dir() and (kind := read_config(path)["kind"]) != "ngram":
        raise ModelError(f"'{name}' is a {kind}, expected an n-gram LM; give it with --lm (in Python as one of lms)")
    return cast("WordLM", load(name))


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json` of a model folder, with its `kind` checked."""
    path, config = folder / CONFIG, read_object(folder, "rescore train-lm")
    if isinstance(config, dict) and "model_type" in config and "kind" not in config:
        raise ModelError(f"{folder}: a Hugging Face model; give it as hf:PATH, or as hf-mlm:PATH if it is a masked LM")
    if not isinstance(config, dict) or "kind" not in config:
        raise ModelError(f"{path}: expected an object with a 'kind', one of {', '.join(sorted(KINDS))}")
    check_kind(config["kind"])
    if config.get("case") not in (None, "upper", "lower", "mixed"):
        raise ModelError(f"{path}: the case is {config['case']!r}, expected 'upper', 'lower' or 'mixed'")
    if config.get("numbers") not in (None, *NUMBERS) or config.get("punctuation") not in (None, True, False):
        found = f"punctuation {config.get('punctuation')!r} and numbers {config.get('numbers')!r}"
        raise ModelError(f"{path}: {found}, expected true or false, and 'spelled' or 'digits'")
    if not isinstance(config.get("settings", {}), dict):
        raise ModelError(f"{path}: the settings are {config['settings']!r}, expected an object of names and values")
    return config


def build(kind: str, vocab: Vocabulary, settings: dict[str, Any]) -> NeuralLM:
    """A new neural LM from a kind and the settings of its config dataclass.

    Raises:
      ModelError: a setting that this kind does not have, or a value that does not fit; names the known ones.
    """
    cls = neural_class(kind)
    try:
        return cls(vocab, cls.Config(**settings_of(kind, settings)))
    except (ValueError, ArithmeticError, RuntimeError, TypeError) as error:  # such as sizes of 0 or 10^30
        raise ModelError(f"{kind}: {error}") from None


def settings_of(kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    """All settings of a kind of neural LM: those given, and the defaults of the others.

    Raises:
      ModelError: as `build`.
    """
    cls = neural_class(kind)
    known = {field.name: field for field in dataclasses.fields(cls.Config)}
    for key, value in settings.items():
        if key not in known:
            raise ModelError(f"{kind} has no setting '{key}'{nearest(key, known)}; it has: {', '.join(known)}")
        default = known[key].default
        if isinstance(default, str) and type(value) is int:
            settings = {**settings, key: str(value)}  # such as blocks=1
        elif not is_like(value, default):
            raise ModelError(f"{kind}: setting '{key}' is {value!r}, expected something like {default!r}")
        elif key.endswith("dropout") and type(default) is float and not (0 <= value < 1 or value == default):
            raise ModelError(f"{kind}: setting '{key}' is {value}, expected a share from 0 to below 1")
        elif type(value) is int and value < (least := int(key in SIZES)) and value != default:
            raise ModelError(f"{kind}: setting '{key}' is {value}, expected {least} or more")
    return {**{name: field.default for name, field in known.items()}, **settings}


def load_folder(folder: Path, config: dict[str, Any] | None = None) -> NeuralLM:
    """A neural LM from its folder.

    Raises:
      ModelError: weights missing, damaged, NaN or infinite, or of other names or shapes than the config says.
      VocabError: the vocabulary's size is not that of the weights.
    """
    from lm_zoo.allowance import Allowance

    config = config or read_config(folder)
    vocab = load_vocabulary(folder, config.get("case") or "mixed", text_form(config))
    weights = read_tensors(folder / WEIGHTS)
    try:
        with Allowance(folder / WEIGHTS):
            lm = build(config["kind"], vocab, config.get("settings", {}))
    except ModelError as error:
        raise ModelError(f"{folder / CONFIG}: {error}") from None
    check_weights(folder / WEIGHTS, lm, weights)
    lm.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, strict=False)
    if joined := _joined(config):
        lm.most_tokens = joined
    return lm.eval()


def _joined(config: dict[str, Any]) -> int:
    """Tokens of the longest text that an LM with positions saw in training; 0: it has none, or saw sentences alone.

    Of windows the first token is that before the text, as the begin of sentence is; positions that are carried on from
    window to window have no end.
    """
    training, settings = config.get("training"), config.get("settings")
    if not (isinstance(training, dict) and isinstance(settings, dict) and settings.get("positions")):
        return 0
    if training.get("text") == "windows":
        window = training.get("window")
        return max(1, window - 1) if isinstance(window, int) and not training.get("carry") else 0
    joined = training.get("join")
    return max(0, joined) if isinstance(joined, int) and training.get("text") == "sentences" else 0


def check_weights(file: Path, lm: NeuralLM, weights: dict[str, Any], plan: str = CONFIG) -> None:
    """Names and shapes of the weights in a file against the model that `plan` and the vocabulary describe.

    Raises:
      VocabError: they are for another number of tokens.
      ModelError: as `check_shapes`.
    """
    bias = weights.get("output.bias")
    rows = len(bias) if bias is not None and bias.ndim else len(lm.vocab)
    if rows != len(lm.vocab):
        raise VocabError(f"{file}: the vocabulary has {len(lm.vocab)} tokens, but the weights are for {rows}")
    check_shapes(file, state_tensors(lm), weights, plan)


def state_tensors(lm: NeuralLM) -> dict[str, Any]:
    """The model's tensors by name, one name for tensors that are shared (tied embeddings)."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in lm.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor.detach()
    return tensors


def count_parameters(lm: NeuralLM) -> int:
    """The numbers that are stored of the model."""
    return sum(tensor.numel() for tensor in state_tensors(lm).values())


def save_folder(folder: Path, lm: NeuralLM, kind: str, info: dict[str, Any], half: bool = False) -> None:
    """Writes a model folder; each file is replaced atomically, `config.json` last.

    Args:
      info: what else belongs into `config.json` (training data, steps, perplexity).
      half: store the weights as float16.
    Raises:
      ModelError: as `check_place`.
    """
    check_place(folder, lm.vocab)
    lm.vocab.save(folder)
    text = {"case": lm.vocab.case, **dataclasses.asdict(form_of(lm.vocab))}
    config = {"kind": kind, **text, "settings": dataclasses.asdict(lm.config), **info, "params": count_parameters(lm)}
    write_model(folder, config, state_tensors(lm), half)


def check_place(folder: Path, vocab: Vocabulary) -> None:
    """Raises ModelError where the folder has the tokens of another LM, which would be read in the place of its own."""
    pieces = folder / PieceVocabulary.FILE
    if not isinstance(vocab, PieceVocabulary) and pieces.exists():
        raise ModelError(f"{pieces}: the pieces of another LM, in a folder for one over words; choose another --out")
    listed = folder / PieceVocabulary.LIST
    if listed.exists() and (not isinstance(vocab, PieceVocabulary) or vocab.tokens is None):
        raise ModelError(f"{listed}: the tokens of another LM; choose another --out")


def check_no_run(folder: Path) -> None:
    """Raises ModelError where a training run is in the folder, whose log, card and next steps are of another LM."""
    if (folder / RUN).exists() and (folder / LOG).exists():
        raise ModelError(f"{folder}: has the run of a trained LM in it ({RUN}); choose another --out")
