"""Objects on a real S3 service, which fails now and then."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator

import pytest
from proxy import Proxy, proxy_before
from sources import Blocks, content

from allranks.errors import AlreadyThere, NotThere, StorageError
from allranks.storage.base import BLOCK, Storage

pytestmark = pytest.mark.needs("obstore", "moto")
DATA = content(2 * BLOCK + 5)
BEGIN, PART, END = ("POST", "uploads="), ("PUT", "partNumber"), ("POST", "uploadId")
Opener = Callable[..., Storage]


@pytest.fixture
def proxy(s3_port: int) -> Iterator[Proxy]:
    with proxy_before(s3_port) as proxy:
        yield proxy


def parts_are_left(storage: Storage, port: int) -> bool:
    """Whether the service holds parts of unfinished uploads: nobody sees them and somebody pays for them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/runs?uploads", timeout=60) as answer:
        return f"<Key>{storage.url.removeprefix('s3://runs/')}/" in answer.read().decode()


@pytest.mark.parametrize(
    ("request_of", "fault", "times"),
    [
        (BEGIN, "503", 1),
        (BEGIN, "lose the answer", 1),
        (PART, "503", 3),
        (PART, "cut", 3),
        (PART, "wait", 2),
        (PART, "lose the answer", 2),
        (END, "503", 2),
        (END, "lose the answer", 1),
    ],
)
def test_a_write_outlives_faults(
    open_s3: Opener, proxy: Proxy, request_of: tuple[str, str], fault: str, times: int
) -> None:
    """Of the beginning, the parts and the end of an upload: the file is there, whole, and no error is raised."""
    storage = open_s3(proxy.port, timeout_s=1.0)
    method, part = request_of
    proxy.fail(method, fault, part=part, times=times)
    storage.write("step/file", Blocks(DATA))
    assert storage.get("step/file") == DATA


@pytest.mark.parametrize("request_of", [BEGIN, PART, END])
def test_a_write_that_cannot_be_done_leaves_nothing(
    open_s3: Opener, proxy: Proxy, s3_port: int, request_of: tuple[str, str]
) -> None:
    """It says which file and where, and what the service said; the parts that were sent are given up."""
    storage = open_s3(proxy.port, retries=1)
    method, part = request_of
    proxy.fail(method, "503", part=part, times=1000)
    with pytest.raises(
        StorageError, match=r"cannot write 'step/file' in s3://runs/.* 503 Service Unavailable"
    ) as error:
        storage.write("step/file", Blocks(DATA))
    assert error.value.path == "step/file"
    assert "<Error>" not in str(error.value)
    assert storage.size("step/file") is None
    assert storage.list("") == ()
    assert not parts_are_left(storage, s3_port)


def test_a_source_that_raises_gives_the_upload_up(open_s3: Opener, s3_port: int) -> None:
    storage = open_s3()
    with pytest.raises(KeyError):
        storage.write("file", Blocks(DATA, fail_at=2, error=KeyError("mine")))
    assert not parts_are_left(storage, s3_port)


@pytest.mark.parametrize("fault", ["503", "cut", "wait", "lose the answer"])
def test_an_exclusive_put_knows_its_own_object(open_s3: Opener, proxy: Proxy, fault: str) -> None:
    """Its answer lost, the request comes a second time and is told that the object is there: it is ours."""
    storage = open_s3(proxy.port, timeout_s=1.0)
    proxy.fail("PUT", fault)
    storage.put("fence", b"mine")
    proxy.fail("PUT", fault)
    with pytest.raises(AlreadyThere):
        storage.put("fence", b"mine")
    assert storage.get("fence") == b"mine"


@pytest.mark.parametrize("fault", ["503", "cut", "half an answer"])
def test_a_read_outlives_faults(open_s3: Opener, proxy: Proxy, fault: str) -> None:
    storage = open_s3(proxy.port)
    storage.put("file", DATA)
    proxy.fail("GET", fault, times=2)
    buffers = [bytearray(100), bytearray(BLOCK)]
    storage.read("file", 7, [memoryview(buffer) for buffer in buffers])
    assert b"".join(buffers) == DATA[7 : 107 + BLOCK]


@pytest.mark.parametrize("fault", ["503", "cut", "half an answer"])
def test_a_listing_outlives_faults(open_s3: Opener, proxy: Proxy, fault: str) -> None:
    storage = open_s3(proxy.port)
    storage.put("folder/file", b"12")
    proxy.fail("GET", fault, times=2)
    assert [(entry.name, entry.size) for entry in storage.list("folder")] == [("file", 2)]


def test_few_blocks_are_in_memory(open_s3: Opener, proxy: Proxy) -> None:
    """A source is not asked for more than the uploads under way and the next."""

    class Watched(Blocks):
        ahead = 0

        def block(self, number: int) -> memoryview:
            sent = sum("partNumber" in request for request in proxy.answered)
            self.ahead = max(self.ahead, number + 1 - sent)
            return super().block(number)

    source = Watched(content(8 * BLOCK))
    open_s3(proxy.port, uploads=2).write("file", source)
    assert 2 <= source.ahead <= 5


def test_a_refusal_points_at_the_credentials(open_s3: Opener, proxy: Proxy) -> None:
    storage = open_s3(proxy.port)
    proxy.fail("PUT", "403", times=10)
    with pytest.raises(StorageError, match=r"permission denied .*Credentials come from the environment"):
        storage.put("file", b"1", replace=True)


def test_a_bucket_that_is_missing_is_named(open_s3: Opener) -> None:
    """By what writes and by what reads; it is no missing file."""
    storage = open_s3(bucket="missing", prefix="run")
    for call in (
        lambda: storage.write("file", Blocks(DATA)),
        lambda: storage.put("file", b"1"),
        lambda: storage.get("file"),
        lambda: storage.list(""),
    ):
        with pytest.raises(StorageError, match=r"s3://missing/run: there is no such bucket") as error:
            call()
        assert not isinstance(error.value, NotThere)
