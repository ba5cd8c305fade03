"""What idle TCP connections tell of ranks of other machines: how it becomes events, and over real connections."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys

import pytest

from allranks.world.peer_connections import (
    GIVE_UP_AFTER,
    REPORT_AFTER,
    PeerConnections,
    PeerEndpoint,
    PeerEvent,
    SilenceStates,
    describe_silence,
    is_cut_off,
    watched_ranks,
)

HOSTS = {0: "a", 1: "b", 2: "b", 3: "c"}
PATIENCE = 30.0


@pytest.mark.parametrize(
    ("machines", "most", "watched"),
    [
        (["a", "a"], 9, ()),
        (["a", "a", "b", "b", "c"], 9, (2, 3, 4)),
        (["a", "b", "a", "b"], 9, (1, 3)),
        (["a", "a", "b", "b", "c", "c"], 3, (2, 4)),
        (["a", "b", "c", "d"], 2, (1, 2)),
        (["", "b"], 9, ()),
        (["a", ""], 9, ()),
    ],
)
def test_ranks_of_other_machines_are_watched(machines: list[str], most: int, watched: tuple[int, ...]) -> None:
    """All of them, or the first of each machine where they are too many; none if a machine is unknown."""
    assert watched_ranks(machines, most=most) == watched


def test_a_silent_host_is_reported_once_and_given_up_once() -> None:
    states = SilenceStates()
    assert states.update({1: 1.0, 3: 1.0}) == ()
    assert states.update({1: REPORT_AFTER, 3: 1.0}) == (PeerEvent("silent", (1,), REPORT_AFTER),)
    assert states.update({1: REPORT_AFTER + 1, 3: 1.0}) == ()
    assert states.update({1: 0.5, 3: 1.0}) == (PeerEvent("answers", (1,), REPORT_AFTER + 1),)
    assert [one.kind for one in states.update({1: GIVE_UP_AFTER, 3: 1.0})] == ["silent", "lost"]
    assert states.update({1: GIVE_UP_AFTER + 1, 3: 1.0}) == ()


def test_silences_that_began_together_are_one_event() -> None:
    """Probes go out once a second: one host is seen silent a moment before the others."""
    states = SilenceStates()
    event = PeerEvent("silent", (1, 2, 3), REPORT_AFTER)
    assert states.update({1: REPORT_AFTER, 2: REPORT_AFTER - 1, 3: REPORT_AFTER - 2}) == (event,)
    assert states.update({1: REPORT_AFTER + 1, 2: REPORT_AFTER, 3: REPORT_AFTER - 1}) == ()


def test_a_connection_that_has_closed_is_no_answer() -> None:
    states = SilenceStates()
    states.update({1: REPORT_AFTER})
    assert states.update({}) == ()


def test_who_is_cut_off_is_named() -> None:
    """One host among several is; if none answers, it is our own; of two hosts, nobody can know."""
    some, every = PeerEvent("silent", (1, 2), 12.0), PeerEvent("silent", (1, 2, 3), 12.0)
    assert describe_silence(some, 0, HOSTS, 3).startswith("host b (ranks 1-2) has not answered for 12 s")
    assert describe_silence(every, 0, HOSTS, 3) == (
        "no other host has answered for 12 s: host a is cut off from the network"
    )
    assert not is_cut_off(PeerEvent("silent", (0,), 12.0), 1)
    again = PeerEvent("answers", (1, 3), 12.0)
    assert describe_silence(again, 0, HOSTS, 4) == "hosts b, c (ranks 1, 3) answer again after 12 s"


PEER = """
import os, sys, time
from allranks.world.peer_connections import PeerConnections, PeerEndpoint
rank = int(sys.argv[2])
peers = PeerConnections(rank, lambda event: print(event.kind, flush=True))
peers.watch(PeerEndpoint(("no.such.host.invalid", "127.0.0.1"), int(sys.argv[1]), sys.argv[3]), (1, 2))
while not peers.count:
    time.sleep(0.01)
if rank == 1 and os.fork() == 0:
    time.sleep(60)  # a worker process that outlives its rank
print("connected", flush=True)
time.sleep(60)
"""


def test_both_ends_learn_that_the_other_process_has_ended() -> None:
    """Also if a worker process that the killed rank has forked lives on; and a stranger is refused."""
    events: queue.Queue[PeerEvent] = queue.Queue()
    hub = PeerConnections(0, events.put)
    endpoint = hub.listen(["127.0.0.1"])
    hub.watch(PeerEndpoint(("127.0.0.1",), endpoint.port, endpoint.secret), (1, 2))
    arguments = (str(endpoint.port), endpoint.secret)
    peers = [
        subprocess.Popen(
            [sys.executable, "-c", PEER, arguments[0], str(rank), arguments[1]],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for rank in (1, 2)
    ]
    try:
        with socket.create_connection(("127.0.0.1", endpoint.port)) as stranger:
            stranger.sendall(b"x" * 32 + b"          1")
            assert stranger.recv(1) == b""
        for peer in peers:
            assert peer.stdout is not None
            assert peer.stdout.readline() == "connected\n"
        assert hub.reachable() == {1, 2}
        peers[0].kill()
        assert events.get(timeout=PATIENCE) == PeerEvent("closed", (1,))
        hub.stop()
        assert peers[1].stdout is not None
        assert peers[1].stdout.readline() == "closed\n"
    finally:
        hub.stop()
        for peer in peers:
            os.killpg(peer.pid, signal.SIGKILL)
            peer.communicate()
    assert events.empty()
