"""Batches of features and texts from lhotse CutSets: augmented, bucketed, the same for a seed and epoch.

All that is random about an utterance (speed, noise, masks) comes from the seed, the epoch and its id, whatever the
number of workers and wherever a run continues.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from asr.dataset.augment import SpecAugment, add_noise, at_speed
from asr.dataset.features import BINS, SAMPLE_RATE, fbank, resample
from asr.dataset.left_out import FirstOfReason, summarise
from asr.errors import ConfigError, DataError
from rescore.console import remark

if TYPE_CHECKING:
    from lhotse import CutSet, SupervisionSegment
    from lhotse.cut import Cut

PADDING = float(np.log(1e-10))  # lhotse's value for frames that are not there
BEYOND = 0.1  # seconds by which a supervision may reach beyond its cut: times in transcripts are rounded
A_CUT_EACH = "make a cut of each supervision: lhotse cut trim-to-supervisions --discard-overlapping CUTS OUT"
BUCKET_SAMPLE = 10000  # cuts that the buckets' limits are estimated from

Batch = dict[str, Any]


@dataclass(frozen=True)
class LoaderOptions:
    """How batches are made.

    Attributes:
      max_duration: seconds of audio in a batch of one rank.
      max_cuts:     most utterances in a batch.
      buckets:      of utterances of like durations.
      shuffle:      another order in every epoch.
      seed:         of the order and of all augmentation.
      min_seconds, max_seconds: shorter and longer cuts are left out, counted and named.
      speeds:       each cut gets one of these, drawn anew in every epoch; needs audio.
      noise_snr, noise_probability: of mixing with noise, if the loader is given any.
      spec_augment: None: no masks and no warping.
      stored:       take the stored features of the cuts instead of computing them from their audio.
      whole_texts:  leave out cuts that hold a part alone of what a supervision says (see `partly_heard`).
      num_workers:  processes that load.
      rank, world_size: each rank gets batches of its own, of the same buckets.
    """

    max_duration: float = 200.0
    max_cuts: int | None = None
    buckets: int = 20
    shuffle: bool = True
    seed: int = 0
    min_seconds: float = 0.3
    max_seconds: float = 30.0
    speeds: tuple[float, ...] = (1.0,)
    noise_snr: tuple[float, float] = (10.0, 20.0)
    noise_probability: float = 0.5
    spec_augment: SpecAugment | None = None
    stored: bool = False
    whole_texts: bool = False
    num_workers: int = 0
    rank: int = 0
    world_size: int = 1


class LeftOut:
    """The cuts that could not be used, by reason; each is counted once, and the first of a reason are named."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.ids: dict[str, set[str]] = {}
        self._first = FirstOfReason(say)

    def add(self, cut_id: str, reason: str, detail: str, said: bool = True) -> None:
        """`said`: whether it is named."""
        ids = self.ids.setdefault(reason, set())
        if cut_id in ids:
            return
        ids.add(cut_id)
        if said:
            self._first.tell(cut_id, reason, f"cut {cut_id} left out: {reason} ({detail})")

    def add_all(self, others: Iterable[dict[str, set[str]]]) -> None:
        """Counts those of other processes too."""
        for found in others:
            for reason, ids in found.items():
                self.ids.setdefault(reason, set()).update(ids)

    def counts(self) -> dict[str, int]:
        return {reason: len(ids) for reason, ids in self.ids.items()}

    def summary(self) -> str:
        """Such as `3 x cannot be loaded, 1 x too long`; empty where nothing was left out."""
        return summarise(self.counts())


def make_loader(
    cuts: CutSet, options: LoaderOptions, noise: CutSet | None = None, say: Callable[[str], None] = remark
) -> Loader:
    """Batches of a CutSet (read by `asr.dataset.manifests.load_cuts`, lazy or not, shar too).

    Args:
      noise: cuts to mix with, e.g. of MUSAN; held in memory (their manifests, not their audio).
      say:   gets the lines for the user.
    Raises:
      DataError: no cut, no noise, or augmentation of audio together with stored features.
    """
    return Loader(cuts, options, noise, say)


