"""What every storage keeps: local disk, tmpfs, memory, S3."""

from __future__ import annotations

import threading

import pytest
from sources import SIZES, Blocks, content

from allranks.errors import AlreadyThere, NotThere, StorageError, Truncated, Unsafe
from allranks.storage.base import BLOCK, Entry, Storage


@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_is_read(storage: Storage, size: int) -> None:
    """Files of every size come back, whole and by size; every block was asked for once, and given back."""
    data = content(size)
    source = Blocks(data)
    storage.write("checkpoint-1/rank.safetensors", source)
    assert storage.get("checkpoint-1/rank.safetensors") == data
    assert storage.size("checkpoint-1/rank.safetensors") == size
    assert sorted(source.asked) == sorted(source.freed) == list(range(-(-size // BLOCK)))


def test_a_file_is_written_once(storage: Storage) -> None:
    """A write over a file is refused, and the file is as it was."""
    storage.write("a/file", Blocks(content(BLOCK + 1)))
    with pytest.raises(AlreadyThere, match="a/file"):
        storage.write("a/file", Blocks(b"small"))
    with pytest.raises(AlreadyThere, match="a/file"):
        storage.write("a/file", Blocks(content(BLOCK + 1, seed=1)))
    assert storage.get("a/file") == content(BLOCK + 1)


@pytest.mark.parametrize("error", [KeyError("mine"), FileNotFoundError("mine"), KeyboardInterrupt("mine")], ids=repr)
@pytest.mark.parametrize(("size", "at"), [(3 * BLOCK + 5, 1), (3 * BLOCK + 5, 3), (9, 0)])
def test_a_source_that_raises_leaves_nothing(storage: Storage, size: int, at: int, error: BaseException) -> None:
    """Its own error comes out unchanged, no file is there, and the blocks that it did give are given back."""
    source = Blocks(content(size), fail_at=at, error=error)
    with pytest.raises(type(error)) as raised:
        storage.write("a/file", source)
    assert raised.value is error
    assert storage.size("a/file") is None
    assert [entry for entry in storage.list("a") if entry.size is not None] == []
    assert sorted([*source.freed, at]) == sorted(source.asked)
    storage.write("a/file", Blocks(b"later"))
    assert storage.get("a/file") == b"later"


def test_of_several_writers_one_wins(storage: Storage) -> None:
    """Eight threads put the same new file at once: one succeeds and its bytes are there, the others hear so."""
    start = threading.Barrier(8)
    won: list[int] = []
    lost: list[int] = []

    def put(number: int) -> None:
        start.wait(60)
        try:
            storage.put("fence/1.json", content(10_000, seed=number))
        except AlreadyThere:
            lost.append(number)
        else:
            won.append(number)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(won), len(lost)) == (1, 7)
    assert storage.get("fence/1.json") == content(10_000, seed=won[0])
    assert storage.list("fence") == (Entry("1.json", 10_000),)


def test_put_replaces_only_if_asked(storage: Storage) -> None:
    """Also where there was nothing, and an empty file is a file."""
    storage.put("latest", b"1", replace=True)
    with pytest.raises(AlreadyThere, match="latest"):
        storage.put("latest", b"2")
    assert storage.get("latest") == b"1"
    storage.put("latest", b"", replace=True)
    assert (storage.get("latest"), storage.size("latest")) == (b"", 0)


def test_a_read_fills_buffers_one_after_the_other(storage: Storage) -> None:
    """Of any lengths, none too, more than one call of the system takes, and to the last byte."""
    data = content(BLOCK + 100)
    storage.write("file", Blocks(data))
    lengths = [0, 1, 4096, 0, 70_001, *([3] * 2000)]
    buffers = [bytearray(length) for length in lengths]
    offset = len(data) - sum(lengths)
    storage.read("file", offset, [memoryview(buffer) for buffer in buffers])
    assert [len(buffer) for buffer in buffers] == lengths
    assert b"".join(buffers) == data[offset:]
    storage.read("file", 5, [])


@pytest.mark.parametrize(("offset", "length"), [(90, 11), (100, 1), (1000, 5), (0, 101)])
def test_a_read_past_the_end_is_refused(storage: Storage, offset: int, length: int) -> None:
    """It says how long the file is."""
    storage.put("file", content(100))
    with pytest.raises(Truncated, match="100"):
        storage.read("file", offset, [memoryview(bytearray(length))])


def test_what_is_not_there(storage: Storage) -> None:
    """Reading raises NotThere, looking finds nothing, deleting and removing are done already."""
    storage.put("here", b"1")
    for path in ("gone", "no/such/folder", "here/below"):
        with pytest.raises(NotThere, match=path):
            storage.get(path)
        with pytest.raises(NotThere, match=path):
            storage.read(path, 0, [memoryview(bytearray(1))])
        assert storage.size(path) is None
        assert storage.list(path) == ()
        storage.delete(path)
        storage.remove_folder(path)


def test_a_folder_is_listed(storage: Storage) -> None:
    """Its files with their sizes and its folders, by name, not what is below; deleting twice is deleting."""
    assert storage.list("") == ()
    for path in ("b/two", "b/one", "b/sub/three", "b2/x", "a"):
        storage.put(path, path.encode())
    assert storage.list("") == (Entry("a", 1), Entry("b", None), Entry("b2", None))
    assert storage.list("b") == (Entry("one", 5), Entry("sub", None), Entry("two", 5))
    assert storage.size("b") is None
    storage.remove_folder("b")  # it is not empty
    assert len(storage.list("b")) == 3
    for _ in range(2):
        storage.delete("b2/x")
        storage.remove_folder("b2")
    assert storage.list("") == (Entry("a", 1), Entry("b", None))


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../out", "a/../../out", "a//b", "a/", "./a", "nul\0"])
def test_a_path_cannot_lead_out(storage: Storage, path: str) -> None:
    """What a hostile manifest may hold is refused by every call."""
    for call in (
        lambda: storage.write(path, Blocks(b"x")),
        lambda: storage.put(path, b"x"),
        lambda: storage.get(path),
        lambda: storage.read(path, 0, [memoryview(bytearray(1))]),
        lambda: storage.size(path),
        lambda: storage.delete(path),
        lambda: storage.remove_folder(path),
        *([lambda: storage.list(path)] if path else []),
    ):
        with pytest.raises(StorageError, match="not a path in a storage"):
            call()


def test_a_file_of_more_bytes_than_allowed_is_not_read(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the limit is that of metadata, the error says how a user raises it."""
    storage.put("a/file", b"12345")
    assert storage.get("a/file", most=5) == b"12345"
    assert storage.get("a/file", most=1 << 60) == b"12345"  # a limit is no request for memory
    with pytest.raises(Unsafe, match=r"has 5 bytes: expected at most 4. Remove the file"):
        storage.get("a/file", most=4)
    monkeypatch.setenv("ALLRANKS_METADATA_LIMIT", "4")
    with pytest.raises(Unsafe, match=r"has 5 bytes: expected at most 4. If you trust .* set ALLRANKS_METADATA_LIMIT"):
        storage.get("a/file", most=4)
    with pytest.raises(NotThere):
        storage.get("a/other", most=4)
