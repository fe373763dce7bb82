"""`asr prepare`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from asr.cli.pipes import pipes_option
from rescore.cli.outputs import OutputPath

if TYPE_CHECKING:
    from lhotse import MonoCut

    from lm_zoo.text.vocabulary import PieceVocabulary

PATH = click.Path(path_type=Path)
TRAIN = "train"  # in the names of parts whose speed is perturbed; icefall does not perturb the others either


@dataclass(frozen=True)
class Corpora:
    """What is read, by the names of the options."""

    librispeech: Path | None
    dataset_parts: tuple[str, ...]
    split: Path | None
    kaldi: tuple[Path, ...]
    kaldi_feats: bool
    audio: Path | None
    text: Path | None
    cuts: tuple[Path, ...]
    allow_pipes: bool


@click.command()
@click.argument("out_dir", type=OutputPath(folder=True))
@click.option("--librispeech", type=PATH, help="Folder PART/SPEAKER/CHAPTER with .trans.txt; audio of any kind.")
@click.option(
    "-p", "--dataset-parts", multiple=True, help="Of --librispeech alone these, as in lhotse. [all that are there]"
)
@click.option("--split", type=PATH, help='Divide its parts by speaker: JSON {"train": ["1462", ...], ...}.')
@click.option("--kaldi", type=PATH, multiple=True, help="Kaldi data folder (wav.scp, segments, text, utt2spk).")
@click.option("--kaldi-feats", is_flag=True, help="Take its feats.scp (80 bins), not its audio.")
@click.option("--audio", type=PATH, help="Folder of audio files.")
@click.option("--text", type=PATH, help="Kaldi text of --audio; ids are the file names without suffix.")
@click.option("--cuts", type=PATH, multiple=True, help="Cuts, or a folder with cuts.jsonl.gz (asr synthesise).")
@pipes_option
@click.option("--fbank", is_flag=True, help="Compute and store features.")
@click.option("--perturb-speed", is_flag=True, help="Parts named *train*: at 0.9 and 1.1 times the speed as well.")
@click.option("--storage", type=click.Choice(["lilcom", "numpy"]), default="lilcom", show_default=True)
@click.option(
    "--bpe-text",
    multiple=True,
    help="Make tokens of this text, a sentence a line, or kaldi:FILE, with ids: OUT_DIR/lang_bpe_SIZE.",
)
@click.option("--vocab-size", type=click.IntRange(4), default=500, show_default=True, help="Number of BPE tokens.")
@click.option("--characters", is_flag=True, help="Words, and tokens, are characters (Mandarin): OUT_DIR/lang_char.")
@click.pass_context
def command(
    context: click.Context,
    out_dir: Path,
    fbank: bool,
    perturb_speed: bool,
    storage: str,
    bpe_text: tuple[str, ...],
    vocab_size: int,
    characters: bool,
    **read: Any,
) -> None:
    """Manifests, features and tokens of corpora, in OUT_DIR.

    Writes KIND_cuts_PART.jsonl.gz (with recordings and supervisions beside it) for each part of each corpus.
    Utterances without audio or text, or whose audio cannot be read, are left out and counted.

    \b
    Example: asr prepare data --librispeech LibriSpeech --bpe-text books.txt.xz --vocab-size 500
    Example: asr prepare data --kaldi kaldi/data/train --kaldi kaldi/data/test --allow-pipes --fbank
    Example: asr prepare data --cuts synthetic/train --fbank
    Example: asr prepare data --cuts manifests/aishell_cuts_train.jsonl.gz --characters --bpe-text kaldi:text --fbank
    """
    corpora = Corpora(**read)
    _check_options(corpora, fbank, perturb_speed, bpe_text)
    _check_given(context, corpora, fbank, pieces=bool(bpe_text) and not characters)
    sets = _read(corpora, out_dir, storage)
    if perturb_speed:
        _check_training_part([part for _, part in sets])
    vocab = _tokens(out_dir, bpe_text, None if characters else vocab_size) if bpe_text else None
    for (kind, part), found in sets.items():
        if characters:
            from asr.dataset.lang import with_characters

            found = with_characters(found)
        if fbank and not (kind == "kaldi" and corpora.kaldi_feats):
            found = _with_fbank(found, out_dir / "feats", f"{kind}_{part}", storage, perturb_speed and TRAIN in part)
        _write(out_dir, kind, part, found)
        if vocab is not None:
            _check_spelling(part, found, vocab)


def _check_options(corpora: Corpora, fbank: bool, perturb_speed: bool, bpe_text: tuple[str, ...]) -> None:
    """Raises UsageError where there is nothing to do, an option without another that it needs, or a name twice."""
    from asr.dataset.manifests import own_name

    if not (corpora.librispeech or corpora.kaldi or corpora.audio or corpora.cuts or bpe_text):
        raise click.UsageError("nothing to prepare; give --librispeech, --kaldi, --audio, --cuts or --bpe-text")
    audio_is_taken = not corpora.kaldi_feats
    computed = corpora.librispeech or corpora.audio or corpora.cuts or (corpora.kaldi and audio_is_taken)
    for given, needed, message in (
        (corpora.split, corpora.librispeech, "--split needs --librispeech"),
        (corpora.dataset_parts, corpora.librispeech, "--dataset-parts needs --librispeech"),
        (corpora.text, corpora.audio, "--text needs --audio"),
        (corpora.kaldi_feats, corpora.kaldi, "--kaldi-feats needs --kaldi"),
        (perturb_speed, audio_is_taken, "--perturb-speed needs audio; --kaldi-feats takes features as they are"),
        (perturb_speed, fbank, "--perturb-speed needs --fbank; without stored features, asr train perturbs by itself"),
        (fbank, computed, "--fbank needs audio: --librispeech, --audio, --cuts, or --kaldi without --kaldi-feats"),
    ):
        if given and not needed:
            raise click.UsageError(message)
    for name, count in Counter(map(own_name, corpora.kaldi)).items():
        if count > 1:
            raise click.UsageError(f"two --kaldi folders are named {name}; prepare them into different OUT_DIRs")


def _check_given(context: click.Context, corpora: Corpora, fbank: bool, pieces: bool) -> None:
    """Raises UsageError for an option with a default that is given, and does nothing beside the others."""
    for name, used, message in (
        ("storage", fbank or corpora.kaldi_feats, "--storage needs features to store: --fbank or --kaldi-feats"),
        ("vocab_size", pieces, "--vocab-size needs --bpe-text, without --characters: it is the number of BPE tokens"),
    ):
        if not used and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(message)


def _check_training_part(parts: list[str]) -> None:
    from rescore.console import remark

    if not any(TRAIN in part for part in parts):
        remark(f"--perturb-speed: found no part named *{TRAIN}* ({', '.join(parts)}); none is perturbed")


def _tokens(out_dir: Path, text: tuple[str, ...], vocab_size: int | None) -> PieceVocabulary:
    """The vocabulary of a text: characters if `vocab_size` is None; written to its folder, unless it is there."""
    from asr.dataset.lang import write_lang

    lang = out_dir / (f"lang_bpe_{vocab_size}" if vocab_size else "lang_char")
    vocab = write_lang(lang, text, vocab_size)
    click.echo(f"{lang}: {len(vocab)} tokens")
    return vocab


def _check_spelling(part: str, cuts: list[MonoCut], vocab: PieceVocabulary) -> None:
    from asr.dataset.lang import unspellable
    from rescore.console import remark

    names = unspellable(cuts, vocab)
    if names:
        remark(f"{part}: {len(names)} transcripts have symbols that the tokens lack (the first: {names[0]})")


def _read(corpora: Corpora, out_dir: Path, storage: str) -> dict[tuple[str, str], list[MonoCut]]:
    """The cuts of every corpus, by kind and part."""
    from asr.dataset import kaldi as kaldi_data
    from asr.dataset import manifests

    sets: dict[tuple[str, str], list[MonoCut]] = {}
    if corpora.librispeech:
        parts = manifests.librispeech(corpora.librispeech, corpora.dataset_parts)
        if corpora.split:
            parts = manifests.split_by_speaker(parts, corpora.split)
        sets |= {("librispeech", part): cuts for part, cuts in parts.items()}
    for folder in corpora.kaldi:
        if corpora.kaldi_feats:
            cuts = kaldi_data.kaldi_feature_cuts(folder, out_dir, storage, corpora.allow_pipes)
        else:
            cuts = kaldi_data.kaldi_cuts(folder, out_dir, corpora.allow_pipes)
        sets["kaldi", manifests.own_name(folder)] = cuts
    if corpora.audio:
        sets["audio", manifests.own_name(corpora.audio)] = manifests.audio_and_text(corpora.audio, corpora.text)
    for (_, part), cuts in sets.items():
        _tell_channels(part, cuts)
    for key, named in _named_cuts(corpora.cuts, corpora.allow_pipes).items():
        if key in sets:
            raise click.UsageError(f"two corpora are named {'_cuts_'.join(key)}; prepare them into different OUT_DIRs")
        sets[key] = named
    for (_, part), cuts in sets.items():
        manifests.check_ids(part, (cut.id for cut in cuts))
    return sets


def _tell_channels(part: str, cuts: list[MonoCut]) -> None:
    from rescore.console import remark

    found = [cut.id for cut in cuts if cut.has_recording and cut.recording.num_channels > 1]
    if found:
        which = f"of which the first is taken (such as {found[0]})"
        remark(f"{part}: {len(found)} utterances are of several channels, {which}")


def _named_cuts(paths: tuple[Path, ...], allow_pipes: bool) -> dict[tuple[str, str], list[MonoCut]]:
    """The cuts of files `KIND_cuts_PART.jsonl.gz`, or of any others and of folders, which are kind `speech`."""
    from asr.dataset.manifests import kind_and_part, load_cuts, own_name

    sets: dict[tuple[str, str], list[MonoCut]] = {}
    for path in paths:
        key = kind_and_part(path)
        if key in sets:
            raise click.UsageError(f"two --cuts are named {own_name(path)}; prepare them into different OUT_DIRs")
        sets[key] = list(_on_disk(path, load_cuts(path, allow_pipes=allow_pipes)))
    return sets


def _on_disk(path: Path, cuts: Iterable[MonoCut]) -> Iterator[MonoCut]:
    """The cuts; a manifest cannot hold audio or features, as those of a Shar folder do."""
    from asr.errors import DataError

    for cut in cuts:
        if cut.is_in_memory:
            raise DataError(
                f"{path}: cut '{cut.id}' carries its audio or features, expected files of them; asr train and "
                "asr decode take a Shar folder as it is"
            )
        yield cut


def _with_fbank(cuts: list[MonoCut], folder: Path, name: str, storage: str, perturb_speed: bool) -> list[MonoCut]:
    from asr.dataset.augment import at_speed
    from asr.dataset.manifests import store_fbank

    if perturb_speed:
        cuts = [*cuts, *(at_speed(cut, speed) for speed in (0.9, 1.1) for cut in cuts)]
    return store_fbank(cuts, folder, name, storage)


def _write(out_dir: Path, kind: str, part: str, cuts: list[MonoCut]) -> None:
    from asr.dataset.manifests import save_cuts

    path = save_cuts(out_dir, kind, part, cuts)
    hours = sum(cut.duration for cut in cuts) / 3600
    click.echo(f"{path}: {len(cuts)} utterances, {hours:.2f} hours")
