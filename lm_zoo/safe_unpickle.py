"""Reading what `torch.save` wrote without running any code that the file may name.

The format is a zip: `NAME/data.pkl` holds the objects, `NAME/data/KEY` the numbers of a tensor's storage.  It is read
here without `torch.load`: even with `weights_only=True` that hands TorchScript files to `torch.jit.load`, which runs
what is in them, and torch 1.13 overwrites the methods of a `pickle_module` that is passed.
"""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import torch
from torch import Tensor

from lm_zoo.errors import ModelError
from lm_zoo.files import save_tensors, write_bytes
from lm_zoo.model_folder import check_finite

BEFORE_1_6 = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)  # what older files, which are no zip, begin with
WITHIN = 1000  # tuples within a tuple, each as often as it is there: of a hash of 50,000 nested ones Python dies
Classes = Mapping[tuple[str, str], type]  # (module, name) in the file -> what is made instead


class _Ignored:
    """Stands for every object of a file that is not a tensor or a plain container; takes whatever is done to it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __call__(self, *args: Any, **kwargs: Any) -> _Ignored:
        return self

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def append(self, item: Any) -> None: ...

    def extend(self, items: Any) -> None: ...


def _tensor(storage: Any, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Any:
    """A view of a storage `(n,)`, which has no more elements than it (as a stride of 0 could make)."""
    if not isinstance(storage, Tensor):
        return _Ignored()
    tensor = storage.as_strided(shape, stride, offset)
    if tensor.numel() > storage.numel():
        raise ValueError(f"a tensor of {tensor.numel()} elements over {storage.numel()} numbers")
    return tensor


def _parameter(data: Any, *_: Any) -> Any:
    return data


class TensorUnpickler(pickle._Unpickler):
    """Makes tensors and plain containers; no other class or function that a file names is ever looked up.

    The state of objects (`__setstate__`) is dropped but for those of `classes`.  This is the unpickler in Python:
    that in C takes gigabytes for a file of a few bytes that numbers its objects high.
    """

    STORAGES: ClassVar[dict[str, torch.dtype]] = {
        "FloatStorage": torch.float32,
        "DoubleStorage": torch.float64,
        "HalfStorage": torch.float16,
        "BFloat16Storage": torch.bfloat16,
        "LongStorage": torch.int64,
        "IntStorage": torch.int32,
        "ShortStorage": torch.int16,
        "CharStorage": torch.int8,
        "ByteStorage": torch.uint8,
        "BoolStorage": torch.bool,
    }
    KNOWN: ClassVar[dict[tuple[str, str], Any]] = {
        ("collections", "OrderedDict"): OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): _tensor,
        ("torch._utils", "_rebuild_parameter"): _parameter,
        **{("torch", name): dtype for name, dtype in STORAGES.items()},
    }
    dispatch: ClassVar[dict[int, Callable[..., None]]] = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined]

    def __init__(self, archive: Archive, classes: Classes, strict: bool) -> None:
        super().__init__(io.BytesIO(archive.objects()))
        self.archive, self.classes, self.strict = archive, classes, strict
        self.storages: dict[str, Any] = {}
        self.weights: dict[int, int] = {}  # of tuples that hold tuples, by id: how many they are

    def find_class(self, module: str, name: str) -> Any:
        found = self.KNOWN.get((module, name)) or self.classes.get((module, name))
        if found is None and self.strict:
            raise pickle.UnpicklingError(f"{module}.{name} in the file, expected tensors, numbers and text alone")
        return found or _Ignored

    def persistent_load(self, pid: Any) -> Any:
        """The numbers of a storage, 1-D; `pid` is ("storage", dtype, key, device, how many)."""
        _, dtype, key, _, size = pid
        if not isinstance(dtype, torch.dtype):
            return _Ignored()
        if key not in self.storages:
            self.storages[key] = self.archive.numbers(key, dtype, size)
        return self.storages[key]

    def load_build(self) -> None:
        state, made = self.stack.pop(), self.stack[-1]  # type: ignore[attr-defined]
        if type(made) in self.classes.values():
            made.__setstate__(state)

    dispatch[pickle.BUILD[0]] = load_build

    def weigh(self) -> None:
        """Counts the tuples in the one made last; all are made here, so none has the id of one that is gone."""
        made = self.stack[-1]  # type: ignore[attr-defined]
        weight = 1 + sum(self.weights.get(id(item), 1) for item in made if type(item) is tuple)
        if weight > WITHIN:
            raise pickle.UnpicklingError(f"more than {WITHIN} tuples in one another")
        self.weights.pop(id(made), None)
        if weight > 1:
            self.weights[id(made)] = weight


def _weighed(load: Callable[[TensorUnpickler], None]) -> Callable[[TensorUnpickler], None]:
    def load_and_weigh(self: TensorUnpickler) -> None:
        load(self)
        self.weigh()

    return load_and_weigh


for _opcode in (pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3):
    TensorUnpickler.dispatch[_opcode[0]] = _weighed(TensorUnpickler.dispatch[_opcode[0]])


class Archive:
    """The zip of a file of `torch.save`, whose checksums are checked and whose sizes are not trusted."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb") as stream:
            if stream.read(len(BEFORE_1_6)) == BEFORE_1_6:
                raise ModelError(f"{path}: written by a torch before 1.6; load it and save it again with a newer one")
        self.zip = zipfile.ZipFile(path)
        names = self.zip.namelist()
        found = [name for name in names if name.endswith("/data.pkl")]
        if any(name.endswith("/constants.pkl") or "/code/" in name for name in names):
            self.zip.close()
            raise ModelError(f"{path}: a TorchScript file, expected what torch.save writes (pretrained.pt)")
        if len(found) != 1 or len(set(names)) < len(names):
            self.zip.close()
            raise ValueError("no data.pkl in it, or a name twice")
        self.room = os.path.getsize(path)
        self.folder = found[0].removesuffix("data.pkl")
        if f"{self.folder}byteorder" in names and self.read("byteorder") != b"little":
            raise ValueError("its numbers are big-endian")

    def read(self, name: str) -> bytes:
        """A member, which `torch.save` stores as it is; a wrong checksum raises BadZipFile."""
        info = self.zip.getinfo(self.folder + name)
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ValueError(f"'{name}' is compressed, which torch.save never does")
        if info.header_offset + info.file_size > self.room:
            raise ValueError(f"'{name}' would have {info.file_size} bytes, the file has {self.room}")
        return self.zip.read(info)

    def objects(self) -> bytes:
        """The pickle."""
        return self.read("data.pkl")

    def numbers(self, key: str, dtype: torch.dtype, size: int) -> Tensor:
        """A storage, `(size,)`."""
        data = bytearray(self.read(f"data/{key}"))
        return torch.frombuffer(data, dtype=dtype, count=size) if size else torch.zeros(0, dtype=dtype)


