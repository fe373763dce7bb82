"""Sets under noise: how loud it is, that it is the same each time, and whose voices the babble has."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner

from asr.cli.main import cli
from asr.dataset import noisy_set
from asr.dataset.augment import babble, seeded, white_noise
from asr.dataset.loader import load_samples
from asr.dataset.manifests import load_cuts
from asr.errors import DataError
from rescore.errors import FormatError

pytest.importorskip("lhotse")
SPEAKERS = 5


@pytest.fixture
def cuts(tmp_path: Path) -> Path:
    """`set_cuts_dev.jsonl.gz`: two utterances of each speaker, a tone of their own pitch."""
    from lhotse import CutSet, MonoCut, Recording, SupervisionSegment

    made = []
    for speaker in range(SPEAKERS):
        for number in range(2):
            utt_id, size = f"s{speaker}-{number}", 4000 + 900 * (2 * speaker + number)
            path = tmp_path / f"{utt_id}.wav"
            soundfile.write(path, 0.1 * np.sin(np.arange(size) * 0.05 * (1 + speaker)), 16000)
            recording = Recording.from_file(path, recording_id=utt_id)
            segment = SupervisionSegment(utt_id, utt_id, 0.0, recording.duration, text="A B", speaker=f"s{speaker}")
            made.append(MonoCut(utt_id, 0.0, recording.duration, 0, recording=recording, supervisions=[segment]))
    CutSet.from_cuts(made).to_file(str(tmp_path / "set_cuts_dev.jsonl.gz"))
    return tmp_path / "set_cuts_dev.jsonl.gz"


def run(cuts: Path, out: Path, *args: object) -> str:
    words = ["add-noise", str(cuts), str(out), *map(str, args)]
    return CliRunner().invoke(cli, words, catch_exceptions=False).stdout.strip()


@pytest.mark.parametrize(("kind", "snr"), [("white", 5), ("babble", 10), ("white", -3)])
def test_the_noise_is_as_loud_as_asked_for(cuts: Path, tmp_path: Path, kind: str, snr: float) -> None:
    made = run(cuts, tmp_path / "out", "--kind", kind, "--snr", snr, "--voices", 4)
    assert made == str(tmp_path / "out" / f"set_cuts_dev-{kind}-{snr}dB.jsonl.gz")
    clean = {cut.id: cut for cut in load_cuts(cuts)}
    noisy = list(load_cuts(Path(made)))
    assert len(noisy) == 2 * SPEAKERS
    for cut in noisy:
        speech, both = load_samples(clean[cut.id]), load_samples(cut)
        noise = both - speech
        assert 10 * np.log10(np.mean(speech**2) / np.mean(noise**2)) == pytest.approx(snr, abs=0.02)
        assert cut.supervisions[0].speaker == clean[cut.id].supervisions[0].speaker
        assert cut.supervisions[0].text == "A B"


def test_the_same_seed_gives_the_same_bytes(cuts: Path, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 1), ("other", 2)):
        run(cuts, tmp_path / name, "--kind", "babble", "--snr", 5, "--seed", seed, "--voices", 3)
    files = sorted((tmp_path / "one" / "audio" / "dev-babble-5dB").iterdir())
    assert len(files) == 2 * SPEAKERS
    for file in files:
        same, other = (tmp_path / name / "audio" / "dev-babble-5dB" / file.name for name in ("two", "other"))
        assert file.read_bytes() == same.read_bytes() != other.read_bytes()


def test_golden_white_noise() -> None:
    """Numbers of numpy's Mersenne twister, which numpy keeps through its versions (NEP 19)."""
    first = white_noise(3, seeded(0, "white", "a-1"))
    assert first.dtype == np.float32
    assert first == pytest.approx([-0.64367491, 0.49562502, 0.59203464], abs=1e-7)
    assert np.std(white_noise(50_000, seeded(1))) == pytest.approx(1.0, abs=0.02)


