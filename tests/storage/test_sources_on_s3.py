"""Data in a bucket: found, indexed and read through a service that fails now and then."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from proxy import Proxy, proxy_before

from allranks.data.sources.detect import open_source
from allranks.errors import DataChanged, DataError
from allranks.storage.base import Storage

pytestmark = pytest.mark.needs("obstore", "moto")
Opener = Callable[..., Storage]


@pytest.fixture
def proxy(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The way to the service for all who take it from the environment."""
    with proxy_before(s3_port) as proxy:
        for name, value in (
            ("AWS_ENDPOINT", f"http://127.0.0.1:{proxy.port}"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_REGION", "us-east-1"),
        ):
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def bucket(open_s3: Opener) -> Storage:
    storage = open_s3(prefix=uuid.uuid4().hex)
    for number in range(3):
        storage.put(f"{number}.txt", "".join(f"{number} {line}\n" for line in range(1000)).encode())
    storage.put("deep/er/x.txt", b"deep\n")
    return storage


EXPECTED = [f"{number} {line}" for number in range(3) for line in range(1000)]


def test_lines_of_a_bucket(bucket: Storage, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a pattern; the second index is from the cache in the bucket; bytes are those of the blocks."""
    monkeypatch.setattr("allranks.data.sources.listing.YOUNG_S", 0.0)
    lines = open_source("text", f"{bucket.url}/*.txt", block_bytes=1000)
    index = lines.index()
    before = len(proxy.answered)
    assert lines.index().digest == index.digest
    assert not any(f"{number}.txt" in request for request in proxy.answered[before:] for number in range(3))
    reader = lines.open(index)
    found = [one for block in range(len(index)) for one in reader.read(block).take(np.arange(index.rows[block]))]
    assert found == EXPECTED
    assert reader.bytes_read == sum(file.nbytes for file in index.files)
    assert [file.name for file in open_source("text", bucket.url).index().files][-1] == "deep/er/x.txt"
    assert open_source("text", f"{bucket.url}/**/x.txt").index().samples == 1


def test_faults_are_outlived(bucket: Storage, proxy: Proxy) -> None:
    """503, a connection that is cut and half an answer: in listing, indexing and reading."""
    lines = open_source("text", f"{bucket.url}/*.txt", block_bytes=1000)
    for fault in ("503", "cut", "half an answer"):
        proxy.fail("GET", fault, times=2)
    index = lines.index()
    reader = lines.open(index)
    for fault in ("503", "cut", "half an answer"):
        proxy.fail("GET", fault, part=".txt", times=1)
    assert reader.read(1).take(np.array([0]))[0] in EXPECTED


def test_an_object_that_changes_is_named(bucket: Storage, proxy: Proxy) -> None:  # noqa: ARG001  the way
    lines = open_source("text", f"{bucket.url}/*.txt")
    index = lines.index()
    bucket.put("1.txt", b"other", replace=True)
    with pytest.raises(DataChanged, match=rf"{bucket.url}/1.txt has changed since it was indexed"):
        lines.open(index).read(1)
    with pytest.raises(DataError, match=rf"no file matches .*; in {bucket.url} there is 0.txt, 1.txt, 2.txt, deep/"):
        open_source("text", f"{bucket.url}/*.csv").index()


@pytest.mark.needs("pyarrow")
def test_parquet_of_a_bucket(bucket: Storage, proxy: Proxy) -> None:
    """A block is one request, once the footer is known."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": list(range(100))}), sink, row_group_size=10)
    bucket.put("p/a.parquet", sink.getvalue().to_pybytes())
    rows = open_source("parquet", f"{bucket.url}/p")
    index = rows.index()
    reader = rows.open(index)
    assert reader.read(0).take(np.array([3])) == [{"a": 3}]
    before = len(proxy.answered)
    assert reader.read(9).take(np.array([9])) == [{"a": 99}]
    assert len(proxy.answered) == before + 1