class Loader:
    """`loader(epoch, skip)` gives the batches of an epoch (from 1) but the first `skip`, whose audio is not loaded.

    A batch: `features` (B, T, 80) float32, `lengths` (B,) int64, `texts` and `ids` lists of B.  Where all cuts of a
    batch are unusable, B is 0, so that the number of batches does not depend on it.
    """

    def __init__(self, cuts: CutSet, options: LoaderOptions, noise: CutSet | None, say: Callable[[str], None]) -> None:
        from lhotse.dataset.sampling.dynamic_bucketing import estimate_duration_buckets

        self.options = options
        self.left_out = LeftOut(say)
        if options.stored and (options.speeds != (1.0,) or noise is not None):
            raise DataError("stored features can be neither sped up nor mixed with noise; compute them from the audio")
        self._cuts = _EpochCuts(cuts, options, self.left_out, say)
        self._noise = list(noise) if noise is not None else []
        if noise is not None and not self._noise:
            raise DataError("the noise has no cuts")
        first = self._cuts.sample(BUCKET_SAMPLE)
        if not first:
            raise DataError(f"no cut is left to load: {self.left_out.summary() or 'the manifest is empty'}")
        buckets = min(options.buckets, len(first))
        limits = estimate_duration_buckets(first, buckets) if buckets > 1 else []
        self._bins = limits or [options.max_seconds]

    def sampler(self, epoch: int) -> Any:
        """lhotse's sampler of an epoch.

        Its `load_state_dict` leaves out too many batches in mid-epoch (lhotse 1.32.1): continue by `skip` instead.
        """
        from lhotse.dataset import DynamicBucketingSampler

        options = self.options
        return DynamicBucketingSampler(
            self._cuts.of(epoch),
            max_duration=options.max_duration,
            max_cuts=options.max_cuts,
            duration_bins=self._bins,
            shuffle=options.shuffle,
            seed=options.seed + epoch,
            rank=options.rank,
            world_size=options.world_size,
        )

    def __call__(self, epoch: int = 1, skip: int = 0, wanted: Callable[[int], bool] | None = None) -> Iterator[Any]:
        """With `wanted`, those that it says by their numbers from 0 are loaded, and the others are None.

        Processes that load are forked, as Linux did by itself up to Python 3.13: others would import all anew in every
        epoch, and end at the Ctrl-C that the run is saved behind (`lm_zoo.training.stopping`).
        """
        from torch.utils.data import DataLoader

        batches: Any = DataLoader(
            _Utterances(self.options, self._noise, epoch),
            sampler=_Rest(self.sampler(epoch), skip, wanted),  # type: ignore[arg-type]
            batch_size=None,
            num_workers=self.options.num_workers,
            multiprocessing_context="fork" if self.options.num_workers and sys.platform == "linux" else None,
            generator=torch.Generator(),  # each start draws from it: not from dropout's, which a run goes on with
        )
        for batch in batches:
            if batch is None:
                yield None
                continue
            if isinstance(batch, ConfigError):
                raise batch
            for trouble in batch.pop("trouble"):
                self.left_out.add(*trouble)
            yield batch


class _Rest:
    """The batches of a sampler but the first few; None for those that are not `wanted`."""

    def __init__(self, sampler: Iterable[Any], skip: int, wanted: Callable[[int], bool] | None = None) -> None:
        self._sampler, self._skip, self._wanted = sampler, skip, wanted

    def __iter__(self) -> Iterator[Any]:
        for index, batch in enumerate(self._sampler):
            if index >= self._skip:
                yield batch if self._wanted is None or self._wanted(index) else None


class _EpochCuts:
    """The usable cuts of an epoch, at the speeds of that epoch; can be iterated again and again."""

    def __init__(
        self, cuts: CutSet, options: LoaderOptions, left_out: LeftOut, say: Callable[[str], None], epoch: int = 0
    ) -> None:
        self._cuts, self._options, self._left_out, self._say, self._epoch = cuts, options, left_out, say, epoch
        self._told = False

    def of(self, epoch: int) -> _EpochCuts:
        return _EpochCuts(self._cuts, self._options, self._left_out, self._say, epoch)

    def sample(self, count: int) -> list[Cut]:
        """The first cuts; of cuts that lie in memory, a random choice."""
        return [cut for _, cut in zip(range(count), self, strict=False)]

    def __iter__(self) -> Iterator[Cut]:
        options = self._options
        cuts: Iterable[Cut] = self._cuts
        first = options.rank == 0  # every rank reads the whole manifest
        if options.shuffle and not self._cuts.is_lazy:
            cuts = list(cuts)
            random.Random(f"{options.seed} {self._epoch}").shuffle(cuts)
        for cut in cuts:
            trouble = _unusable(cut, options)
            if trouble:
                self._left_out.add(cut.id, *trouble, said=first)
                continue
            resampled = not options.stored and cut.sampling_rate not in (None, SAMPLE_RATE)
            if self._epoch == 0 and not self._told and resampled and first:
                self._say(f"cut {cut.id} has {cut.sampling_rate} Hz: such cuts are resampled to {SAMPLE_RATE} Hz")
                self._told = True
            speed = _draw(options, self._epoch, "speed", cut.id).choice(options.speeds)
            yield at_speed(cut, speed, rename=False)  # it is counted and named once, whatever its speeds