def test_what_is_there_is_not_made_again(cuts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--kind", "white", "--snr", 5)
    run(cuts, tmp_path, *options)
    (tmp_path / "audio" / "dev-white-5dB" / "s1-0.flac").unlink()
    saved = list[str]()
    real = noisy_set.save_flac
    monkeypatch.setattr(noisy_set, "save_flac", lambda path, *rest: (saved.append(path.name), real(path, *rest)))
    run(cuts, tmp_path, *options)
    assert saved == ["s1-0.flac"]


@pytest.mark.parametrize("kind", ["white", "babble"])
def test_other_audio_under_the_same_ids_is_taken(cuts: Path, tmp_path: Path, kind: str) -> None:
    """Of the utterance itself, and of the voices of its babble."""
    from lhotse import CutSet

    def prepared() -> dict[str, np.ndarray]:
        made = load_cuts(run(cuts, tmp_path, "--kind", kind, "--snr", 5, "--voices", 8))
        return {cut.id: load_samples(cut) for cut in made}

    def changed() -> set[str]:
        before, after = first, prepared()
        return {name for name in before if not np.array_equal(before[name], after[name])}

    every = {f"s{speaker}-{number}" for speaker in range(SPEAKERS) for number in range(2)}
    first = prepared()
    samples, rate = soundfile.read(tmp_path / "s1-0.wav")
    soundfile.write(tmp_path / "s1-0.wav", samples[::-1], rate)  # the same name and size
    assert changed() == ({"s1-0"} if kind == "white" else every - {"s1-1"})
    first = prepared()
    shorter = [cut.truncate(offset=0.01, preserve_id=True) if cut.id == "s2-0" else cut for cut in load_cuts(cuts)]
    CutSet.from_cuts(shorter).to_file(str(cuts))
    assert changed() == ({"s2-0"} if kind == "white" else every - {"s2-1"})


def test_ids_differ(cuts: Path, tmp_path: Path) -> None:
    with gzip.open(cuts, "at") as stream:
        stream.write(json.dumps(next(iter(load_cuts(cuts))).to_dict()) + "\n")
    with pytest.raises(DataError, match=r"set_cuts_dev.jsonl.gz: found 2 cuts with the id 's0-0', expected ids that"):
        run(cuts, tmp_path, "--kind", "white", "--snr", 5)


def test_babble_is_of_other_speakers(cuts: Path) -> None:
    every = list(load_cuts(cuts))
    options = noisy_set.NoiseOptions("babble", 5.0, voices=8)
    for cut in every:
        others = [p for p, other in enumerate(every) if other.supervisions[0].speaker != cut.supervisions[0].speaker]
        drawn = random.Random(f"0 babble {cut.id}").sample(others, 8)  # the plain way
        assert noisy_set._Voices(every, options)(every.index(cut)) == drawn
        chosen = [every[place].supervisions[0].speaker for place in drawn]
        assert len(chosen) == 8 and cut.supervisions[0].speaker not in chosen
    with pytest.raises(DataError, match="8 utterances of others than the speaker of s0-0, expected 9"):
        noisy_set._Voices(every, noisy_set.NoiseOptions("babble", 5.0, voices=9))(0)


def test_voices_of_babble_are_equally_loud() -> None:
    quiet, loud = np.full(100, 0.01, np.float32), np.full(80, 0.9, np.float32)
    assert babble(250, [quiet, loud, np.zeros(9, np.float32)], seeded(1)) == pytest.approx(2.0)


def test_voices_of_babble_begin_at_random_places() -> None:
    ramp = np.arange(1, 6, dtype=np.float32)
    places = np.arange(12) + seeded(3).randint(5)
    assert babble(12, [ramp], seeded(3)) == pytest.approx(ramp[places % 5] / np.sqrt(11))  # its power: 55 / 5
    begins = {babble(12, [ramp], seeded(seed))[0] for seed in range(30)}
    assert len(begins) == 5


def test_what_would_be_clipped_is_made_quieter_as_a_whole() -> None:
    loud = np.array([0.5, -2.0, 1.0], dtype=np.float32)
    assert np.array_equal(noisy_set._within_range(loud), loud / 2)
    assert np.array_equal(noisy_set._within_range(loud / 2), loud / 2)


def test_the_audio_that_cannot_be_loaded_is_named(cuts: Path, tmp_path: Path) -> None:
    """That of a voice of the babble is not taken for the utterance's own."""
    (tmp_path / "s0-0.wav").write_bytes(b"no audio")
    soundfile.write(tmp_path / "s1-0.wav", np.full(4000, np.nan, np.float32), 16000, subtype="FLOAT")
    words = ["add-noise", str(cuts), str(tmp_path), "--kind", "babble", "--snr", "5", "--voices", "1"]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    every = list(load_cuts(cuts))
    voices = noisy_set._Voices(every, noisy_set.NoiseOptions("babble", 5.0, voices=1))
    drawn = {cut.id: {cut.id, every[voices(place)[0]].id} for place, cut in enumerate(every)}
    lost = {name for name, both in drawn.items() if both & {"s0-0", "s1-0"}}
    problem = f"s0-0: audio of s0-0 cannot be loaded: {tmp_path / 's0-0.wav'}: damaged"
    assert f"{len(lost)} utterances left out, {noisy_set.UNUSABLE} (s0-0, " in result.stderr
    assert len(lost) > 2 and problem in result.stderr and result.stderr.count("left out") == 1
    made = {cut.id for cut in load_cuts(tmp_path / "set_cuts_dev-babble-5dB.jsonl.gz")}
    assert made == drawn.keys() - lost
    with pytest.raises(DataError, match="audio of s1-0 has a sample that is NaN or infinite"):
        noisy_set._samples(every[[cut.id for cut in every].index("s1-0")])


@pytest.mark.parametrize("snr", ["-5000", "1e30"])
@pytest.mark.parametrize("line", ["add-noise --kind white --snr {} {} {}", "synthesise --snr {} 30 {} {}"])
def test_ratios_that_audio_cannot_have(cuts: Path, tmp_path: Path, line: str, snr: str) -> None:
    """Beyond what floats hold there were tracebacks."""
    result = CliRunner().invoke(cli, line.format(snr, cuts, tmp_path / "out").split())
    assert result.exit_code == 2 and "is not in the range -100<=x<=100" in result.output


def test_audio_of_commands(cuts: Path, tmp_path: Path) -> None:
    """Is taken where that is allowed, as the error says."""
    lines = [json.loads(line) for line in gzip.decompress(cuts.read_bytes()).splitlines()]
    for line in lines:
        line["recording"]["sources"][0] |= {"type": "command", "source": f"cat {tmp_path / line['id']}.wav"}
    piped = tmp_path / "piped_cuts_dev.jsonl"
    piped.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, args in (("plain", []), ("piped", ["--allow-pipes"])):
        run(cuts if name == "plain" else piped, tmp_path / name, "--kind", "white", "--snr", 5, *args)
    with pytest.raises(FormatError, match="--allow-pipes alone"):
        run(piped, tmp_path / "out", "--kind", "white", "--snr", 5)
    files = [tmp_path / name / "audio" / "dev-white-5dB" / "s0-0.flac" for name in ("plain", "piped")]
    samples = [soundfile.read(file)[0] for file in files]
    assert np.array_equal(*samples)
