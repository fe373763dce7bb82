"""Synthetic speech in many voices: SVOX Pico (ttspico) and eSpeak NG (espeakng-loader), with noise, at 16 kHz.

How a sentence is spoken (voice, pitch, rate, level, silence around it, noise) is drawn from the seed and its
utterance id alone.  Pitches, rates and eSpeak's voices of `TEST` never occur in `TRAIN`; Pico has two voices.
"""

from __future__ import annotations

import ctypes
import random
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from asr.dataset.features import SAMPLE_RATE, resample
from asr.errors import DataError

PEAK = 0.98
COLOURS = {"white": 0.0, "pink": 1.0, "brown": 2.0}  # the noise's power falls as 1 / f ** colour
LEVEL_DB = (-34.0, -16.0)  # of the speech, against full scale
SILENCE = (0.05, 0.4)  # seconds, at either end
MARGIN = 150  # a sample above this (of 32768) is speech; in its silences Pico goes up to 106
KEPT = 320  # samples of the engine's own silence kept at either end

Range = tuple[float, float]


@dataclass(frozen=True)
class Voices:
    """The settings to draw from; of several ranges one is drawn first, each as likely as it is wide."""

    pico: tuple[str, ...]
    pico_pitches: tuple[Range, ...]
    pico_rates: tuple[Range, ...]
    accents: tuple[str, ...]
    variants: tuple[str, ...]
    espeak_pitches: tuple[Range, ...]
    espeak_rates: tuple[Range, ...]  # words a minute


_ACCENTS = ("gmw/en-US", "gmw/en-US", "gmw/en-US", "gmw/en", "gmw/en-GB-scotland", "gmw/en-GB-x-rp")
_VARIANTS = """ m1 m2 m3 m5 m6 m8 f1 f2 f4 f5 Alex Alicia Andrea Andy anika antonio aunty belinda benjamin boris caleb
david Denis Diogo ed edward Gene grandma grandpa gustave Henrique iven Jacky john kaukovalta klatt klatt2 klatt4 Lee
marcelo Marco Mario max Michael miguel Mike norbert pablo pedro quincy Reed rob sandro shelby steph travis victor zac"""

TRAIN = Voices(
    pico=("en-US", "en-GB"),
    pico_pitches=((65, 85), (91, 107), (113, 150)),
    pico_rates=((75, 92), (97, 112), (117, 130)),
    accents=(*_ACCENTS, "gmw/en-GB-x-gbclan", "gmw/en-029"),
    variants=("", *_VARIANTS.split()),
    espeak_pitches=((10, 38), (44, 62), (68, 95)),
    espeak_rates=((125, 155), (163, 188), (196, 230)),
)
TEST = Voices(
    pico=("en-US", "en-GB"),
    pico_pitches=((86, 90), (108, 112)),
    pico_rates=((93, 96), (113, 116)),
    accents=("gmw/en-US-nyc", "gmw/en-GB-x-gbcwmd"),
    variants=("m4", "m7", "f3", "Hugo", "Annie", "linda", "paul", "robert", "steph2", "klatt3"),
    espeak_pitches=((39, 43), (63, 67)),
    espeak_rates=((156, 162), (189, 195)),
)
SPEAKERS = {"train": TRAIN, "test": TEST}


@dataclass(frozen=True)
class Setting:
    """How one sentence is spoken.

    Attributes:
      engine, voice: `pico` or `espeak`, and the engine's name of the voice.
      pitch, rate:   in the engine's own units.
      level_db:      root mean square of the speech, in dB of full scale.
      silence:       seconds before and behind.
      snr_db, colour: of the noise.
      noise_seed:    of the noise.
    """

    engine: str
    voice: str
    pitch: int
    rate: int
    level_db: float
    silence: Range
    snr_db: float
    colour: str
    noise_seed: int

    @property
    def speaker(self) -> str:
        return f"{self.engine}-{self.voice.replace('/', '-')}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def draw_setting(seed: int, utt_id: str, voices: Voices, pico: float, snr_db: Range) -> Setting:
    """The setting of an utterance: a function of `seed` and `utt_id`.

    Args:
      pico:   share of Pico's voices, 0 to 1; the rest is eSpeak's.
      snr_db: least and greatest signal-to-noise ratio.
    """
    draw = random.Random(f"{seed} {utt_id}")
    if draw.random() < pico:
        engine, voice = "pico", draw.choice(voices.pico)
        pitches, rates = voices.pico_pitches, voices.pico_rates
    else:
        engine, variant = "espeak", draw.choice(voices.variants)
        voice = draw.choice(voices.accents) + (f"+{variant}" if variant else "")
        pitches, rates = voices.espeak_pitches, voices.espeak_rates
    return Setting(
        engine=engine,
        voice=voice,
        pitch=_draw_integer(draw, pitches),
        rate=_draw_integer(draw, rates),
        level_db=round(draw.uniform(*LEVEL_DB), 1),
        silence=(round(draw.uniform(*SILENCE), 3), round(draw.uniform(*SILENCE), 3)),
        snr_db=round(draw.uniform(*snr_db), 1),
        colour=draw.choice(list(COLOURS)),
        noise_seed=draw.getrandbits(32),
    )


def _draw_integer(draw: random.Random, ranges: tuple[Range, ...]) -> int:
    low, high = draw.choices(ranges, [high - low for low, high in ranges])[0]
    return draw.randint(int(low), int(high))


