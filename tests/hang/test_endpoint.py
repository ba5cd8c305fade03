"""Which sockets of ranks ``allranks doctor job`` keeps, and which it removes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.hang import endpoint

ENDED = 2**22 + 7  # above the highest process id of Linux


def test_only_sockets_of_ended_ranks_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank of another container has a process id that means nothing here, or is another process's."""
    monkeypatch.setattr(endpoint, "socket_folder", lambda: tmp_path)
    here, elsewhere, dead = ((rank, pid) for rank, pid in enumerate((os.getpid(), ENDED, ENDED + 1)))
    sockets = []
    for rank, pid in (here, elsewhere, dead):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.bind(str(tmp_path / f"job.{rank}.{pid}"))
        one.listen()
        sockets.append(one)
    sockets[2].close()
    assert [(one.rank, one.pid) for one in endpoint.known_addresses()] == [here, elsewhere]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"job.{rank}.{pid}" for rank, pid in (here, elsewhere)
    )
    for one in sockets:
        one.close()


BUSY = """
import socket, sys, time
one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
one.bind(sys.argv[1])
one.listen(0)
clients = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2)]
for client in clients:
    client.setblocking(False)
    client.connect_ex(sys.argv[1])
print("full", flush=True)
time.sleep(60)
"""


def test_a_stopped_rank_of_another_container_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue of clients is full."""
    monkeypatch.setattr(endpoint, "socket_folder", lambda: tmp_path)
    path = tmp_path / f"job.0.{ENDED}"
    with subprocess.Popen([sys.executable, "-c", BUSY, path], stdout=subprocess.PIPE, text=True) as stopped:
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "full\n"
        assert [one.rank for one in endpoint.known_addresses()] == [0]
        assert path.exists()
        stopped.kill()
