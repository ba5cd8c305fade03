"""Which host keeps whose copy: every shape of hosts and ranks, evaluated as values."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from allranks.checkpoint import paths
from allranks.checkpoint.memory import placement

SHAPES = [shape for hosts in range(1, 5) for shape in product(range(1, 4), repeat=hosts)]
NONCE = "0123456789abcdef0123456789abcdef"


def hosts_of(shape: tuple[int, ...], *, dealt: bool = False) -> list[str]:
    """The host of every rank; ``dealt`` in turn, as by a launcher that fills hosts cyclically."""
    hosts = [f"h{number}" for number, ranks in enumerate(shape) for _ in range(ranks)]
    return (
        sorted(hosts, key=lambda host: Counter(hosts[: hosts.index(host)])[host])
        if not dealt
        else hosts[::2] + hosts[1::2]
    )


def file_of(rank: int, size: int) -> str:
    return paths.shard_file_name(rank, size, NONCE)


@pytest.mark.parametrize("dealt", [False, True])
def test_the_loss_of_any_host_leaves_a_copy_of_every_part(dealt: bool) -> None:
    """And of any two that are no neighbours; of two neighbours, the parts of one are lost, and named."""
    for shape in SHAPES:
        hosts = hosts_of(shape, dealt=dealt)
        size, names = len(hosts), sorted({*hosts})
        held: dict[str, list[str]] = {host: [] for host in names}
        for rank, host in enumerate(hosts):
            held[host].append(file_of(rank, size))
            if (following := placement.neighbour_host(host, hosts)) is not None:
                held[following].append(file_of(rank, size))
        files = [file_of(rank, size) for rank in range(size)]
        for missing in product([False, True], repeat=len(names)):
            gone = {name for name, is_lost in zip(names, missing, strict=True) if is_lost}
            sound = {host: [] if host in gone else held[host] for host in names}
            choice = placement.choose_copies(files, sound, {})
            expected = {
                file_of(rank, size)
                for rank, host in enumerate(hosts)
                if host in gone and placement.neighbour_host(host, hosts) in (None, *gone)
            }
            assert {*choice.missing} == expected, (shape, gone)
            assert len(gone) > 1 or len(names) == 1 or not choice.missing
            assert all(host not in gone for there in choice.holders.values() for host in there)
            for name in choice.missing:
                said = paths.parse_shard_file(name)
                assert said is not None
                assert f"rank {said.rank}" in placement.describe_loss(choice, hosts)


def test_every_file_of_a_host_is_verified_by_one_of_its_ranks_and_served_by_one() -> None:
    for shape in SHAPES:
        hosts = hosts_of(shape)
        files = [file_of(rank, 9) for rank in range(9)]
        for host in {*hosts}:
            there = placement.ranks_on_host(host, hosts)
            shared = [name for rank in there for name in placement.files_to_verify(files, rank, hosts)]
            assert sorted(shared) == files
            assert [placement.is_first_on_host(rank, hosts) for rank in there] == [rank == min(there) for rank in there]
            assert all(placement.serving_rank(rank, host, hosts) in there for rank in range(len(hosts)))


def test_a_damaged_copy_is_named_and_the_other_one_is_read() -> None:
    files = [file_of(rank, 2) for rank in range(2)]
    choice = placement.choose_copies(files, {"a": files[:1], "b": files}, {"a": {files[1]: "bytes 0-9: changed"}})
    assert choice.holders == {files[0]: ("a", "b"), files[1]: ("b",)}
    assert choice.missing == ()
    assert choice.notes == ("the part of rank 1 in the memory of host a is damaged: bytes 0-9: changed",)
