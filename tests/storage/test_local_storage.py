"""What local storage owes to the disk: what is synced, what a refusal of the system leads to."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sources import Blocks, content

from allranks.errors import AlreadyThere, StorageError
from allranks.storage import LocalStorage, new_file
from allranks.storage.base import BLOCK

READ_ONLY, REMOUNT, DETACH = 1, 32, 2
libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def small_disk(where: Path, size: int) -> Iterator[Callable[[int], None]]:
    """A tmpfs of ``size`` bytes; what it yields mounts it again with other flags."""
    where.mkdir()

    def mount(flags: int) -> None:
        if libc.mount(b"tmpfs", bytes(where), b"tmpfs", flags, f"size={size}".encode()):
            pytest.skip(f"cannot mount a tmpfs here ({os.strerror(ctypes.get_errno())})")

    mount(0)
    try:
        yield lambda flags: mount(REMOUNT | flags)
    finally:
        libc.umount2(bytes(where), DETACH)


def refusing(real: Callable[..., int], code: int, *, times: int = 1) -> Callable[..., int]:
    """A call of the system that fails the first ``times`` times."""
    left = iter(range(times))
    lock = threading.Lock()

    def call(*arguments: object) -> int:
        with lock:
            refused = next(left, None) is not None
        if refused:
            raise OSError(code, os.strerror(code))
        return real(*arguments)

    return call


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are synced, in order."""
    paths: list[str] = []

    def watch(name: str) -> None:
        real = getattr(os, name)

        def sync(fd: int) -> None:
            paths.append(os.readlink(f"/proc/self/fd/{fd}"))
            real(fd)

        monkeypatch.setattr(os, name, sync)

    watch("fsync")
    watch("fdatasync")
    return paths


def test_a_write_syncs_the_file_and_every_name_on_its_way(tmp_path: Path, synced: list[str]) -> None:
    """The folder above each folder, made now or before, then the bytes, then the folder of the file."""
    storage = LocalStorage(tmp_path / "runs" / "a")
    folders = [str(tmp_path), f"{tmp_path}/runs", f"{tmp_path}/runs/a"]
    storage.write("step/file", Blocks(content(BLOCK + 1)))
    assert synced == [*folders, f"{tmp_path}/runs/a/step/file", f"{tmp_path}/runs/a/step"]
    synced.clear()
    storage.write("step/other", Blocks(b""))
    assert synced == [folders[-1], f"{tmp_path}/runs/a/step/other", f"{tmp_path}/runs/a/step"]


@pytest.mark.parametrize("replace", [False, True])
def test_a_put_syncs_the_bytes_before_they_have_their_name(tmp_path: Path, synced: list[str], replace: bool) -> None:
    """And the folder after; so does a delete, and the removal of a folder."""
    storage = LocalStorage(tmp_path)
    storage.put("step/manifest.json", b"{}", replace=replace)
    top, temporary, folder = synced
    assert (top, folder) == (str(tmp_path), f"{tmp_path}/step")
    assert temporary.startswith(f"{tmp_path}/step/.manifest.json.")
    assert os.listdir(tmp_path / "step") == ["manifest.json"]
    synced.clear()
    storage.delete("step/manifest.json")
    storage.remove_folder("step")
    assert synced == [f"{tmp_path}/step", str(tmp_path)]