class NothingSpoken(DataError):
    """A sentence for which an engine gives no sound."""


class Speakers:
    """Both engines, each started when it is first needed.

    eSpeak draws random numbers that it never starts anew: the same samples come again in a new process only, from the
    same sentences in the same order.
    """

    def __init__(self) -> None:
        self._espeak: Espeak | None = None

    def speak(self, text: str, setting: Setting) -> np.ndarray:
        """Samples (int16, one channel, 16 kHz) of a text; upper case is spoken as lower case.

        Raises:
          NothingSpoken: the engine gives no sound for it.
          DataError:     the engine is not installed.
        """
        spoken = text.lower()
        clean = self._speak_pico(spoken, setting) if setting.engine == "pico" else self._speak_espeak(spoken, setting)
        loud = np.flatnonzero(np.abs(clean) > MARGIN)
        if not len(loud):
            raise NothingSpoken(f"{setting.engine} speaks nothing for '{text}'; leave the sentence out")
        return finish(clean[max(loud[0] - KEPT, 0) : loud[-1] + KEPT], setting)

    def _speak_pico(self, text: str, setting: Setting) -> np.ndarray:
        try:
            from ttspico import TtsEngine
        except ImportError:
            raise DataError("SVOX Pico is not installed: pip install ttspico, or leave it out (--pico 0)") from None
        engine = TtsEngine(setting.voice)  # a used one speaks the same text a little differently; a new one costs 5 ms
        engine.pitch, engine.rate = setting.pitch, setting.rate
        return np.frombuffer(engine.speak(text) or b"", dtype=np.int16).astype(np.float32)

    def _speak_espeak(self, text: str, setting: Setting) -> np.ndarray:
        if self._espeak is None:
            self._espeak = Espeak()
        return self._espeak.speak(text, setting.voice, setting.pitch, setting.rate)


class Espeak:
    """eSpeak NG's library through ctypes; names after its speak_lib.h."""

    SYNCHRONOUS, UTF8 = 2, 1
    RATE, PITCH = 1, 3

    def __init__(self) -> None:
        try:
            import espeakng_loader
        except ImportError:
            text = "eSpeak NG is not installed: pip install espeakng-loader, or leave it out (--pico 1)"
            raise DataError(text) from None
        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        self.rate = self._library.espeak_Initialize(self.SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), 0)
        if self.rate <= 0:
            raise DataError(f"eSpeak NG does not start (code {self.rate}); its data lie beside espeakng_loader")
        self._library.espeak_ng_SetRandSeed(ctypes.c_long(0))  # of breath; by itself the time of day
        self._pieces: list[bytes] = []
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
        self._callback = kind(self._receive)
        self._library.espeak_SetSynthCallback(self._callback)

    def _receive(self, samples: Any, count: int, _events: object) -> int:
        if samples and count > 0:
            self._pieces.append(ctypes.string_at(samples, 2 * count))
        return 0

    def speak(self, text: str, voice: str, pitch: int, rate: int) -> np.ndarray:
        """Samples (float32 in the range of int16) at 16 kHz.

        Raises:
          DataError: no such voice.
        """
        if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise DataError(f"eSpeak NG has no voice '{voice}'; voices are e.g. 'gmw/en-US' or 'gmw/en-US+f3'")
        self._library.espeak_SetParameter(self.RATE, rate, 0)
        self._library.espeak_SetParameter(self.PITCH, pitch, 0)
        encoded = text.encode()
        self._pieces.clear()
        self._library.espeak_Synth(encoded, ctypes.c_size_t(len(encoded) + 1), 0, 0, 0, self.UTF8, None, None)
        self._library.espeak_Synchronize()
        samples = np.frombuffer(b"".join(self._pieces), dtype=np.int16).astype(np.float32)
        return resample(samples, self.rate)


def finish(clean: np.ndarray, setting: Setting) -> np.ndarray:
    """Speech (T,) at its level, between silences, under noise: int16."""
    scale = 10 ** (setting.level_db / 20) / (np.sqrt(np.mean(clean**2)) + 1e-9)
    scale = min(scale, PEAK / np.abs(clean).max())
    speech = np.pad(clean * scale, [round(seconds * SAMPLE_RATE) for seconds in setting.silence])
    power = np.mean((clean * scale) ** 2) / 10 ** (setting.snr_db / 10)
    noisy = speech + np.sqrt(power) * noise(len(speech), COLOURS[setting.colour], setting.noise_seed)
    return np.clip(np.rint(noisy * 32768), -32768, 32767).astype(np.int16)


def noise(length: int, colour: float, seed: int) -> np.ndarray:
    """Noise (length,) float32 of mean power 1 whose spectrum falls as 1 / f ** colour (flat below 50 Hz)."""
    generator = np.random.default_rng(seed)
    if not colour:
        made = generator.standard_normal(length, dtype=np.float32)
    else:
        size = 1 << max(length - 1, 1).bit_length()
        frequencies = np.maximum(np.fft.rfftfreq(size, 1 / SAMPLE_RATE), 50.0)
        spectrum = generator.standard_normal((len(frequencies), 2), dtype=np.float32).view(np.complex64)[:, 0]
        made = np.fft.irfft(spectrum * frequencies ** (-colour / 2), size)[:length].astype(np.float32)
    return made / np.sqrt(np.mean(made**2) + 1e-20)
