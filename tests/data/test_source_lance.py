"""Versions of Lance data sets. The package is not installed for development: ``pip install pylance`` runs these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allranks import Dataset
from allranks.data.sources.detect import open_source
from allranks.errors import DataError
from allranks.world.detect import single_world

needs_lance = pytest.mark.needs("lance")


def write_rows(place: Path, rows: range, *, mode: str = "create") -> None:
    import lance
    import pyarrow as pa

    table = pa.table({"id": list(rows), "text": [f"t{row}" for row in rows]})
    lance.write_dataset(table, str(place), mode=mode, max_rows_per_file=700)


def ids_of(data: Dataset) -> list[int]:
    return sorted(row for batch in data.batch(24).loader(rank=0, size=1) for row in batch["id"][batch.mask].tolist())


@needs_lance
def test_rows_are_read_over_files_and_without_deleted_ones(tmp_path: Path) -> None:
    import lance

    place = tmp_path / "x.lance"
    write_rows(place, range(2000))
    lance.dataset(str(place)).delete("id >= 690 AND id < 710")
    expected = [row for row in range(2000) if not 690 <= row < 710]
    assert ids_of(Dataset.lance(place)) == expected
    assert ids_of(Dataset.lance(place, version=1)) == list(range(2000))
    sample = open_source("lance", place, columns=["text"])
    rows = sample.open(sample.index()).read(0).take(np.array([689, 690]))
    assert rows == [{"text": "t689"}, {"text": "t710"}]


@needs_lance
def test_a_job_keeps_its_version(tmp_path: Path) -> None:
    """Rows that are added later are in no block; a state of before is refused with the newest version."""
    place = tmp_path / "x.lance"
    write_rows(place, range(100))
    source = open_source("lance", place)
    index = source.index()
    loader = Dataset.lance(place).batch(24).loader(single_world())
    state: Any = loader.state()
    write_rows(place, range(100, 150), mode="append")
    assert source.open(index).read(0).take(np.array([99]))[0]["id"] == 99
    assert ids_of(Dataset.lance(place)) == list(range(150))
    with pytest.raises(DataError, match="the state belongs to other data"):
        Dataset.lance(place).batch(24).loader(single_world(), state=state)
    Dataset.lance(place, version=1).batch(24).loader(single_world(), state=state)


@needs_lance
def test_what_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    place = tmp_path / "x.lance"
    with pytest.raises(DataError, match=r"x\.lance cannot be opened"):
        open_source("lance", place).index()
    write_rows(place, range(100))
    with pytest.raises(DataError, match=r"has no column 'image'\. It has 'id', 'text'"):
        open_source("lance", place, columns=["image"]).index()
    with pytest.raises(DataError, match=r"x\.lance cannot be opened"):
        open_source("lance", place, version=7).index()
    source = open_source("lance", place)
    index = source.index()
    (file,) = (place / "data").iterdir()
    good = file.read_bytes()
    for data in (good[:100], b"\xff" * len(good), good[:-30] + b"\xff" * 30, b""):
        file.write_bytes(data)
        with pytest.raises(DataError, match=r"x\.lance: rows 0 to 100 cannot be read"):
            source.open(index).read(0)


def test_the_package_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "lance", None)
    monkeypatch.delitem(sys.modules, "allranks.data.sources.lance", raising=False)
    with pytest.raises(DataError, match="lance needs lance, which is not installed") as raised:
        open_source("lance", "x")
    assert "pip install pylance" in str(raised.value)
