"""One warm fork server serves several jobs; reserved ports are the job's own."""

from __future__ import annotations

import io
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.launch import fork_server_messages as messages
from allranks.launch.console import Console
from allranks.launch.engines import local
from allranks.launch.fork_server import ForkServer
from allranks.launch.job import Call, Command, Job, Module, Script, Target, from_json, target_of, to_json
from allranks.launch.ports import ReservedPorts


def test_a_warm_fork_server_runs_one_job_after_another(tmp_path: Path) -> None:
    """In forks of the same process, whose frameworks are imported once; a failed job does no harm to the next."""
    (tmp_path / "work.py").write_text(
        "import os, sys\n"
        "def load(): import tomllib\n"
        "def say(word): print(word, os.environ['RANK'], os.getppid(), 'tomllib' in sys.modules)\n"
        "def fail(): raise ValueError('bad row')\n"
    )
    path = os.pathsep.join([local.AGENT, str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    with ForkServer({**os.environ, "PYTHONPATH": path}) as fork_server:
        assert fork_server.prepare(Call("work:load")) == messages.Ready((), "")
        results, texts = [], []
        for call in (Call("work:say", '["one"]'), Call("work:fail"), Call("work:say", '["two"]')):
            out = io.BytesIO()
            console = Console(2, out=out, color=False, live=False)
            results.append(local.run(Job(call, 2), console, cwd=str(tmp_path), fork_server=fork_server))
            console.close()
            texts.append(out.getvalue().decode())
        pid = fork_server.pid
    assert [result.exit_code for result in results] == [0, 1, 0]
    assert f"one 0 {pid} True" in texts[0]
    assert results[1].first_failure is not None
    assert results[1].first_failure.what == "ValueError: bad row"
    assert f"two 1 {pid} True" in texts[2]


@pytest.mark.parametrize("option", [socket.SO_REUSEADDR, socket.SO_REUSEPORT])
def test_a_reserved_port_is_given_to_nobody_else_but_a_rank_can_listen_on_it(option: int) -> None:
    """torch's store sets the one option, gRPC the other."""
    with ReservedPorts(2) as ports:
        number = ports.numbers[0]
        assert len(set(ports.numbers)) == 2
        with socket.socket() as plain, pytest.raises(OSError, match="in use"):
            plain.bind(("127.0.0.1", number))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, option, 1)
            server.bind(("127.0.0.1", number))
            server.listen()
            with socket.create_connection(("127.0.0.1", number), timeout=5):
                server.accept()[0].close()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TARGET = st.one_of(
    st.builds(Script, TEXT, st.lists(TEXT).map(tuple)),
    st.builds(Module, TEXT, st.lists(TEXT).map(tuple)),
    st.builds(Call, TEXT),
    st.builds(Command, st.lists(TEXT, min_size=1).map(tuple)),
)


@settings(max_examples=30)
@given(TARGET, st.dictionaries(TEXT, TEXT))
def test_an_order_arrives_as_it_was_sent(what: Target, env: dict[str, str]) -> None:
    """With its descriptors, and an environment of any length."""
    ours, theirs = messages.socket_pair()
    env["LONG"] = "x" * 300_000
    with ours, theirs:
        spawn = messages.Spawn(3, to_json(what), "/", env)
        messages.Outbox(ours).put(spawn, [os.open(os.devnull, os.O_WRONLY) for _ in range(2)])
        got = messages.receive(theirs)
        assert got is not None
        assert got[0] == spawn
        assert from_json(spawn.target) == what
        assert len(got[1]) == 2
        for fd in got[1]:
            os.close(fd)
        ours.close()
        assert messages.receive(theirs) is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train.py", "-m", "x"], Script("train.py", ("-m", "x"))),
        (["python", "train.py", "a"], Script("train.py", ("a",))),
        (["python", "-m", "pkg.train", "a"], Module("pkg.train", ("a",))),
        (["python", "-O", "train.py"], Command(("python", "-O", "train.py"))),
        (["other/python", "train.py"], Command(("other/python", "train.py"))),
        (["uv", "run", "train.py"], Command(("uv", "run", "train.py"))),
        (["python"], Command(("python",))),
    ],
)
def test_a_command_line_is_read_as_a_target(words: list[str], expected: Target) -> None:
    assert target_of(words, pythons=["python"]) == expected
