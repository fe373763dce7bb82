"""Files of `torch.save` from others: nothing in them is run, and neither sizes nor bits are trusted."""

from __future__ import annotations

import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lm_zoo import safe_unpickle as torch_file
from lm_zoo.errors import ModelError
from lm_zoo.safe_unpickle import read_torch_file

SHOWN = "made-by-a-file"


class Runs:
    """Pickles as a call of `os.system`."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.target}",)


def save_pickle(path: Path, data: bytes, **members: bytes) -> Path:
    """An archive like that of torch.save with this pickle."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", data)
        for name, content in members.items():
            archive.writestr(f"x/{name}", content)
    return path


def stored_tensor(size: bytes, shape: bytes, stride: bytes) -> bytes:
    """A pickle of a float tensor over the storage `data/0`; arguments are opcodes."""
    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu" + size + b"tQ"
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + shape + stride + b"\x89}tR."


def test_what_torch_saves_is_read(tmp_path: Path) -> None:
    base = torch.arange(12.0)
    contents = {
        "view": base.view(3, 4).t()[1:],
        "base": base,
        "parameter": nn.Parameter(torch.ones(2)),
        "state": nn.Linear(2, 3).state_dict(),
        **{str(kind): torch.ones(3).to(kind) for kind in torch_file.TensorUnpickler.STORAGES.values()},
        "none": torch.zeros(0, 4),
        "plain": [1, 2.5, "text", None, True, (3,), {"a": []}],
        "path": PurePosixPath("exp"),
    }
    torch.save(contents, tmp_path / "x.pt")
    found = read_torch_file(tmp_path / "x.pt")
    assert found.keys() == contents.keys() and isinstance(found["state"], OrderedDict)
    for name, value in contents.items():
        if isinstance(value, Tensor):
            assert torch.equal(found[name], value) and found[name].dtype == value.dtype, name
    assert torch.equal(found["state"]["weight"], contents["state"]["weight"]) and found["plain"] == contents["plain"]
    with pytest.raises(ModelError, match=r"pathlib.*PurePosixPath in the file, expected tensors"):
        read_torch_file(tmp_path / "x.pt", strict=True)


@pytest.mark.parametrize("strict", [False, True])
def test_no_code_is_run(tmp_path: Path, strict: bool) -> None:
    target = tmp_path / SHOWN
    torch.save({"model": {"w": torch.ones(1)}, "x": Runs(target)}, tmp_path / "reduce.pt")
    plain = pickle.dumps({"x": Runs(target)}, protocol=2)
    save_pickle(tmp_path / "plain.pt", plain)
    (tmp_path / "alone.pt").write_bytes(plain)
    call = f"touch {target}"
    save_pickle(tmp_path / "inst.pt", f"(S'{call}'\nios\nsystem\n.".encode())
    save_pickle(tmp_path / "object.pt", b"\x80\x02(cos\nsystem\n" + f"S'{call}'\no.".encode())
    save_pickle(tmp_path / "new.pt", b"\x80\x02cos\nsystem\n" + f"(S'{call}'\nt\x81.".encode())
    for file in sorted(tmp_path.glob("*.pt")):
        try:
            read_torch_file(file, strict=strict)
        except ModelError:
            continue
        assert not strict, file
    assert not target.exists()


class Writes(nn.Module):
    """A TorchScript module whose `__setstate__` runs when it is loaded."""

    @torch.jit.export
    def __getstate__(self) -> tuple[int, bool]:
        return 1, True

    @torch.jit.export
    def __setstate__(self, state: tuple[int, bool]) -> None:
        self.training = state[1]
        raise ValueError("the file's code was run")

    def forward(self, x: Tensor) -> Tensor:
        return x


def test_torchscript_is_refused_by_its_file_list(tmp_path: Path) -> None:
    torch.jit.script(Writes()).save(str(tmp_path / "jit.pt"))  # type: ignore[no-untyped-call]
    with pytest.raises(ModelError, match=r"jit.pt: a TorchScript file, expected what torch.save writes"):
        read_torch_file(tmp_path / "jit.pt")


