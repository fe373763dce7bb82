"""Tiny corpora in the layouts of the real ones: texts about as uneven as a language, speech that is tones."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import random
import zipfile
from pathlib import Path

import numpy as np

SENTENCES = [
    "THE CAT SAT",
    "A DOG ATE",
    "THE MAN RAN",
    "A CAT RAN",
    "THE DOG SAT",
    "A MAN ATE",
    "THE CAT RAN",
    "A DOG SAT",
]
MANDARIN = ["而对楼市T恤", "对楼市", "楼市成交", "成交对T恤"]


def text(count: int, seed: int = 1, upper: bool = True) -> str:
    """So many sentences of words that are about as uneven as those of a language."""
    rng = random.Random(seed)
    words = [first + second for first in "bdfgklmnprst" for second in ("a", "e", "i", "o", "u", "an", "er", "in", "on")]
    lines = (
        " ".join(words[int(len(words) * rng.random() ** 3)] for _ in range(rng.randint(2, 9))) for _ in range(count)
    )
    joined = "".join(f"{line}\n" for line in lines)
    return joined.upper() if upper else joined


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def write_parts(folder: Path, name: str = "{}.txt", upper: bool = True) -> Path:
    """Training, validation and test text."""
    for seed, (part, count) in enumerate({"train": 300, "valid": 20, "test": 20}.items()):
        write(folder / name.format(part), text(count, seed, upper))
    return folder


def kaldi(content: str) -> str:
    return "".join(f"utt-{number} {line}\n" for number, line in enumerate(content.splitlines()))


def books(folder: Path, parts: dict[str, str]) -> Path:
    """`{train,valid,test}.txt.xz`."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, content in parts.items():
        (folder / f"{part}.txt.xz").write_bytes(lzma.compress(content.encode()))
    return folder


def books_and_transcripts(folder: Path) -> Path:
    """What the mini configuration of librispeech/LM reads, `--dl-dir` and `--text-dir` in one."""
    books(folder, {part: text(400 if part == "train" else 15) for part in ("train", "valid", "test")})
    write(folder / "text" / "train-clean-100.txt", kaldi(text(30)))
    return folder


def librispeech_texts(asr_data: Path, folder: Path) -> Path:
    """The transcripts of librispeech/ASR, and the files of openslr.org/resources/11 in `folder`."""
    for part in ("train-clean-100", "train-other-500", "dev-clean", "dev-other", "test-clean", "test-other"):
        write(asr_data / f"librispeech_text_{part}", kaldi(text(200 if "train" in part else 10, len(part))))
    with gzip.open(folder / "librispeech-lm-norm.txt.gz", "wt") as stream:
        stream.write(text(200))
    write(folder / "librispeech-vocab.txt", "\n".join(sorted({*text(400).split(), "UNSEEN"})))
    return folder


def wikitext2(folder: Path) -> str:
    """The archive; gives the content of wikitext-2.sha1 for it."""
    sums = ""
    with zipfile.ZipFile(folder / "wikitext-2-v1.zip", "w") as archive:
        for seed, part in enumerate(("train", "valid", "test")):
            content = " \n = Title = \n \n" + text(300, seed, upper=False)
            archive.writestr(f"wikitext-2/wiki.{part}.tokens", content)
            sums += f"{hashlib.sha1(content.encode()).hexdigest()}  wiki.{part}.tokens\n"
    return sums


def swbd(folder: Path) -> list[object]:
    """Switchboard's, Fisher's and eval2000's transcripts; gives the options that name them."""

    def lines(count: int, seed: int, form: str) -> str:
        return "".join(form.format(number, line) for number, line in enumerate(text(count, seed, False).splitlines()))

    write(folder / "swb/20/2001/sw2001A-ms98-a-trans.text", lines(150, 1, "sw2001A-ms98-a-{:04} 0.0 1.5 {} [noise]\n"))
    write(folder / "fsh/trans/000/fe_03_00001.txt", "# comment\n\n" + lines(150, 2, "{}.0 9999.5 A: (( {} ))\n"))
    stm = lines(10, 3, "sw_4390 A sw_4390_A {} 9999 <O> {}\n") + lines(3, 4, "en_4156 A en_4156_A {} 9999 <O> {}\n")
    write(folder / "eval/reference/hub5e00.english.000405.stm", stm)
    return ["--swbd-dir", folder / "swb", "--fisher-dirs", folder / "fsh", "--eval2000-dir", folder / "eval"]


def pitt(folder: Path) -> Path:
    for speaker in range(10):
        chat = "".join(f"*PAR:\t{line} .\n" for line in text(20, speaker, False).splitlines())
        write(folder / f"Control/cookie/00{speaker}-0.cha", "@Begin\n" + chat + "@End\n")
    return folder


def tone(path: Path, number: int) -> None:
    """0.4 s, 16 kHz."""
    import soundfile

    path.parent.mkdir(parents=True, exist_ok=True)
    noise = 0.02 * np.random.default_rng(number).standard_normal(6400)
    soundfile.write(path, 0.3 * np.sin(np.arange(6400) * 0.1 * (1 + number % 5)) + noise, 16000)


def librispeech(folder: Path, parts: dict[str, int]) -> Path:
    """`LibriSpeech/PART` with so many speakers, two sentences each; speakers are 10, 11 and so on through the parts."""
    for speaker, part in enumerate(part for part, count in parts.items() for _ in range(count)):
        name, lines = 10 + speaker, []
        for number in range(2):
            utt_id = f"{name}-7-000{number}"
            tone(folder / "LibriSpeech" / part / f"{name}" / "7" / f"{utt_id}.flac", 2 * speaker + number)
            lines.append(f"{utt_id} {SENTENCES[(2 * speaker + number) % len(SENTENCES)]}\n")
        write(folder / "LibriSpeech" / part / f"{name}" / "7" / f"{name}-7.trans.txt", "".join(lines))
    return folder


def musan(folder: Path) -> Path:
    for number, part in enumerate(("music", "noise", "speech")):
        tone(folder / "musan" / part / "here" / f"{part}.wav", number)
    write(folder / "musan" / "music" / "here" / "ANNOTATIONS", "music genre N someone\n")
    return folder


def aishell(folder: Path) -> Path:
    """AISHELL-1 with one word boundary in each sentence."""
    lines = []
    for part in ("train", "dev", "test"):
        for number, sentence in enumerate(MANDARIN):
            utt_id = f"BAC009{part}{number}"
            tone(folder / "aishell" / "data_aishell" / "wav" / part / f"S{number}" / f"{utt_id}.wav", number)
            lines.append(f"{utt_id} {sentence[:2]} {sentence[2:]}\n")
    write(folder / "aishell/data_aishell/transcript/aishell_transcript_v0.8.txt", "".join(lines))
    return folder