def _unusable(cut: Cut, options: LoaderOptions) -> tuple[str, str] | None:
    """The reason and the detail, if a cut cannot be used; seen from its manifest alone."""
    if cut.duration < options.min_seconds:
        return "too short", f"{cut.duration:.3f} s, expected {options.min_seconds} s or more"
    if cut.duration > options.max_seconds:
        more = f"; {A_CUT_EACH}" if len(cut.supervisions) > 1 else ""
        return "too long", f"{cut.duration:.1f} s, expected {options.max_seconds} s or less{more}"
    if options.whole_texts and (segment := partly_heard(cut)):
        where = f"supervision {segment.id} from {segment.start:.2f} to {segment.end:.2f} s of {cut.duration:.2f} s"
        return "words beyond its audio", f"{where}; {A_CUT_EACH}"
    if options.stored and not cut.has_features:
        return "no stored features", "compute them by asr prepare, or load audio"
    if options.stored and cut.num_features != BINS:
        return "wrong features", f"{cut.num_features} bins, expected {BINS}"
    if not options.stored and not cut.has_recording:
        stored = (
            ", but stored features, which asr train takes with --on-the-fly-feats false" if cut.has_features else ""
        )
        return "no audio", f"its manifest names no recording{stored}"
    return None


def _draw(options: LoaderOptions, epoch: int, what: str, cut_id: str) -> random.Random:
    return random.Random(f"{options.seed} {epoch} {what} {cut_id}")


