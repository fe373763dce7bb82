"""Which recording an utterance is of: ids, expressions, files of Kaldi and lhotse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rescore.errors import FormatError, UsageError
from rescore.types import NbestList
from rescore.workflows.recordings import Recordings, find_recordings


def named(*ids: str) -> list[NbestList]:
    return [NbestList(utt_id, []) for utt_id in ids]


def in_order(found: Recordings) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for utt_id in sorted(found.names, key=lambda utt_id: found.places[utt_id]):
        result.setdefault(found.names[utt_id], []).append(utt_id)
    return result


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        # LibriSpeech
        (
            ["84-121123-0010", "84-121123-0009", "84-121550-0000", "174-50561-0000", "84-121550-0001"],
            {
                "84-121123": ["84-121123-0009", "84-121123-0010"],
                "84-121550": ["84-121550-0000", "84-121550-0001"],
                "174-50561": ["174-50561-0000"],
            },
        ),
        (["talk_10", "talk_9", "x.1"], {"talk": ["talk_9", "talk_10"], "x": ["x.1"]}),
        # Kaldi's Switchboard and AMI
        (
            ["sw02001-A_002736-002893", "sw02001-A_000098-001156", "sw02001-B_000000-000100"],
            {
                "sw02001-A": ["sw02001-A_000098-001156", "sw02001-A_002736-002893"],
                "sw02001-B": ["sw02001-B_000000-000100"],
            },
        ),
        (
            ["AMI_EN2001a_H00_MEE068_0000557_0000594", "AMI_EN2001a_H00_MEE068_0010557_0010594"],
            {
                "AMI_EN2001a_H00_MEE068": [
                    "AMI_EN2001a_H00_MEE068_0000557_0000594",
                    "AMI_EN2001a_H00_MEE068_0010557_0010594",
                ]
            },
        ),
    ],
)
def test_ids(ids: list[str], expected: dict[str, list[str]]) -> None:
    assert in_order(find_recordings(named(*ids))) == expected


def test_ids_that_tell_nothing() -> None:
    with pytest.raises(UsageError, match=r"the id 'first' does not end in a number, .*; say which recording an"):
        find_recordings(named("a-1", "first"))
    with pytest.raises(UsageError, match="each utterance would be a recording of its own; say which recording"):
        find_recordings(named("a-1", "b-1"))
    assert in_order(find_recordings(named("a-1"))) == {"a": ["a-1"]}


def test_an_expression() -> None:
    assert in_order(find_recordings(named("x1y", "x2y", "z1y"), "^[a-z]")) == {"x": ["x1y", "x2y"], "z": ["z1y"]}
    assert in_order(find_recordings(named("1x", "2x", "2z"), "[0-9]([a-z])")) == {"x": ["1x", "2x"], "z": ["2z"]}
    with pytest.raises(UsageError, match=r"--recording-of '\^q' finds nothing in the id 'x1y'"):
        find_recordings(named("x1y"), "^q")
    with pytest.raises(UsageError, match=r"--recording-of '\(' is no regular expression"):
        find_recordings(named("x1y"), "(")
    with pytest.raises(UsageError, match="not both"):
        find_recordings(named("x1y"), "x", Path("segments"))


def test_the_field_of_the_lists() -> None:
    lists = [NbestList("b", [], recording="r"), NbestList("a", [], recording="r")]
    assert in_order(find_recordings(lists)) == {"r": ["a", "b"]}
    with pytest.raises(UsageError, match="the id 'b' does not end in a number"):
        find_recordings([*lists, NbestList("c", [])])


FILES = {
    "utt2spk": "b r\na r\nc s\nother t\n",
    "segments": "a r 10.5 12\nb r 2.25 4\nc s 0 1\n",
    "supervisions.jsonl": "".join(
        json.dumps({"id": utt_id, "recording_id": name, "start": start, "duration": 1.0}) + "\n"
        for utt_id, name, start in (("a", "r", 10.5), ("b", "r", 2.25), ("c", "s", 0))
    ),
    "cuts.jsonl": "".join(
        json.dumps({"id": utt_id, "start": start, "duration": 1.0, "recording": {"id": name}, "type": "MonoCut"}) + "\n"
        for utt_id, name, start in (("a", "r", 10.5), ("b", "r", 2.25), ("c", "s", 0))
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FILES[name])
    by_ids = name == "utt2spk"
    found = find_recordings(named("a", "b", "c"), None, tmp_path / name)
    assert in_order(found) == {"r": ["a", "b"] if by_ids else ["b", "a"], "s": ["c"]}
    assert found.how == name
    with pytest.raises(FormatError, match=r"2 of 3 utterances are not there \(x, y\)"):
        find_recordings(named("a", "x", "y"), None, tmp_path / name)


@pytest.mark.parametrize(
    "line", ["a", "a r 1", "a r one 2", "a r 1 two", "{}", '{"id": "a"}', '{"id": "a", "recording_id": "r"}', "{"]
)
def test_damaged_files(tmp_path: Path, line: str) -> None:
    path = tmp_path / "segments"
    path.write_text(f"b r 1 2\n{line}\n")
    with pytest.raises(FormatError, match=r"segments:2: found '.*', expected 'UTTERANCE RECORDING'"):
        find_recordings(named("a"), None, path)


@pytest.mark.parametrize("line", ["a s 1 2", "a r 3 4", "a s"])
def test_a_file_that_says_two_things_of_an_utterance(tmp_path: Path, line: str) -> None:
    """The last one counted."""
    path = tmp_path / "segments"
    path.write_text(f"a r 1 2\nb r 2 3\na r 1 2\n{line}\n")
    with pytest.raises(FormatError, match=r"segments:4: utterance 'a' stands there a second time, with another"):
        find_recordings(named("a", "b"), None, path)
    path.write_text("a r 1 2\nb r 2 3\na r 1 2\n")
    assert in_order(find_recordings(named("a", "b"), None, path)) == {"r": ["a", "b"]}


def test_the_identity_is_of_recordings_and_order(tmp_path: Path) -> None:
    (tmp_path / "segments").write_text("a-1 a 1 2\na-2 a 2 3\n")
    (tmp_path / "turned").write_text("a-1 a 2 3\na-2 a 1 2\n")
    default, regex = find_recordings(named("a-1", "a-2")), find_recordings(named("a-1", "a-2"), "^a")
    files = [find_recordings(named("a-1", "a-2"), None, tmp_path / name) for name in ("segments", "turned")]
    assert default.identity == regex.identity
    assert len({default.identity, *(found.identity for found in files)}) == 3
