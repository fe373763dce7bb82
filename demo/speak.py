"""Speech for the demo: SVOX Pico's two English voices at several pitches and rates, with light noise."""

from __future__ import annotations

import random
import wave
from pathlib import Path

import numpy as np

SAMPLE_RATE = 16000
VOICES = ("en-US", "en-GB")
PITCHES = (80, 90, 100, 110, 120)
RATES = (90, 100, 110)
NOISE = 30.0  # standard deviation of the white noise, of 32768


def speak_all(texts: dict[str, str], folder: Path, seed: int) -> None:
    """Writes `folder/UTT.wav` (16 kHz, 16 bit, one channel) for every text."""
    from ttspico import TtsEngine

    folder.mkdir(parents=True, exist_ok=True)
    engines = {voice: TtsEngine(voice) for voice in VOICES}
    for utt_id, text in texts.items():
        draw = random.Random(f"{seed} {utt_id}")
        engine = engines[draw.choice(VOICES)]
        engine.pitch, engine.rate = draw.choice(PITCHES), draw.choice(RATES)
        noise = np.random.default_rng(draw.getrandbits(32))
        write_wav(folder / f"{utt_id}.wav", add_noise(engine.speak(text), noise))


def add_noise(samples: bytes, noise: np.random.Generator) -> bytes:
    """White noise on 16-bit samples."""
    clean = np.frombuffer(samples, dtype=np.int16).astype(np.float64)
    noisy = clean + noise.normal(0.0, NOISE, len(clean))
    return np.clip(np.rint(noisy), -32768, 32767).astype(np.int16).tobytes()


def write_wav(path: Path, samples: bytes) -> None:
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(SAMPLE_RATE)
        out.writeframes(samples)


def duration(path: Path) -> float:
    """Seconds of a wav file."""
    with wave.open(str(path), "rb") as wav:
        return wav.getnframes() / wav.getframerate()