class _Utterances(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Loads the batch of cuts that the sampler gives."""

    def __init__(self, options: LoaderOptions, noise: list[Cut], epoch: int) -> None:
        self._options, self._noise, self._epoch = options, noise, epoch

    def __getitem__(self, cuts: Iterable[Cut] | None) -> Batch | ConfigError | None:
        """A ConfigError is given, not raised: torch would put its process's traceback around it."""
        try:
            return None if cuts is None else self._batch(cuts)
        except ConfigError as error:
            return error

    def _batch(self, cuts: Iterable[Cut]) -> Batch:
        good: list[tuple[Cut, np.ndarray]] = []
        trouble: list[tuple[str, str, str]] = []
        for cut in cuts:
            try:
                good.append((cut, self._features(cut, trouble)))
            except load_errors() as error:
                trouble.append((cut.id, "cannot be loaded", load_trouble(cut, error)))
        lengths = torch.tensor([len(features) for _, features in good], dtype=torch.int64)
        batch = torch.full((len(good), int(lengths.max()) if good else 0, BINS), PADDING)
        for row, (_, features) in enumerate(good):
            batch[row, : len(features)] = torch.from_numpy(features)
        texts, ids = [cut_text(cut) for cut, _ in good], [cut.id for cut, _ in good]
        return {"features": batch, "lengths": lengths, "texts": texts, "ids": ids, "trouble": trouble}

    def _features(self, cut: Cut, trouble: list[tuple[str, str, str]]) -> np.ndarray:
        """Features (T, 80) of a cut; noise that cannot be loaded is added to `trouble`, and the cut taken without."""
        options = self._options
        draw = _draw(options, self._epoch, "augment", cut.id)
        if options.stored:
            features = load_stored(cut)
        else:
            samples = load_samples(cut)
            if self._noise and draw.random() < options.noise_probability:
                source = draw.choice(self._noise)
                try:
                    noise = load_samples(_part(source, cut.duration, draw))
                    if not np.isfinite(noise).all():
                        raise DataError("a sample is NaN or infinite")
                    samples = add_noise(samples, noise, draw.uniform(*options.noise_snr))
                except load_errors() as error:
                    trouble.append((source.id, "noise cannot be loaded", load_trouble(source, error)))
            features = fbank(samples)
        check_features(features)
        return options.spec_augment(features, draw) if options.spec_augment else features


def _part(cut: Cut, seconds: float, draw: random.Random) -> Cut:
    """So many seconds from a random place of a cut, or all of it if it is shorter."""
    if cut.duration <= seconds:
        return cut
    return cut.truncate(offset=draw.uniform(0, cut.duration - seconds), duration=seconds)


def load_samples(cut: Cut) -> np.ndarray:
    """Samples (N,) float32 of a cut at 16 kHz; the mean of several channels.

    Raises:
      ConfigError: lhotse lacks a package for it, such as scipy where the manifest says `Resample`.
      AudioLoadingError and others of `load_errors`: they cannot be loaded.
    """
    from lhotse.audio import AudioLoadingError

    try:
        audio = cut.load_audio()
    except ImportError as error:
        found = str(error).partition("\n")[0]
        raise ConfigError(f"cut {cut.id}: lhotse needs another package to load it ({found}); install that") from None
    except RuntimeError as error:  # torch's, of a change of speed or rate, where a truncated file gives no samples
        if "tensor of 0 elements" not in str(error):
            raise
        raise AudioLoadingError("no samples") from None
    if audio is None:
        raise DataError("no audio: its manifest names no recording")
    try:
        return resample(audio.mean(0) if len(audio) > 1 else audio[0], int(cut.sampling_rate))
    except DataError as error:
        raise DataError(f"cut {cut.id}: {error}") from None


def load_stored(cut: Cut) -> np.ndarray:
    """The stored features of a cut, as lhotse reads them.

    Raises:
      DataError: it does not know their kind of store, or the store has none of this key.
    """
    try:
        return cut.load_features()
    except (TypeError, LookupError):
        kind = getattr(getattr(cut, "features", None), "storage_type", "of a mixed cut")
        raise DataError(f"lhotse cannot read the stored features ({kind}); make them anew, or load audio") from None


def cut_text(cut: Cut) -> str:
    """The words of a cut's supervisions in their order of time."""
    segments = sorted(cut.supervisions, key=lambda segment: segment.start)
    return " ".join(segment.text for segment in segments if segment.text)


def partly_heard(cut: Cut) -> SupervisionSegment | None:
    """The first supervision with words that begins before a cut or ends after it, by more than BEYOND seconds.

    So are those of windows (lhotse's `cut_into_windows`, `truncate`): the text is there as a whole, the audio is not.
    """
    for segment in cut.supervisions:
        if segment.text and (segment.start < -BEYOND or segment.end > cut.duration + BEYOND):
            return segment
    return None


def load_errors() -> tuple[type[BaseException], ...]:
    """What unreadable audio or features raise; running out of memory is not among them."""
    return (*audio_errors(), DataError, OSError, ValueError, EOFError, AssertionError)


def audio_errors() -> tuple[type[BaseException], ...]:
    """What lhotse and libsndfile raise for audio."""
    from lhotse.audio import AudioLoadingError, DurationMismatchError
    from soundfile import LibsndfileError

    return AudioLoadingError, DurationMismatchError, LibsndfileError


def load_trouble(cut: Cut, error: BaseException) -> str:
    """Why the audio or the features of a cut cannot be loaded, on one line, from what loading them raised."""
    recording = getattr(cut, "recording", None)
    if recording and isinstance(error, audio_errors()):
        for source in recording.sources:
            if source.type == "file":
                return f"{source.source}: {_file_trouble(Path(source.source), error)}"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _file_trouble(path: Path, error: BaseException) -> str:
    if not path.is_file():
        return "no such file"
    if "'sph2pipe' binary is not installed" in str(error):
        return "lhotse needs sph2pipe to read it; run lhotse install-sph2pipe, or convert it to FLAC"
    return "damaged, truncated, or not the audio that its manifest tells of"


def check_features(features: np.ndarray) -> None:
    """Raises DataError unless the features are (T, 80), T at least 1, and all of them numbers."""
    if features.ndim != 2 or features.shape[1] != BINS:
        raise DataError(f"features of shape {features.shape}, expected {BINS} bins a frame")
    if not len(features):
        raise DataError("no frame of features: it is empty")
    bad = int((~np.isfinite(features).all(1)).sum())
    if bad:
        raise DataError(f"{bad} of {len(features)} frames hold NaN or infinite values; look at its audio or features")