def test_whole_pages_go_past_the_page_cache(tmp_path: Path) -> None:
    """On a disk that can; this is what the speed rests on."""
    storage = LocalStorage(tmp_path)
    try:
        os.close(os.open(tmp_path / "probe", os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("the disk under the temporary folder has no O_DIRECT")
    storage.write("file", Blocks(content(BLOCK + 5000)))
    assert storage.buffered is None


@pytest.mark.parametrize("call", ["open", "pwrite"])
def test_a_refusal_of_direct_writes_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Whether it comes at the open or at the first write, the file is whole, and the storage says why it was slow."""
    real = getattr(os, call)
    seen = []

    def refuse(first: object, *rest: object, **known: object) -> int:
        direct = rest[0] & os.O_DIRECT if call == "open" else isinstance(rest[-1], int) and not seen
        if direct:
            seen.append(first)
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(first, *rest, **known)

    monkeypatch.setattr(os, call, refuse)
    storage = LocalStorage(tmp_path)
    data = content(2 * BLOCK + 5)
    storage.write("file", Blocks(data))
    monkeypatch.undo()
    assert len(seen) == 1
    assert storage.get("file") == data
    assert storage.buffered is not None
    assert ("opened" if call == "open" else "written") in storage.buffered


def test_a_disk_that_cannot_reserve_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: object) -> int:
        ctypes.set_errno(errno.EOPNOTSUPP)
        return -1

    monkeypatch.setattr(new_file, "_fallocate", cannot)
    storage = LocalStorage(tmp_path)
    storage.write("file", Blocks(content(BLOCK + 5)))
    assert storage.get("file") == content(BLOCK + 5)


def test_short_writes_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take fewer bytes than it is given."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[: 1 << 20], offset))
    storage = LocalStorage(tmp_path)
    storage.write("file", Blocks(content(BLOCK + 4097)))
    assert storage.get("file") == content(BLOCK + 4097)


@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "fsync"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EDQUOT])
def test_an_error_of_the_disk_ends_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """It names path and place, says what to do, and leaves no file."""
    storage = LocalStorage(tmp_path)
    source = Blocks(content(3 * BLOCK))
    monkeypatch.setattr(os, call, refusing(getattr(os, call), code))
    with pytest.raises(StorageError, match=errno.errorcode[code]) as raised:
        storage.write("file", source)
    monkeypatch.undo()
    assert "'file'" in str(raised.value)
    assert str(tmp_path) in str(raised.value)
    assert raised.value.path == "file"
    assert raised.value.remedy
    assert storage.list("") == ()
    assert sorted(source.freed) == sorted(source.asked)


def test_a_put_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there is there still, and no temporary file is."""
    storage = LocalStorage(tmp_path)
    storage.put("file", b"old")
    before = storage.list("")
    monkeypatch.setattr(os, "fsync", refusing(os.fsync, errno.EIO))
    with pytest.raises(StorageError, match="EIO"):
        storage.put("file", b"new", replace=True)
    assert storage.list("") == before
    assert storage.get("file") == b"old"


def test_a_link_whose_answer_was_lost_is_a_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that made the link and is asked again says that the name is there."""
    real = os.link

    def link(source: Path, target: Path) -> None:
        real(source, target)
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    storage = LocalStorage(tmp_path)
    storage.put("file", b"mine")
    with pytest.raises(AlreadyThere):
        storage.put("file", b"other")
    assert storage.get("file") == b"mine"


class TestWithoutLinks:
    """File systems that cannot link (FAT, some FUSE) keep the same promise."""

    @pytest.fixture
    def storage(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStorage:
        monkeypatch.setattr(os, "link", refusing(os.link, errno.EPERM, times=1000))
        return LocalStorage(tmp_path)

    def test_one_writer_wins(self, storage: LocalStorage) -> None:
        start = threading.Barrier(8)
        won: list[int] = []

        def put(number: int) -> None:
            start.wait(60)
            try:
                storage.put("fence", content(1000, seed=number))
            except AlreadyThere:
                return
            won.append(number)

        threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(won) == 1
        assert storage.get("fence") == content(1000, seed=won[0])
        assert [entry.name for entry in storage.list("")] == ["fence"]

    def test_the_claim_of_a_dead_writer_is_named(self, storage: LocalStorage, tmp_path: Path) -> None:
        (tmp_path / ".fence.claim").touch()
        with pytest.raises(AlreadyThere, match=r"\.fence\.claim exists .*remove it"):
            storage.put("fence", b"1")


def test_a_full_disk_is_said_before_a_byte_is_written(tmp_path: Path) -> None:
    """With what was needed and what is free; the source is not even asked. A put says so too; both leave nothing."""
    with small_disk(tmp_path / "small", 4 << 20):
        storage = LocalStorage(tmp_path / "small")
        source = Blocks(content(BLOCK))
        with pytest.raises(StorageError, match=r"full .*8,388,608 bytes are needed, 4,\d+,\d+ are free.*Free"):
            storage.write("step/file", source)
        assert source.asked == []
        with pytest.raises(StorageError, match="ENOSPC"):
            storage.put("step/file", content(5 << 20))
        assert storage.list("step") == ()
        storage.write("step/file", Blocks(content(1 << 20)))


def test_a_disk_that_fills_up_underway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no space can be reserved the block that does not fit ends the write, and the space is free again."""
    monkeypatch.setattr(new_file, "_reserve", lambda *_: None)
    with small_disk(tmp_path / "small", 12 << 20):
        storage = LocalStorage(tmp_path / "small")
        with pytest.raises(StorageError, match="ENOSPC"):
            storage.write("file", Blocks(content(3 * BLOCK)))
        storage.write("file", Blocks(content(BLOCK)))


def test_a_read_only_disk_is_named(tmp_path: Path) -> None:
    """Reading goes on."""
    with small_disk(tmp_path / "disk", 4 << 20) as mount_again:
        storage = LocalStorage(tmp_path / "disk")
        storage.put("file", b"1")
        mount_again(READ_ONLY)
        for call in (
            lambda: storage.write("new", Blocks(b"1")),
            lambda: storage.put("new", b"1"),
            lambda: storage.put("file", b"1", replace=True),
            lambda: storage.delete("file"),
        ):
            with pytest.raises(StorageError, match=r"read-only \(EROFS"):
                call()
        assert storage.get("file") == b"1"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_of_another_user_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(StorageError, match="EACCES"):
        LocalStorage(tmp_path).put("file", b"1")
    tmp_path.chmod(0o755)


def test_a_thread_that_fails_ends_the_write_though_another_waits(tmp_path: Path) -> None:
    """A source with memory for two blocks waits until one is given back: the failed block is, so nobody hangs."""

    class TwoBuffers(Blocks):
        free = threading.Semaphore(2)

        def block(self, number: int) -> memoryview:
            assert self.free.acquire(timeout=60)
            return super().block(number)

        def done(self, number: int) -> None:
            super().done(number)
            self.free.release()

    storage = LocalStorage(tmp_path)
    storage.write("whole", TwoBuffers(content(6 * BLOCK)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", refusing(os.pwrite, errno.EIO))
        with pytest.raises(StorageError, match="EIO"):
            storage.write("failed", TwoBuffers(content(6 * BLOCK)))