def read_torch_file(path: Path, classes: Classes | None = None, strict: bool = False) -> Any:
    """The object of a file of `torch.save`, on the CPU.

    Args:
      classes: more that the file may name; they are made without arguments and get their `__setstate__`.
      strict: refuse a file that names anything else; else such objects are left out (icefall's paths, optimizers).
    Raises:
      ModelError: no such file, not written by `torch.save` (of torch 1.6 or later), damaged, truncated, or a
        TorchScript file.
    """
    try:
        archive = Archive(path)
        with archive.zip:
            return TensorUnpickler(archive, classes or {}, strict).load()
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from None
    except MemoryError:
        problem = "not a file of torch.save, or damaged or truncated, or memory does not suffice for it"
        raise ModelError(f"{path}: {problem}") from None
    except Exception as error:  # a damaged zip or pickle can raise anything
        problem = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise ModelError(f"{path}: not a file of torch.save, or damaged or truncated ({problem})") from None


@contextmanager
def without_pickles(folder: Path) -> Iterator[Path]:
    """A Hugging Face folder; or, if its weights are `pytorch_model*.bin` alone, one with them as safetensors, made for
    as long as it is needed: transformers would give such files to `torch.load`.

    Raises:
      ModelError: as `read_torch_file`, or the file has something else than tensors in it, or NaN.
    """
    pickled = sorted(folder.glob("pytorch_model*.bin"))
    if not pickled or any(folder.glob("*.safetensors")):
        yield folder
        return
    weights: dict[str, Tensor] = {}
    for path in pickled:
        part = read_torch_file(path)
        if not isinstance(part, dict) or not all(isinstance(tensor, Tensor) for tensor in part.values()):
            raise ModelError(f"{path}: something else than tensors in it")
        check_finite(path, part)
        weights |= {str(name): tensor.clone().contiguous() for name, tensor in part.items()}
    with TemporaryDirectory() as made:
        write_bytes(Path(made) / "config.json", (folder / "config.json").read_bytes())
        save_tensors(Path(made) / "model.safetensors", weights)
        yield Path(made)
