"""Features in lhotse's two stores for files, with final names when they are whole, as its own writers have not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import numpy as np

from asr.errors import DataError
from rescore.file_names import file_name
from rescore.files import atomic_binary

if TYPE_CHECKING:
    from lhotse.cut import MonoCut

SHIFT_SECONDS = 0.01  # between frames of features


class FeatureStore(Protocol):
    """What a manifest says of features: the kind of store, where it is; `write` gives the key within."""

    name: str
    storage_path: str

    def write(self, key: str, features: np.ndarray) -> str: ...


class _Chunks:
    """As `lhotse.LilcomChunkyWriter`: one file; a key is where the features begin, and the bytes of each chunk."""

    name = "lilcom_chunky"

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self.storage_path, self._stream, self._offset = str(path), stream, 0

    def write(self, key: str, features: np.ndarray) -> str:
        from lhotse.features.compression import lilcom_compress_chunked
        from lhotse.features.io import CHUNKY_FORMAT_CHUNK_SIZE

        features = np.require(features, requirements="W")  # what lilcom wants, and an array over read bytes is not
        chunks = lilcom_compress_chunked(features, chunk_size=CHUNKY_FORMAT_CHUNK_SIZE)
        place = [self._offset, *(self._stream.write(chunk) for chunk in chunks)]
        self._offset = sum(place)
        return ",".join(map(str, place))


class _Arrays:
    """As `lhotse.NumpyFilesWriter`: a file an utterance, in folders of the first three characters of their names."""

    name = "numpy_files"

    def __init__(self, folder: Path) -> None:
        self.storage_path, self._folder = str(folder), folder
        self._written: set[str] = set()

    def write(self, key: str, features: np.ndarray) -> str:
        name = f"{key[:3]}/{key}.npy"
        if name in self._written:
            raise DataError(
                f"{self._folder / name}: the features of a second utterance of this id, expected ids that differ; "
                "rename it, or take --storage lilcom"
            )
        self._written.add(name)
        with atomic_binary(self._folder / name) as stream:
            np.lib.format.write_array(stream, features, allow_pickle=False)
        return name


@contextmanager
def feature_store(folder: Path, name: str, storage: str) -> Iterator[FeatureStore]:
    """Stores features under `folder/NAME`; of `lilcom` the file is there when the block ends without an error.

    Args:
      storage: `lilcom` (lossy, as icefall has it) or `numpy` (exact, a file an utterance).

    Raises:
      RescoreError: they cannot be written.
      DataError: of `numpy`, two utterances have the same key: the second would take the first one's place.
    """
    place = folder.resolve() / name
    if storage == "numpy":
        yield _Arrays(place)
        return
    path = place.with_name(f"{name}.lca")
    with atomic_binary(path) as stream:
        yield _Chunks(path, stream)


def with_features(cut: MonoCut, features: np.ndarray, store: FeatureStore) -> MonoCut:
    """The cut with features (T, F), which the store keeps."""
    from lhotse import Features
    from lhotse.utils import fastcopy

    stored = Features(
        type="fbank",
        num_frames=len(features),
        num_features=features.shape[1],
        frame_shift=SHIFT_SECONDS,
        sampling_rate=int(cut.sampling_rate) if cut.has_recording else 16000,
        start=cut.start,
        duration=cut.duration,
        storage_type=store.name,
        storage_path=store.storage_path,
        storage_key=store.write(file_name(cut.id), features),
        recording_id=cut.recording_id if cut.has_recording else cut.id,
        channels=cut.channel,
    )
    return fastcopy(cut, features=stored)
