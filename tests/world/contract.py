"""The contract of a world: functions of (world) that every rank of any world runs, in this order.

As a program, ``python contract.py jax`` joins real ranks and runs all of them.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import allranks
from allranks import World
from allranks.errors import (
    AllranksError,
    BarrierTimeout,
    CollectiveOnOneRank,
    KeyTimeout,
    Mismatch,
    NotJsonable,
    RemoteError,
)

NESTED = {"": [1, -2.5, None, True, {"späť": ["日本", b"\x00\xff", []]}], "b": b"", "long": "x" * 1_000_000}


def nap(world: World, seconds: float) -> None:
    """Let time pass, on whatever clock the world has."""
    with pytest.raises(KeyTimeout):
        world.store.wait("nobody/sets/this", seconds)


def last(world: World) -> bool:
    return world.rank == world.size - 1


def knows_itself(world: World) -> None:
    assert 0 <= world.rank < world.size
    assert len(world.hosts) == world.size
    assert world.host == world.hosts[world.rank]
    assert world.is_main == (world.rank == 0)
    assert world.local_rank == world.hosts[: world.rank].count(world.host)
    assert repr(world).startswith(f"World(rank={world.rank}, size={world.size}, host=")


def barrier_and_broadcast(world: World) -> None:
    world.barrier()
    world.barrier("again", timeout=60)
    assert world.broadcast(f"from {world.rank}") == "from 0"
    assert world.broadcast(world.rank, root=world.size - 1) == world.size - 1
    assert world.broadcast(NESTED if world.is_main else object()) == NESTED
    with pytest.raises(AllranksError, match=f"root {world.size} is not a rank"):
        world.broadcast(1, root=world.size)


def gathers(world: World) -> None:
    ranks = tuple(range(world.size))
    assert world.all_gather(world.rank) == ranks
    assert world.gather([world.rank]) == (tuple([r] for r in ranks) if world.is_main else None)
    assert world.all_gather(None) == (None,) * world.size
    assert world.all_gather((1, (b"x", "ü"))) == ([1, [b"x", "ü"]],) * world.size


def decisions(world: World) -> None:
    assert world.any(world.rank == 0) is True
    assert world.any(False) is False
    assert world.all(True) is True
    assert world.all(world.rank > 0) is False
    assert world.min(world.rank) == 0
    assert world.max(world.rank / 2) == (world.size - 1) / 2
    assert world.agree({"step": 3, "digest": b"\x01"}) == {"step": 3, "digest": b"\x01"}


def agree_names_who_differs(world: World) -> None:
    if world.size == 1:
        return
    with pytest.raises(Mismatch, match="ranks hold different values") as caught:
        world.agree("odd" if last(world) else "even", name="parity")
    assert "agree 'parity'" in str(caught.value)
    assert f'rank {world.size - 1}: "odd"' in str(caught.value)
    assert caught.value.ranks == ((world.size - 1,) if world.size > 2 else (0, 1))


def a_value_of_no_json_type_is_refused_by_name(world: World) -> None:
    for value, place in (
        ({"a": [1, {2}]}, r"\['a'\]\[1\] is a builtins.set"),
        ({1: 2}, "has the key 1"),
        (1j, "complex"),
    ):
        with pytest.raises(NotJsonable, match=place):
            world.all_gather(value, name="odd")
    world.barrier("still in step")


def on_main_tells_all(world: World) -> None:
    calls: list[int] = []
    assert world.on_main(lambda a, *, b: (calls.append(a), [a + b, b"x"])[1], 1, b=2) == [3, b"x"]
    assert calls == ([1] if world.is_main else [])
    assert world.on_main(lambda: world.on_main(lambda: "inner")) == "inner"


def on_main_raises_on_all(world: World) -> None:
    def fail() -> None:
        raise ZeroDivisionError("no rows")

    with pytest.raises(ZeroDivisionError if world.is_main else RemoteError, match="no rows") as caught:
        world.on_main(fail)
    if isinstance(caught.value, RemoteError):
        assert caught.value.remote_type == "ZeroDivisionError"
        assert "in fail" in caught.value.remote_traceback
        assert caught.value.ranks == (0,)
    with pytest.raises(NotJsonable if world.is_main else RemoteError, match="object"):
        world.on_main(object)
    world.barrier("still in step")


def a_collective_on_one_rank_raises(world: World) -> None:
    with pytest.raises(CollectiveOnOneRank if world.is_main else RemoteError, match="barrier 'alone'"):
        world.on_main(lambda: world.barrier("alone"))
    world.barrier("still in step")


def different_calls_raise_on_all(world: World) -> None:
    if world.size == 1:
        return
    call = (lambda: world.any(True, name="stop")) if last(world) else (lambda: world.barrier("epoch"))
    with pytest.raises(Mismatch, match="came with different calls") as caught:
        call()
    assert "barrier 'epoch'" in str(caught.value)
    assert f"rank {world.size - 1}: any 'stop'" in str(caught.value)
    assert caught.value.ranks == ((world.size - 1,) if world.size > 2 else (0, 1))
    world.barrier("still in step")


def a_late_rank_is_named_and_gets_the_same_error(world: World) -> None:
    if world.size == 1:
        return
    if last(world):
        nap(world, 2.0)
    with pytest.raises(BarrierTimeout) as caught:
        world.barrier("late", timeout=0.5)
    assert caught.value.ranks == (world.size - 1,)
    assert f"rank {world.size - 1} did not come within 0.5 s" in str(caught.value)
    place = "gave no sign" if world.backend == "simulated" else "contract.py:"
    assert place in str(caught.value)
    world.barrier("all again", timeout=60)


def the_store_keeps_its_port(world: World) -> None:
    """Keys of words; bytes as they are; one winner of a claim, one sum of a counter, over all ranks."""
    store, me = world.store, f"port/{world.rank}"
    assert store.get(me) is None
    store.set(me, b"first")
    store.set(me, bytes(range(256)))
    assert store.get(me) == store.wait(me, 5) == bytes(range(256))
    store.set(f"{me}/empty", b"")
    assert store.wait(f"{me}/empty", 5) == b""
    won = store.claim("claimed", f"rank {world.rank}".encode())
    assert won == store.get("claimed") == world.broadcast(won)
    counts = world.all_gather(store.add("counter", 2))
    assert sorted(counts) == [2 * (rank + 1) for rank in range(world.size)]
    assert store.wait(f"port/{world.size - 1}", 5) == bytes(range(256))
    assert store.list("port/") == {
        f"port/{rank}{end}": value
        for rank in range(world.size)
        for end, value in (("", bytes(range(256))), ("/empty", b""))
    }
    world.barrier("listed")
    store.delete(f"{me}/empty")
    store.delete(me)
    store.delete(me)
    assert store.get(me) is None
    with pytest.raises(KeyTimeout, match=me):
        store.wait(me, 0.01)
    world.barrier("deleted")
    assert store.list("port/") == {}


def a_large_value_travels(world: World) -> None:
    """Also where the store takes 8 MiB at once, and a longer value costs it the connection."""
    text = "z" * 9_000_000
    assert world.broadcast(text if world.is_main else None) == text
    assert [len(part) for part in world.all_gather("y" * 5_000_000)] == [5_000_000] * world.size
    won = world.store.claim("large", f"{world.rank}".encode() * 9_000_000)
    assert len(won) == 9_000_000
    assert won == world.store.get("large")
    assert world.agree(won[:1].decode()) == won[:1].decode()
    if won[:1] == f"{world.rank}".encode():
        world.store.set("large", b"small now")
    world.barrier("set again")
    assert world.store.wait("large", 5) == b"small now"
    assert not world.store.list("parts/")


def a_forked_child_is_refused(world: World) -> None:
    """It shares the connection of its parent, whose next call would get its answer."""
    if world.backend in ("single", "simulated"):
        return
    with warnings.catch_warnings(action="ignore"):  # of forks beside threads
        child = os.fork()
    if child == 0:
        try:
            world.all_gather("child", timeout=8)
        except AllranksError as error:
            os._exit(0 if f"was forked from process {os.getppid()}, which is rank {world.rank}" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert world.all_gather(f"parent {world.rank}") == tuple(f"parent {rank}" for rank in range(world.size))


def nothing_is_left_behind(world: World) -> None:
    for i in range(30):
        world.all_gather(i)
    nap(world, 0.2)
    assert len(world.store.list("x/")) <= 3 * world.size


CONTRACT: tuple[Callable[[World], None], ...] = (
    knows_itself,
    the_store_keeps_its_port,
    barrier_and_broadcast,
    gathers,
    decisions,
    agree_names_who_differs,
    a_value_of_no_json_type_is_refused_by_name,
    on_main_tells_all,
    on_main_raises_on_all,
    a_collective_on_one_rank_raises,
    different_calls_raise_on_all,
    a_late_rank_is_named_and_gets_the_same_error,
    a_large_value_travels,
    a_forked_child_is_refused,
    nothing_is_left_behind,
)


def main(*arguments: Any) -> None:
    world = allranks.init(*arguments, timeout=60)
    assert allranks.current() is world
    for check in CONTRACT:
        check(world)
    print(f"kept {len(CONTRACT)} of the contract")


if __name__ == "__main__":
    main(*sys.argv[1:])
