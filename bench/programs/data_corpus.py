"""Makes a corpus of a seed, or puts one into the form that a peer needs. argv: form, folder; jsonl: documents, files.

Documents are {"id": int, "text": str}, some 270 bytes a line, numbered in the order of the files, whose lengths differ:
from 0.5 to 1.5 of the mean. Every form holds the same documents, in as many files or shards as jsonl where it has such.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tarfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

GROUPS = 500  # row groups of the whole corpus
SEED = 0


def jsonl(folder: Path, documents: int, files: int) -> None:
    """Write the documents: pieces of a text of random words."""
    noise = random.Random(SEED)
    words = ["".join(noise.choices("abcdefghijklmnopqrstuvwxyz", k=noise.randint(2, 9))) for _ in range(5_000)]
    pool = " ".join(noise.choices(words, k=800_000))
    lengths = [noise.uniform(0.5, 1.5) for _ in range(files)]
    ends = [round(documents * sum(lengths[:n]) / sum(lengths)) for n in range(files + 1)]
    target = _folder(folder, "jsonl")
    for number, (begin, end) in enumerate(pairwise(ends)):
        with _file(target, number, "jsonl").open("w") as file:
            for i in range(begin, end):
                at, size = int(noise.random() * 4_000_000), 20 + int(noise.random() * 450)
                file.write(f'{{"id":{i},"text":"{pool[at : at + size]}"}}\n')


def parquet(folder: Path) -> None:
    import pyarrow.json
    import pyarrow.parquet as pq

    target, tables = _folder(folder, "parquet"), [pyarrow.json.read_json(path) for path in _jsonl(folder)]
    rows = sum(map(len, tables)) // GROUPS
    for number, table in enumerate(tables):
        pq.write_table(table, _file(target, number, "parquet"), row_group_size=rows)


def arrow(folder: Path) -> None:
    """What Hugging Face's map-style datasets read."""
    import datasets

    datasets.disable_progress_bars()
    made = datasets.Dataset.from_json([*map(str, _jsonl(folder))], cache_dir=str(folder / "hf-cache"))
    made.save_to_disk(str(folder / "arrow"))


def arrayrecord(folder: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    target = _folder(folder, "arrayrecord")
    for number, path in enumerate(_jsonl(folder)):
        writer = ArrayRecordWriter(str(_file(target, number, "arrayrecord")), "group_size:1")
        for line in path.read_bytes().splitlines():
            writer.write(line)
        writer.close()


def tar(folder: Path) -> None:
    """What webdataset reads: one member a document."""
    target = _folder(folder, "tar")
    for number, path in enumerate(_jsonl(folder)):
        with _file(target, number, "tar").open("wb") as file:
            for line in path.read_bytes().splitlines():
                head = tarfile.TarInfo(f"{number:02}-{file.tell()}.json")
                head.size = len(line)
                file.write(head.tobuf(tarfile.USTAR_FORMAT) + line + bytes(-len(line) % 512))
            file.write(bytes(1024))


def offsets(folder: Path) -> None:
    """Where each line begins, for those that map the files into memory."""
    import numpy as np

    lengths = [len(line) for path in _jsonl(folder) for line in path.open("rb")]
    np.save(folder / "offsets.npy", np.cumsum([0, *lengths]))
    with (folder / "all.jsonl").open("wb") as file:
        for path in _jsonl(folder):
            file.write(path.read_bytes())


def litdata(folder: Path) -> None:
    import litdata as ld

    ld.optimize(
        _lines,
        [*map(str, _jsonl(folder))],
        str(folder / "litdata"),
        chunk_bytes="4MB",
        num_workers=2,
        start_method="fork",
    )


def mds(folder: Path) -> None:
    from data_mosaic import without_torchvision

    without_torchvision()
    from streaming import MDSWriter

    columns = {"id": "int", "text": "str"}
    with MDSWriter(out=str(folder / "mds"), columns=columns, size_limit=4 << 20) as writer:
        for path in _jsonl(folder):
            for sample in _lines(str(path)):
                writer.write(sample)


def index(folder: Path) -> None:
    """What our own reading builds once: of the forms that are there."""
    from data_peers import Rank, way

    for form in ("jsonl", "parquet"):
        if (folder / form).exists():
            way(f"ours-{form}")(Rank(folder, 0, 1))


def _lines(path: str) -> Iterator[Any]:
    with open(path) as file:
        yield from map(json.loads, file)


def _folder(folder: Path, form: str) -> Path:
    (folder / form).mkdir(parents=True, exist_ok=True)
    return folder / form


def _file(target: Path, number: int, suffix: str) -> Path:
    return target / f"{number:02}.{suffix}"


def _jsonl(folder: Path) -> list[Path]:
    return sorted((folder / "jsonl").glob("*.jsonl"))


FORMS: dict[str, Callable[[Path], None]] = {
    made.__name__: made for made in (parquet, arrow, arrayrecord, tar, offsets, litdata, mds, index)
}

if __name__ == "__main__":
    form, where, *numbers = sys.argv[1:]
    os.environ["HF_HUB_OFFLINE"] = "1"
    if form == "jsonl":
        jsonl(Path(where), *map(int, numbers))
    else:
        FORMS[form](Path(where))
