"""The memory of another host, over real sockets."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from allranks.checkpoint.memory import hosts, peers
from allranks.checkpoint.memory.peers import MemoryServer, RemoteMemory
from allranks.errors import NotThere, StorageError, Truncated
from allranks.storage.base import BLOCK
from allranks.storage.local import LocalStorage
from allranks.storage.memory import MemoryStorage
from allranks.world.processes import addresses_of_this_host

SECRET = b"of the job"
PATH = "checkpoint-7/part"


class Content:
    """A file of two blocks and a half."""

    def __init__(self) -> None:
        self.data = np.random.default_rng(0).integers(0, 256, 2 * BLOCK + 12345, dtype=np.uint8)
        self.size = len(self.data)
        self.out: set[int] = set()

    def block(self, number: int) -> memoryview:
        self.out.add(number)
        return self.data[number * BLOCK : (number + 1) * BLOCK].data

    def done(self, number: int) -> None:
        self.out.remove(number)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[LocalStorage, int]]:
    storage = LocalStorage(tmp_path)
    server = MemoryServer(storage, secret=SECRET)
    yield storage, server.port
    server.close()


def remote(port: int, *, secret: bytes = SECRET) -> RemoteMemory:
    return RemoteMemory(3, "b", [("127.0.0.1", port)], secret=secret)


def test_a_copy_is_written_and_read_over_the_network(served: tuple[LocalStorage, int]) -> None:
    storage, port = served
    other, content = remote(port), Content()
    other.write(PATH, content)
    assert content.out == set()
    assert storage.get(PATH) == content.data.tobytes()
    assert other.size(PATH) == content.size
    into = [np.zeros(BLOCK, np.uint8), np.zeros(100, np.uint8)]
    other.read(PATH, 500, [one.data for one in into])
    assert (np.concatenate(into) == content.data[500 : 600 + BLOCK]).all()
    for error, offset in ((NotThere, 0), (Truncated, content.size)):
        with pytest.raises(error):
            other.read(PATH if offset else "checkpoint-7/none", offset, [into[1].data])
    other.delete(PATH)
    other.remove_folder("checkpoint-7")
    assert storage.list("") == ()
    assert other.size(PATH) is None, "the connection is as good as before"
    other.close()


def test_who_does_not_know_the_secret_is_turned_away(served: tuple[LocalStorage, int]) -> None:
    storage, port = served
    with pytest.raises(StorageError, match="another program answers at this address"):
        remote(port, secret=b"of another job").size(PATH)
    with socket.create_connection(("127.0.0.1", port)) as channel:  # who knows nothing, and asks all the same
        channel.sendall(bytes(16))
        channel.recv(48, socket.MSG_WAITALL)
        request = b'{"do": "delete", "path": "fence"}'
        channel.sendall(bytes(32) + len(request).to_bytes(4, "big") + request)
        with contextlib.suppress(ConnectionResetError):
            assert channel.recv(1) == b""
    assert storage.list("") == ()


def test_a_host_whose_memory_is_full_says_so() -> None:
    storage = MemoryStorage()
    storage.fail_operation("create", error=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    server, content = MemoryServer(storage, secret=SECRET), Content()
    other = remote(server.port)
    with pytest.raises(StorageError, match="the file system is full"):
        other.write(PATH, content)
    assert content.out == set()
    other.write(PATH, content)
    assert storage.size(PATH) == content.size
    server.close()
    other.close()
    with pytest.raises(StorageError, match="the connection failed"):
        other.size(PATH)


def test_a_writer_that_dies_leaves_no_file(served: tuple[LocalStorage, int]) -> None:
    storage, port = served

    class Dies(Content):
        def block(self, number: int) -> memoryview:
            if number == 1:
                raise ZeroDivisionError
            return super().block(number)

    with pytest.raises(ZeroDivisionError):
        remote(port).write(PATH, Dies())
    pause, deadline = threading.Event(), time.monotonic() + 60
    while storage.size(PATH) is not None:
        assert time.monotonic() < deadline, "half a copy stays"
        pause.wait(0.01)


def test_this_host_has_an_address() -> None:
    found = addresses_of_this_host({"MASTER_ADDR": "127.0.0.1"})
    assert found[0] == "127.0.0.1"
    assert socket.gethostname() in found
    assert peers.PATIENCE > 1


def test_the_folder_of_a_host_is_for_its_user_alone(tmp_path: Path) -> None:
    environ = {"ALLRANKS_MEMORY_FOLDER": str(tmp_path)}
    storage = hosts.open_folder("/runs/a", "node/7", environ=environ)
    user = tmp_path / f"allranks-{os.getuid()}"
    assert user.stat().st_mode & 0o777 == 0o700
    assert Path(storage.url).parent == user
    assert hosts.open_folder("/runs/b", "node/7", environ=environ).url != storage.url
    user.chmod(0o755)
    with pytest.raises(StorageError, match="expected mode 0700"):
        hosts.open_folder("/runs/a", "node/7", environ=environ)
    user.rename(tmp_path / "elsewhere")
    user.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="is not private to this user"):
        hosts.open_folder("/runs/a", "node/7", environ=environ)
    with pytest.raises(StorageError, match="Set ALLRANKS_MEMORY_FOLDER to a folder of another tmpfs"):
        hosts.open_folder("/runs/a", "a", environ={"ALLRANKS_MEMORY_FOLDER": str(tmp_path / "none")})


def test_strangers_who_say_nothing_do_not_shut_a_host_off(tmp_path: Path) -> None:
    """Each is waited for a moment only, and so many at a time; a rank of the job comes through behind them."""
    server = MemoryServer(LocalStorage(tmp_path), secret=SECRET, greeting=0.2)
    with contextlib.ExitStack() as strangers:
        strangers.callback(server.close)
        for _ in range(2 * peers._MOST_STRANGERS):
            strangers.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        strangers.callback((other := remote(server.port)).close)
        assert other.size(PATH) is None


def test_a_host_that_does_not_answer_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a save into memory costs the training a moment once, and not each time."""
    monkeypatch.setattr(peers, "_GREETING", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it never accepts
        other = remote(silent.getsockname()[1])
        with pytest.raises(StorageError, match="timed out"):
            other.size(PATH)
        monkeypatch.setattr(socket, "create_connection", None)
        with pytest.raises(StorageError, match=r"timed out \(the next attempt is later\)"):
            other.size(PATH)