def test_state_of_functions_and_classes_stays_theirs(tmp_path: Path) -> None:
    """BUILD on a function that a file may name would change its defaults for the files that follow."""
    state = b"N}X\x0c\x00\x00\x00__defaults__K\x01\x85s\x86b"
    for name in (b"ctorch._utils\n_rebuild_tensor_v2\n", b"cos\nsystem\n", b"ccollections\nOrderedDict\n"):
        read_torch_file(save_pickle(tmp_path / "x.pt", b"\x80\x02" + name + state + b"."))
    assert torch_file._tensor.__defaults__ is None and not hasattr(torch_file._Ignored, "__defaults__")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02}r\xf0\xff\xff\xff.",  # object number 4 billion: a table of 32 GB in C
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"x.",  # a text of a terabyte
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 36) + b"x.",  # a byte array of 64 GB
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b".",  # a frame
        stored_tensor(b"\x8a\x05\x00\x00\x00\x00\x10", b"K\x02\x85", b"K\x01\x85"),  # a storage of 2^36 numbers
        stored_tensor(b"K\x02", b"\x8a\x05\x00\x00\x00\x00\x10\x85", b"K\x00\x85"),  # stride 0: 2^36 elements
        stored_tensor(b"K\x02", b"K\x05\x85", b"K\x01\x85"),  # more than there are
        b"I" + b"9" * 5000 + b"\n.",
        b"", b".", b"\x80\x02}", b"\x80\x02t.", b"\x80\x02\x85.", b"h\x00.", b"(.", b"\x80\x63.",
    ],
)  # fmt: skip
def test_sizes_in_a_file_are_not_trusted(tmp_path: Path, data: bytes, limit_memory: None) -> None:
    path = save_pickle(tmp_path / "x.pt", data, **{"data/0": bytes(8)})
    try:
        found = read_torch_file(path)
    except ModelError as error:
        assert "x.pt: not a file of torch.save, or damaged or truncated" in str(error)
    else:
        assert found == {}


@pytest.fixture
def limit_memory() -> Any:
    """At most 2 GB more than there is now, so that an allocation by a size in the file fails."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (2 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_compressed_members_are_refused(tmp_path: Path) -> None:
    """As of a bomb; torch.save stores."""
    with zipfile.ZipFile(tmp_path / "x.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", pickle.dumps("a" * 100_000))
    with pytest.raises(ModelError, match=r"'data.pkl' is compressed"):
        read_torch_file(tmp_path / "x.pt")


def test_every_flipped_bit_is_found_or_harmless(tmp_path: Path) -> None:
    """The zip has a checksum of each member; a bit in padding or in dates changes nothing."""
    tensor = torch.arange(6.0)
    torch.save({"w": tensor, "n": 3}, tmp_path / "x.pt")
    data = (tmp_path / "x.pt").read_bytes()
    refused = 0
    for place in range(0, 8 * len(data), 23):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        (tmp_path / "y.pt").write_bytes(changed)
        try:
            found = read_torch_file(tmp_path / "y.pt")
        except ModelError:
            refused += 1
        else:
            assert found.keys() == {"w", "n"} and torch.equal(found["w"], tensor) and found["n"] == 3, place
    assert refused > len(data) // 20


def nested(depth: int, one: bytes) -> bytes:
    """A dictionary with a key of tuples in tuples; `one` puts a tuple around what is on the stack."""
    return b"\x80\x02}K\x00" + one * depth + b"K\x01s."


DOUBLED = b"q\x01h\x01\x86"  # (x, x)


@pytest.mark.parametrize(("depth", "one"), [(10**6, b"\x85"), (60, DOUBLED), (10**4, DOUBLED)])
def test_tuples_that_cannot_be_hashed_are_refused(tmp_path: Path, depth: int, one: bytes) -> None:
    """A hash of nested tuples ended the process; one of tuples that hold another twice, and so on, does not end."""
    with pytest.raises(ModelError, match="more than 1000 tuples in one another"):
        read_torch_file(save_pickle(tmp_path / "x.pt", nested(depth, one)))


def test_some_tuples_in_tuples_are_read(tmp_path: Path) -> None:
    shapes = tuple((index, (index,)) for index in range(400))
    torch.save({"shapes": shapes, shapes[3]: [shapes] * 3, "flat": tuple(range(5000))}, tmp_path / "x.pt")
    found = read_torch_file(tmp_path / "x.pt")
    assert found == {"shapes": shapes, shapes[3]: [shapes] * 3, "flat": tuple(range(5000))}
