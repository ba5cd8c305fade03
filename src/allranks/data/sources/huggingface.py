"""Read a map-style ``datasets.Dataset``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from allranks.data.base import BlockRows, Progress, Source, ignore_progress
from allranks.data.index import DatasetIndex, SourceFile
from allranks.data.sources.columns import table_rows
from allranks.data.sources.detect import import_source_module
from allranks.data.sources.file import ByteCounter, naming_file
from allranks.data.sources.sequence import index_of_equal_blocks
from allranks.errors import DataChanged, DataError

_BLOCK_BYTES = 1 << 16
_MOST_ROWS = 1 << 12


def huggingface(dataset: Any, *, streaming: bool = False, **options: Any) -> Source:
    """Return a ``datasets.Dataset`` as a source. A sample is a row of its Arrow table, a dict as of ``parquet``.

    The order is the dataset's: ``select``, ``shuffle`` and ``filter`` are respected. The dataset's format
    (``set_format``, ``set_transform``) is not, and images and audio have their stored form. A dataset that was shuffled
    by its own method is read row by row, ten times as slowly: let the loader shuffle. The dataset's fingerprint tells
    whether it is the same on all ranks and after a restart. Raises DataError for other objects; the message says what
    to use.

    With a name and ``streaming=True``, the options are those of ``load_dataset``. Then the files of that data set are
    read directly: see ``named``.
    """
    if isinstance(dataset, str):
        if not streaming:
            raise DataError(
                f"expected a datasets.Dataset, found the name {dataset!r}.",
                remedy="Set streaming=True to read its files directly; or download and prepare it first, "
                "datasets.load_dataset(...), and give what that returns.",
            )
        by_name: Source = import_source_module("named").named(dataset, **options)
        return by_name
    name = type(dataset).__name__
    if streaming or options:
        said = ", ".join([*options, *["streaming"] * streaming])
        raise DataError(f"{said} go with the name of a data set, not with a {name}.", remedy="Give one or the other.")
    if name in ("IterableDataset", "IterableDatasetDict"):
        raise DataError(
            f"a datasets.{name} can only be iterated: it can be neither split exactly nor resumed.",
            remedy="Nothing says which files it reads and what was done to it: give allranks.Dataset.huggingface what "
            "load_dataset was given (a name, streaming=True), and map and filter behind it; or load it without "
            "streaming=True. allranks.shard(dataset, world) reads it as it is, and says what that cannot keep.",
        )
    if name == "DatasetDict":
        raise DataError(
            "a datasets.DatasetDict is several data sets.",
            remedy=f"Choose one: {', '.join(f'dataset[{split!r}]' for split in dataset)}.",
        )
    if not (hasattr(dataset, "with_format") and hasattr(dataset, "_fingerprint") and hasattr(dataset, "data")):
        raise DataError(
            f"expected a datasets.Dataset, found {type(dataset).__module__}.{name}.",
            remedy="Use the source 'sequence' for other objects with a length and rows.",
        )
    return HuggingFaceSource(dataset.with_format("arrow"), str(dataset._fingerprint))


@dataclass(frozen=True, slots=True)
class HuggingFaceSource:
    """The source that ``huggingface`` returns; ``dataset`` yields Arrow tables."""

    dataset: Any
    fingerprint: str

    @property
    def where(self) -> str:
        return f"datasets.Dataset {self.fingerprint}"

    @property
    def _file(self) -> SourceFile:
        table = self.dataset.data
        share = len(self.dataset) / max(table.num_rows, 1)
        return SourceFile("dataset", int(table.nbytes * share), self.fingerprint)

    def index(self, *, progress: Progress = ignore_progress) -> DatasetIndex:
        """Return an index whose blocks are runs of rows of about 64 KiB."""
        file, rows = self._file, len(self.dataset)
        each = _BLOCK_BYTES * rows // max(file.nbytes, 1)
        progress(file.nbytes, file.nbytes)
        return index_of_equal_blocks("huggingface", file, rows, min(max(each, 1), _MOST_ROWS))

    def open(self, index: DatasetIndex) -> HuggingFaceReader:
        """Open the table. Raises DataChanged if the dataset is not the one of the index."""
        here, there = self.fingerprint, index.files[0].stamp
        if here != there:
            raise DataChanged(
                f"the dataset's fingerprint is {here} here, {there} in the index.",
                remedy="Was it made in the same way on every rank, and before the restart? A transform that datasets "
                "cannot hash gives a new fingerprint each time.",
            )
        return HuggingFaceReader(self.dataset, index)


class HuggingFaceReader:
    """Reads runs of rows. For a memory-mapped table, ``bytes_read`` counts the bytes of the rows."""

    def __init__(self, dataset: Any, index: DatasetIndex) -> None:
        self._dataset, self._index = dataset, index
        self._counter = ByteCounter()

    @property
    def bytes_read(self) -> int:
        return self._counter.total

    def hint(self, _block: int) -> bool:
        return False

    def read(self, block: int) -> BlockRows:
        begin, end = int(self._index.begin[block]), int(self._index.end[block])
        where = f"rows {begin:,} to {end:,} of the dataset"
        with naming_file(where, "read"):
            table = self._dataset[begin:end]
            self._counter.add_bytes(table.nbytes)
            return table_rows(table, where)
