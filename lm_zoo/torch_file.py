"""Reading what `torch.save` wrote without running any code that the file may name."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from lm_zoo.errors import ModelError

UNREADABLE = (
    zipfile.BadZipFile,
    pickle.UnpicklingError,
    RuntimeError,
    EOFError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class _Ignored:
    """Stands for every object of a checkpoint that is not a tensor or a plain container."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def append(self, item: Any) -> None: ...

    def extend(self, items: Any) -> None: ...


class TensorUnpickler(pickle.Unpickler):
    """Makes tensors and plain containers; any other class or function that a file names is never looked up.

    `torch.load(weights_only=True)` is not used: it refuses icefall's files, whose `exp_dir` is a `pathlib` path, and
    torch 1.13 ignores a `pickle_module`.  The format: `NAME/data.pkl` holds the objects, `NAME/data/KEY` the numbers.
    """

    STORAGES: ClassVar[dict[str, torch.dtype]] = {
        "FloatStorage": torch.float32,
        "DoubleStorage": torch.float64,
        "HalfStorage": torch.float16,
        "BFloat16Storage": torch.bfloat16,
        "LongStorage": torch.int64,
        "IntStorage": torch.int32,
        "ByteStorage": torch.uint8,
        "BoolStorage": torch.bool,
    }

    def __init__(self, archive: zipfile.ZipFile) -> None:
        objects = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(objects) != 1:
            raise ValueError("no data.pkl in it")
        super().__init__(io.BytesIO(archive.read(objects[0])))
        self.archive, self.folder = archive, objects[0].removesuffix("data.pkl") + "data"
        self.storages: dict[str, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch._utils":
            return {"_rebuild_tensor_v2": _tensor, "_rebuild_parameter": _parameter}.get(name, _Ignored)
        return self.STORAGES.get(name, _Ignored) if module == "torch" else _Ignored

    def persistent_load(self, pid: Any) -> Any:
        """The numbers of a storage, 1-D; `pid` is ("storage", dtype, key, device, how many)."""
        _, dtype, key, _, size = pid
        if not isinstance(dtype, torch.dtype):
            return _Ignored()
        if key not in self.storages:
            data = bytearray(self.archive.read(f"{self.folder}/{key}"))
            empty = torch.zeros(0, dtype=dtype)
            self.storages[key] = torch.frombuffer(data, dtype=dtype, count=size) if size else empty
        return self.storages[key]


def _tensor(storage: Any, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Any:
    return storage.as_strided(shape, stride, offset) if isinstance(storage, Tensor) else _Ignored()


def _parameter(data: Any, *_: Any) -> Any:
    return data


def read_torch_file(path: Path) -> Any:
    """The object of a file of `torch.save`, on the CPU.

    Raises:
      ModelError: no such file, not written by `torch.save`, truncated, or a TorchScript file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if any(name.endswith("/constants.pkl") for name in archive.namelist()):
                raise ModelError(f"{path}: a TorchScript file, expected a checkpoint or a state dict (pretrained.pt)")
            return TensorUnpickler(archive).load()
    except UNREADABLE as error:
        raise ModelError(f"{path}: not a file of torch.save, or damaged or truncated ({error})") from None
