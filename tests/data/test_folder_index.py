"""Folders whose index.json names files that are not there."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from record_files import write_litdata, write_mds

from allranks import Dataset
from allranks.data.sources.detect import open_source
from allranks.data.sources.listing import match_names
from allranks.data.sources.patterns import parse_pattern
from allranks.errors import DataError

WRITTEN = Path(__file__).parent / "written"
SHARDS = [range(5), range(5, 12), range(12, 20)]


def write_shards(folder: Path) -> None:
    for number, ids in enumerate(SHARDS):
        write_mds(folder / f"shard.{number}.mds", ids)
    shards = [
        {"raw_data": {"basename": f"shard.{number}.mds"}, "zip_data": None, "samples": len(ids)}
        for number, ids in enumerate(SHARDS)
    ]
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))


@pytest.fixture(params=["litdata", "mds"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    found = tmp_path / "data" / str(request.param)
    found.mkdir(parents=True)
    write_litdata(found, SHARDS) if request.param == "litdata" else write_shards(found)
    return found


def ids_of(folder: Path, files: Any) -> list[int]:
    loader = open_data(folder, files).batch(4).loader(rank=0, size=1)
    return sorted(int(one) for batch in loader for one in np.array(batch["id"])[batch.mask])


def open_data(folder: Path, files: Any) -> Dataset:
    return Dataset.litdata(files) if folder.name == "litdata" else Dataset.mds(files)


def chunks_of(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.suffix in (".bin", ".mds"))


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_missing_chunk_is_named(folder: Path, is_indexed: bool) -> None:
    """For a folder, one above it, and patterns; also if the chunk was there when the folder was indexed."""
    glob = folder.parent / "**" / f"{chunks_of(folder)[0].stem[:3]}*"
    patterns = [folder, folder.parent, folder / "*[01].*", glob]
    for pattern in patterns if is_indexed else ():
        ids_of(folder, pattern)
    chunk = chunks_of(folder)[1]
    chunk.unlink()
    for pattern in patterns:
        with pytest.raises(
            DataError,
            match=rf"names 3 files with 20 samples; 1 of them, with 7 samples, .* {chunk.name}\. .*a list of",
        ):
            ids_of(folder, pattern)


def test_all_chunks_of_a_folder_may_be_missing(folder: Path) -> None:
    shutil.copytree(folder, folder.parent / "other")
    for chunk in chunks_of(folder):
        chunk.unlink()
    with pytest.raises(DataError, match="3 of them, with 20 samples"):
        ids_of(folder, folder.parent)
    (folder / "index.json").write_text('{"shards": [], "chunks": [], "config": null}')
    with pytest.raises(DataError, match="no file matches"):
        ids_of(folder, folder)


def test_some_of_the_chunks_can_be_chosen(folder: Path) -> None:
    """Whether the others are there or not."""
    first, second, last = chunks_of(folder)
    expected = [*SHARDS[0], *SHARDS[2]]
    assert ids_of(folder, [first, last]) == expected
    second.unlink()
    assert ids_of(folder, [first, last]) == expected
    assert ids_of(folder, folder / "*[02].*[!n]" if folder.name == "mds" else folder / "*[02].bin") == expected
    with pytest.raises(DataError, match=second.name):
        ids_of(folder, [first, second])


def test_a_chunk_that_the_index_does_not_name(folder: Path) -> None:
    """A chunk of litdata cannot be read then; a shard of MDS describes itself."""
    extra = chunks_of(folder)[0]
    extra = extra.rename(folder / f"zzz{extra.suffix}")
    shutil.copy(extra, folder / ("chunk-0-0.bin" if folder.name == "litdata" else "shard.0.mds"))
    if folder.name == "mds":
        assert len(ids_of(folder, folder)) == 25
        return
    with pytest.raises(DataError, match=r"zzz\.bin is not one of the 3 chunks that index\.json names\. .*Delete"):
        ids_of(folder, folder)


@pytest.mark.parametrize("folder", ["mds"], indirect=True)
def test_a_shard_may_be_there_compressed_or_not(folder: Path) -> None:
    document = json.loads((folder / "index.json").read_text())
    for shard in document["shards"]:
        shard["zip_data"] = {"basename": shard["raw_data"]["basename"] + ".gz"}
    (folder / "index.json").write_text(json.dumps(document))
    shard = chunks_of(folder)[1]
    (folder / f"{shard.name}.gz").write_bytes(gzip.compress(shard.read_bytes()))
    shard.unlink()
    assert ids_of(folder, folder) == [*range(20)]
    (folder / f"{shard.name}.gz").unlink()
    with pytest.raises(DataError, match=r"not there: shard\.1\.mds"):
        ids_of(folder, folder)


@pytest.mark.parametrize("folder", ["mds"], indirect=True)
def test_the_merged_index_of_mds_names_shards_in_folders(folder: Path) -> None:
    document = json.loads((folder / "index.json").read_text())
    for shard in document["shards"]:
        shard["raw_data"]["basename"] = f"mds/{shard['raw_data']['basename']}"
    (folder / "index.json").unlink()
    (folder.parent / "index.json").write_text(json.dumps(document))
    assert ids_of(folder, folder.parent) == [*range(20)]
    chunks_of(folder)[2].unlink()
    with pytest.raises(DataError, match=r"data/index\.json names .* mds/shard\.2\.mds"):
        ids_of(folder, folder.parent)


@pytest.mark.parametrize("folder", ["mds"], indirect=True)
@pytest.mark.parametrize("content", ["", "[]", "{}", '{"shards": [{}]}', "["])
def test_a_damaged_index_of_mds_is_named(folder: Path, content: str) -> None:
    (folder / "index.json").write_text(content)
    with pytest.raises(DataError, match=r"index\.json .* is not a complete index of MDS shards.*or delete it"):
        ids_of(folder, folder)


def test_a_missing_chunk_of_tokens_is_named(tmp_path: Path) -> None:
    """Files of tokens without chunks may have another index.json beside them."""
    folder = tmp_path / "tokens"
    shutil.copytree(WRITTEN / "litdata_tokens", folder)
    (folder / "chunk-0-1.bin").unlink()
    with pytest.raises(DataError, match=r"names 3 files .* not there: chunk-0-1\.bin"):
        open_source("tokens", folder, length=16).index()
    for chunk in folder.glob("chunk*"):
        chunk.unlink()
    np.arange(64, dtype=np.uint16).tofile(folder / "train.bin")
    (folder / "index.json").write_text("{}")
    assert len(open_source("tokens", folder, length=16).index().files) == 1


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("", {"a.bin", "x/b.bin"}),
        ("*.txt", {"c.txt"}),
        ("x", {"x/b.bin"}),
        ("**/*.bin", {"a.bin", "x/b.bin", "_x/d.bin"}),
        (["a.bin", "no.bin"], {"a.bin"}),
    ],
)
def test_names_match_patterns_without_a_listing(pattern: Any, matching: set[str], tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    written = [pattern] if isinstance(pattern, str) else pattern
    place = parse_pattern([tmp_path / one for one in (*written, "-")])
    assert match_names(place, ["a.bin", "x/b.bin", "c.txt", "_x/d.bin"], [".bin"]) == matching


@pytest.mark.parametrize("kind", ["jsonl", "folder"])
def test_a_path_of_a_list_that_is_not_there_is_named(kind: str, tmp_path: Path) -> None:
    """Also of a range in braces. A pattern names the files that exist."""
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "1.jsonl").unlink()
    for files in ([tmp_path / f"{number}.jsonl" for number in range(3)], tmp_path / "{0..2}.jsonl"):
        with pytest.raises(DataError, match=r"1 of 3 paths are not there, or are empty folders: 1\.jsonl, in /"):
            open_source(kind, files).index()
    assert len(open_source(kind, [tmp_path / "[0-2].jsonl", tmp_path / "2.jsonl"]).index().files) == 2
