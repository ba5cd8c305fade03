"""A job on one host listens on the loopback address alone. What somebody else puts into its store changes nothing."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from allranks import agent
from allranks.errors import KeyTimeout, StoreError
from allranks.launch.console import Console
from allranks.launch.engines import local
from allranks.launch.hosts.admission import store_key_of
from allranks.launch.hosts.messages import Plan, encode
from allranks.launch.job import Job, Script, Style
from allranks.world import departures
from allranks.world.signed_store import SignedStore, signed_store
from allranks.world.store import LocalStore

loopback = agent.load("allranks_agent_loopback")

JOIN_JAX = "import jax; jax.distributed.initialize(); jax.devices()\n"
JOIN_TORCH = "import torch.distributed as dist; dist.init_process_group('gloo'); dist.barrier()\n"
INIT = "import allranks; world = allranks.init(backend={!r})\n"
# The addresses at which this process listens, from the kernel: in hexadecimal, IPv6 as four words.
LISTENING = """
import os
files = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
inodes = {os.readlink(file) for file in files if os.path.lexists(file)}
for table in ("tcp", "tcp6"):
    for line in open(f"/proc/net/{table}").read().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
            print("listens", words[1].partition(":")[0])
"""
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def output_of(tmp_path: Path, program: str, style: Style = "default") -> tuple[int, str]:
    (tmp_path / "train.py").write_text(program)
    out = io.BytesIO()
    console = Console(2, out=out, color=False, live=False)
    result = local.run(Job(Script("train.py"), 2, style=style, timeout=60), console, cwd=str(tmp_path))
    console.close()
    return result.exit_code, out.getvalue().decode()


def addresses_of(tmp_path: Path, program: str, style: Style = "default") -> set[str]:
    code, out = output_of(tmp_path, program + LISTENING, style)
    assert code == 0, out
    return {line.split()[-1] for line in out.splitlines() if "listens" in line}


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    "program",
    [JOIN_JAX, pytest.param(JOIN_JAX + JOIN_TORCH, marks=[pytest.mark.soak, pytest.mark.needs("torch")])],
)
def test_scripts_that_do_not_know_allranks_listen_on_loopback(tmp_path: Path, program: str) -> None:
    """The coordinator of JAX, the store of torch, and gloo in both."""
    found = addresses_of(tmp_path, program)
    assert found
    assert found <= LOOPBACK


@pytest.mark.soak
@pytest.mark.parametrize("style", ["default", "torchrun", "slurm", "ompi"])
@pytest.mark.parametrize(
    "program",
    [
        *(pytest.param(one, marks=pytest.mark.needs("jax")) for one in (JOIN_JAX, INIT.format("jax"))),
        *(pytest.param(one, marks=pytest.mark.needs("torch")) for one in (JOIN_TORCH, INIT.format("torch"))),
    ],
)
def test_all_ways_to_join_listen_on_loopback(tmp_path: Path, program: str, style: Style) -> None:
    """Where the variables of a launcher do not say how to join, the program does, as such programs do."""
    if program == JOIN_JAX and style == "torchrun":
        program = program.replace("initialize()", "initialize('localhost:45678', 2, int(os.environ['RANK']))")
    if "torch" in program and style in ("slurm", "ompi"):
        address = "MASTER_ADDR='localhost', MASTER_PORT='45679', WORLD_SIZE='2', RANK=os.environ['ALLRANKS_RANK']"
        program = f"os.environ.update({address})\n{program}"
    program = f"import os\n{program}"
    found = addresses_of(tmp_path, program, style)
    assert found
    assert found <= LOOPBACK


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        *((one, True) for one in ("127.0.0.1:80", "127.9.9.9", "localhost", "localhost:80", "::1", "[::1]:80")),
        *((one, False) for one in ("node0:80", "10.0.0.1", "0.0.0.0:80", "[::]:80", "::", "localhost.example:1", "")),
    ],
)
def test_only_addresses_that_are_written_as_loopback_count(address: str, expected: bool) -> None:
    """The name of a host may be a loopback address on this host, and another address on the others."""
    assert loopback.is_loopback(address) == expected


def test_a_bind_address_of_the_user_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("localhost:80", [2, 0, None, None, 300, "[::]:80"], {})
    assert loopback.with_bind_address(*given) == given[1:]
    bind = {"coordinator_bind_address": "localhost:80"}
    assert loopback.with_bind_address("localhost:80", [2], {}) == ([2], bind)
    assert loopback.with_bind_address("localhost:80", [2, 0, None, None, 300, None, 9], {})[0][5] == "localhost:80"
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "[::]:80")
    assert loopback.with_bind_address("localhost:80", [2], {}) == ([2], {})


class ServedLocalStore(LocalStore):
    """A store that anybody can write, in one process."""

    def hear(self, key: str) -> bool:
        return bool(self.wait(key, 5.0))

    def serves(self) -> bool:
        return True

    def at_end(self, farewell: Callable[[], None]) -> None: ...

    def leave(self, stop: Callable[[], None]) -> None: ...


@pytest.fixture
def stores() -> tuple[ServedLocalStore, SignedStore, SignedStore]:
    """The store, as somebody else sees it, and as two ranks see it."""
    store = ServedLocalStore()
    ranks = [signed_store(store, {"ALLRANKS_STORE_KEY": "secret"}) for _ in range(2)]
    assert isinstance(ranks[0], SignedStore)
    assert isinstance(ranks[1], SignedStore)
    return store, ranks[0], ranks[1]


def test_ranks_read_what_ranks_write(stores: tuple[ServedLocalStore, SignedStore, SignedStore]) -> None:
    _, one, other = stores
    one.set("a/1", b"")
    assert other.get("a/1") == b""
    assert other.claim("a/1", b"mine") == b""
    assert other.claim("a/2", b"mine") == one.wait("a/2", 0.0) == b"mine"
    assert one.list("a/") == {"a/1": b"", "a/2": b"mine"}
    assert [one.add("n", 2), other.add("n", 3)] == [2, 5]
    other.delete("a/2")
    assert one.get("a/2") is None
    assert one.refused == other.refused == 0


@pytest.mark.parametrize("forged", [b"", b"1", b"has failed: \x1b[2Jspoofed", b"\xff" * 40])
def test_a_forged_value_counts_as_missing(
    stores: tuple[ServedLocalStore, SignedStore, SignedStore], forged: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    store, one, _ = stores
    for key in ("gone/1", "gone/zzz", "any_gone"):
        store.set(key, forged)
    assert departures.read_ended(one) == {}
    assert one.list("gone/") == {}
    with pytest.raises(KeyTimeout):
        one.wait("gone/1", 0.01)
    with pytest.raises(StoreError, match="'gone/1' is not signed by a rank of this job"):
        one.claim("gone/1", b"mine")
    assert one.refused >= 5
    assert "'any_gone' is not signed by a rank of this job, and is ignored (1 so far)" in capsys.readouterr().err
    departures.mark_ended(one, 1, "it has failed")
    store.delete("gone/zzz")
    assert departures.read_ended(one) == {1: "it has failed"}


def test_a_value_of_another_key_or_of_another_job_is_forged(
    stores: tuple[ServedLocalStore, SignedStore, SignedStore],
) -> None:
    store, one, _ = stores
    one.set("x/1/down", b"yes")
    copied = store.get("x/1/down")
    assert copied is not None
    store.set("x/2/down", copied)
    signed_store(store, {"ALLRANKS_STORE_KEY": "other"}).set("x/3/down", b"yes")
    assert [one.get(f"x/{number}/down") for number in (1, 2, 3)] == [b"yes", None, None]


def test_a_wait_goes_on_after_a_forged_value(stores: tuple[ServedLocalStore, SignedStore, SignedStore]) -> None:
    store, one, other = stores
    store.set("x/1/down", b"forged")
    real, naps = time.sleep, []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        other.set("x/1/down", b"right")
        real(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", sleep)
        assert one.wait("x/1/down", 30.0) == b"right"
    assert len(naps) == 1


def test_without_a_secret_the_store_is_the_frameworks() -> None:
    store = ServedLocalStore()
    assert signed_store(store, {}) is store
    assert isinstance(signed_store(store, {"ALLRANKS_JOB_KEY": "of the user, for all ranks"}), SignedStore)


def test_the_secret_of_hosts_that_share_a_key_is_in_no_message() -> None:
    plan = Plan(("a", "b"), (2, 2), 1, "job-1", 1, 2)
    key = store_key_of("key", plan)
    assert key != store_key_of("key", Plan(("a", "b"), (2, 2), 1, "job-2", 1, 2)) != store_key_of("other", plan)
    assert key.encode() not in encode(plan)
    assert store_key_of("", replace(plan, store_key="of one start")) == "of one start"


FORGE = {
    "torch": "import torch.distributed as dist, datetime\n"
    "store = dist.TCPStore(os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']), is_master=False)\n"
    "prefix = next(key for key in store.list_keys() if 'allranks' in key).partition('allranks')[0] + 'allranks/'\n"
    "put = lambda key, value: store.set(prefix + key, value)\n",
    "jax": "from jax._src.distributed import global_state\n"
    "set_bytes = global_state.client.key_value_set_bytes\n"
    "put = lambda key, value: set_bytes('allranks/' + key, value, allow_overwrite=True)\n",
}


OUTCOMES = f"for number in range(1, 9): put(f'x/{{number}}/down', {json.dumps({'result': 'forged'}).encode()!r})"
DEPARTURE = "put('gone/0', b'has failed'); put('any_gone', b'1')"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("forged", "unsigned", "signed"),
    [
        (DEPARTURE, "RankDied", "gathered (0, 1)"),
        (OUTCOMES, "gathered ('f', 'o', 'r', 'g', 'e', 'd')", "StoreError"),
    ],
    ids=["departure", "outcome"],
)
@pytest.mark.parametrize("backend", [pytest.param(one, marks=pytest.mark.needs(one)) for one in ("torch", "jax")])
@pytest.mark.parametrize("is_signed", [True, False])
def test_what_somebody_else_puts_into_the_store_decides_nothing(
    tmp_path: Path, backend: str, forged: str, unsigned: str, signed: str, is_signed: bool
) -> None:
    """A forged departure has no effect. A forged outcome ends the job, and no rank takes it for the right one."""
    attack = FORGE[backend] + forged + "\ntime.sleep(1)\n"
    program = (
        "import os, time\n"
        + ("" if is_signed else "del os.environ['ALLRANKS_STORE_KEY']\n")
        + INIT.format(backend)
        + "world.barrier()\n"
        + f"if world.rank == 1:\n    exec({attack!r})\n"
        + "print('gathered', world.all_gather(world.rank))\n"
    )
    _, out = output_of(tmp_path, program)
    assert (signed if is_signed else unsigned) in out
    assert (unsigned in out) != is_signed
    assert ("is not signed by a rank of this job" in out) == is_signed
