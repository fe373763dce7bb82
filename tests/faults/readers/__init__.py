"""Every reader with a small valid input: what `tests.faults.fuzz` damages."""

from __future__ import annotations

from tests.faults.damage import Target
from tests.faults.readers.lattices import LATTICE_TARGETS
from tests.faults.readers.lists import LIST_TARGETS
from tests.faults.readers.lms import LM_TARGETS
from tests.faults.readers.recognisers import ASR_TARGETS
from tests.faults.readers.texts import TEXT_TARGETS

TARGETS: list[Target] = [*LIST_TARGETS, *LATTICE_TARGETS, *TEXT_TARGETS, *LM_TARGETS, *ASR_TARGETS]

# What the readers of a format are called, or how their names begin.
FORMATS = {
    "JSON lines": ("jsonl",),
    "mlm-scoring's lists": ("mlm",),
    "NeMo's lists": ("nemo",),
    "SRILM's lists": ("srilm",),
    "ESPnet's lists": ("espnet",),
    "lattice-rescore's lists": ("lattice-rescore",),
    "Kaldi's lists": ("kaldi ",),
    "SLF": ("slf",),
    "Kaldi's lattices, binary": ("kaldi-lat binary", "kaldi-lat.gz", "kaldi-lat scp"),
    "Kaldi's lattices, text": ("kaldi-lat text", "kaldi-lat words"),
    "OpenFst, text": ("openfst",),
    "OpenFst, binary": ("G.fst",),
    "PFSG": ("pfsg",),
    "k2": ("k2",),
    "confusion networks": ("confusion",),
    "words tables": ("words.txt",),
    "Kaldi's text": ("Kaldi text",),
    "transcripts": ("transcripts", "recogs"),
    "texts and counts": ("sentences", "counts", "LM word list"),
    "weights.json": ("weights",),
    "YAML": ("YAML",),
    "ARPA": ("ARPA",),
    "KenLM's binaries": ("KenLM",),
    "folders of LMs": ("LM ",),
    "checkpoints of icefall, pytorchnn, ESPnet, SpeechBrain": (
        *("icefall LM", "pytorchnn LM", "ESPnet LM", "SpeechBrain LM"),
    ),
    "trainings": ("LM training",),
    "recognisers": ("asr",),
    "manifests": ("cuts", "supervisions", "segments", "speakers"),
    "Kaldi's data folders": ("Kaldi folder",),
    "audio": ("audio",),
    "matrices": ("Kaldi matrix", "Kaldi text matrix", "npy"),
    "shares and journals": ("shares", "plan of a run", "decoding journal"),
    "Moonshine and Whisper": ("tokenizer.bin", "Whisper"),
}


def format_of(name: str) -> str:
    """The format that the reader `name` is for: that with the longest beginning of it.

    Raises:
      StopIteration: there is none.
    """
    beginnings = sorted(
        ((start, one) for one, starts in FORMATS.items() for start in starts), key=lambda each: -len(each[0])
    )
    return next(one for start, one in beginnings if name.startswith(start))
