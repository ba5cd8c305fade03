"""Very many ranks are refused before the first start if the host cannot hold them. No side waits for the other."""

from __future__ import annotations

import io
import math
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from allranks.cli.main import main
from allranks.launch import fork_server_messages as messages
from allranks.launch.capacity import LEAST_MEMORY_OF_A_RANK, HostCapacity, shortage
from allranks.launch.console import Console
from allranks.launch.engines import local
from allranks.launch.job import Command, Job

GB = 1_000_000_000


@pytest.mark.parametrize(
    ("ranks", "host", "expected"),
    [
        (10**6, HostCapacity(), ""),
        (400, HostCapacity(1024, 24), ""),
        (
            600,
            HostCapacity(1024, 24),
            "at most 484 can: open files: 600 x 2 + 32 needed, 1,024 allowed (ulimit -Hn), 24",
        ),
        (600, HostCapacity(processes=512, processes_limit="ulimit -u", running=12), "at most 500 can: processes: 600"),
        (
            600,
            HostCapacity(memory=2 * GB),
            "at most 400 can: memory: 600 x 5 MB = 3.0 GB needed at least, 2.0 GB avail",
        ),
        (600, HostCapacity(40, 20, memory=2 * GB), "at most 0 can: open files: 600 x 2 + 32 needed, 40 allowed"),
    ],
)
def test_ranks_are_counted_against_what_the_host_has(ranks: int, host: HostCapacity, expected: str) -> None:
    found = shortage(ranks, host)
    assert expected in found
    assert bool(found) == bool(expected)


@pytest.mark.parametrize(
    ("source", "options", "megabytes"),
    [
        ("import os, torch.nn", [], 10),
        ("import os, torch.nn", ["--no-zygote"], 148),
        ("from jax import numpy\nimport torch", ["--no-zygote"], 148),
        ("from jax import numpy", [], 13),
        ("import numpy as np", ["--no-zygote"], 14),
        ("def f():\n    import torch", [], 5),
        ("if x:\n    import torch", ["--no-zygote"], 7),
        ("from . import torch\nfrom .torch import x", [], 5),
        ("not Python", [], 5),
        ("\0", [], 5),
    ],
)
def test_the_memory_of_a_rank_is_that_of_what_its_program_imports(
    source: str, options: list[str], megabytes: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At least: only imports that every start makes count."""
    script = tmp_path / "train.py"
    script.write_text(source)
    with pytest.raises(SystemExit):
        main(["run", "-n", "10000000", *options, str(script)])
    assert f"memory: 10,000,000 x {megabytes} MB = " in capsys.readouterr().err


def test_log_files_need_descriptors_too() -> None:
    host = HostCapacity(1024, 24)
    assert shortage(400, host) == ""
    assert "at most 322 can: open files: 400 x 3 + 32" in shortage(400, host, with_logs=True)


def test_a_hundred_thousand_ranks_are_refused_with_the_arithmetic(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    with pytest.raises(SystemExit) as ended:
        main(["run", "-n", "10000000", str(script)])
    assert ended.value.code == 2
    needed = 10_000_000 * LEAST_MEMORY_OF_A_RANK / GB
    assert f"memory: 10,000,000 x 5 MB = {needed:,.1f} GB needed" in capsys.readouterr().err


def test_a_message_waits_for_its_reader_and_its_writer_does_not() -> None:
    """Of any length; the descriptors of a rank that starts are closed once they are sent."""
    ours, theirs = messages.socket_pair()
    sent = [messages.Kill(tuple(range(9000)), signal.SIGTERM, tuple(range(9000))), *map(_started, range(3000))]
    with ours, theirs:
        outbox = messages.Outbox(ours)
        for message in sent:
            outbox.put(message)
        reader, writer = os.pipe()
        outbox.put(messages.Spawn(1, "{}", "/", {}), [writer])
        assert not outbox.is_empty
        got = []
        while len(got) < len(sent) + 1:
            received = messages.receive(theirs)
            assert received is not None
            got.append(received[0])
            for fd in received[1]:
                os.close(fd)
            outbox.flush()
        assert got[:-1] == sent
        assert outbox.is_empty
        assert os.read(reader, 1) == b""
        os.close(reader)


def _started(rank: int) -> messages.Started:
    return messages.Started(rank, rank, float(rank))


@contextmanager
def soft_limit(files: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def narrow_pair() -> tuple[socket.socket, socket.socket]:
    """Return sockets that hold few messages: with these, 40 ranks are as many as 600."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for one in pair:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    return pair


def test_neither_side_waits_for_the_other_to_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a soft limit of descriptors that is too low for the launcher. The ranks have this limit."""
    monkeypatch.setattr(messages, "socket_pair", narrow_pair)
    program = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    used = len(os.listdir("/proc/self/fd"))
    out = io.BytesIO()
    console = Console(40, out=out, color=False, live=False)
    with soft_limit(used + 50):
        result = local.run(Job(Command((sys.executable, "-Sc", program)), 40, timeout=60), console, cwd=str(tmp_path))
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == used + 50
    console.close()
    assert (result.exit_code, result.cause) == (0, "")
    text = re.sub(r"\[.*?\] +", "", out.getvalue().decode())
    assert set(text.split()) == {str(used + 50)}


def run_ranks(ranks: int, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "allranks", "run", "-q", "-n", str(ranks), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.soak
@pytest.mark.parametrize("ranks", [64, 400, 600])
def test_hundreds_of_ranks_start_and_end(ranks: int, tmp_path: Path) -> None:
    script = tmp_path / "tiny.py"
    script.write_text("import os\nprint(os.environ['WORLD_SIZE'])\n")
    with run_ranks(ranks, str(script)) as process:
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "cannot send" not in out
    assert {line.split()[-1] for line in out.splitlines()} == {str(ranks)}


@pytest.mark.soak
@pytest.mark.parametrize("started", [1, 200, 400])
def test_sigterm_ends_400_ranks_at_any_time(started: int, tmp_path: Path) -> None:
    """While they start, too: no rank counts as killed from outside."""
    script = tmp_path / "wait.py"
    script.write_text("import os, time\nprint('rank', os.environ['RANK'], flush=True)\ntime.sleep(600)\n")
    with run_ranks(400, str(script)) as process:
        assert process.stdout is not None
        for _ in range(started):
            process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        out = process.stdout.read()
    assert process.returncode == 143, out[-2000:]
    assert "killed from outside" not in out


def test_nothing_is_refused_where_nothing_limits() -> None:
    assert HostCapacity().descriptors == math.inf
    assert shortage(100_000, HostCapacity()) == ""
