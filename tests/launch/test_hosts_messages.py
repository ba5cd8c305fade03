"""What launchers send each other arrives as it was, and what is no message is refused without harm."""

from __future__ import annotations

import contextlib
import errno
import select
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.failure import Failure
from allranks.launch.events import (
    EVENTS,
    Joined,
    LocateRanks,
    Print,
    RankExited,
    RankFailed,
    RankLeft,
    SaveReport,
    Signal,
    Terminated,
    Tick,
)
from allranks.launch.hosts import messages
from allranks.launch.hosts.admission import Admission, proof_of
from allranks.launch.hosts.gathering import Gathering
from allranks.launch.hosts.limits import HostLimits
from allranks.launch.hosts.links import LinkEnd, Links
from allranks.launch.limits import Phase
from allranks.launch.placement import Placement
from allranks.launch.result import RankResult

FAILURE = Failure(3, "h1", "ValueError: Zürich\n\x1b[31m", 12.5, traceback="a\nb")
MESSAGES = [
    messages.Challenge("aa"),
    messages.Hello("h1", 2, 1, job="7.0", proof="p", facts={"Python": "3.11"}),
    messages.Admitted(),
    messages.Admitted("wait"),
    messages.Plan(("a", "b"), (2, 1), 1, "job", 4, 5, restart=1, reason="why"),
    messages.Refusal("no", 143, is_final=True),
    messages.Happened((RankExited(3, -9, 1.0, ("last",)), RankFailed(FAILURE), Tick(frozenset({1})), Terminated(1))),
    messages.Happened((Joined(1), SaveReport(1, step=4), RankLeft(1, 2.0, FAILURE, why="saved"))),
    messages.Exiting((1, 2)),
    messages.Perform((Signal((1,), 9), Print("text"), LocateRanks("join", 3.0, (1,)))),
    messages.PhaseChanged(Phase.SETTLING, -1),
    messages.Ping(1.0, 2.0, -0.5),
    messages.Finished(1, FAILURE, "", (1, 2)),
    messages.HostResult((RankResult(1, "h", None, None), RankResult(2, "h", 4, -9, stopped=True, tail=("x",)))),
    messages.Goodbye(),
]
WRONG = [
    b"",
    b"[]",
    b"null",
    b"\xff",
    b"{" * 1000,
    b"[" * 100_000,
    b'{"kind":"Ping"}',
    b'{"kind":"Ping","sent":"x"}',
    b'{"kind":"Ping","sent":NaN}',
    b'{"kind":"Ping","sent":Infinity}',
    b'{"kind":"RankExited","rank":1,"wait_code":1,"when":1.0}',
    b'{"kind":"Happened","events":[{"kind":"Goodbye"}]}',
    b'{"kind":"Happened","events":[{"kind":"Joined","rank":true}]}',
    b'{"kind":"Happened","events":7}',
    b'{"kind":"PhaseChanged","phase":"nap","failed":1}',
    b'{"kind":"Perform","actions":[{"kind":"LocateRanks","reason":"fun","seconds":1.0}]}',
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was(message: messages.Message) -> None:
    line = messages.encode(message)
    assert line.count(b"\n") == 1
    assert messages.decode(line) == message


def test_the_table_has_every_kind() -> None:
    assert {type(message) for message in MESSAGES} == set(messages.Message.__args__)
    assert len(EVENTS) == 12


@pytest.mark.parametrize("line", WRONG, ids=lambda line: line[:40].decode(errors="replace"))
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of every kind
        messages.decode(line)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    try:
        messages.decode(data)
    except ValueError:
        return


@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_a_placement_has_every_rank_once(counts: list[int]) -> None:
    names = tuple(f"h{number}" for number in range(len(counts)))
    placement = Placement(names, tuple(counts))
    ranks = [rank for host in range(len(counts)) for rank in placement.ranks_on(host)]
    assert ranks == list(range(placement.size))
    assert all(rank in placement.ranks_on(placement.host_of(rank)) for rank in ranks)
    assert placement.by_host(ranks) == {host: tuple(placement.ranks_on(host)) for host in range(len(counts))}
    assert Placement.from_text(placement.to_text(), host=0) == placement


def hello(name: str, number: int = -1, **fields: object) -> messages.Hello:
    return messages.Hello(name, 2, number, **fields)  # type: ignore[arg-type]


def gathering(fewest: int = 3, most: int = 3) -> Gathering:
    return Gathering(hello("a", 0, facts={"Python": "3.11"}), fewest, most, 0.0, HostLimits(), ("a", "b", "c"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"number": 0}, "host x says that it is host 0, and so does host a. Give each host its own --host-rank."),
        ({"number": 1}, "host x says that it is host 1, and so does host b. Give each host its own --host-rank."),
        ({"number": 3}, "host x says that it is host 3: expected a number from 1 to 2."),
        ({"facts": {"Python": "3.12"}}, "host x: Python differs: expected 3.11 (as on host a), found 3.12."),
        ({"facts": {}}, "host x: Python differs: expected 3.11 (as on host a), found none."),
        ({"version": 99}, "host x: the launchers' protocol differs: expected version 1 (as on host a), found 99."),
    ],
)
def test_a_host_that_does_not_fit_stops_the_job_and_is_named(fields: dict[str, object], says: str) -> None:
    together = gathering()
    assert together.add(5, hello("b", 1, facts={"Python": "3.11"}), 1.0) == ("", "")
    refusal, obstacle = together.add(6, hello("x", **{"facts": {"Python": "3.11"}, **fields}), 1.0)  # type: ignore[arg-type]
    assert refusal == ""
    assert obstacle.startswith(says)


def test_hosts_are_ordered_by_number_and_the_missing_are_named() -> None:
    together = gathering()
    facts = {"Python": "3.11"}
    together.add(5, hello("c", 2, facts=facts, target="train.py --lr 2"), 1.0)
    assert together.missing() == "2 of 3 hosts are there; missing: host 1 (b)"
    assert not together.is_complete(100.0)
    assert together.is_over(600.0)
    together.add(6, hello("b", 1, facts=facts), 2.0)
    assert together.is_complete(2.0)
    assert together.crew().placement.hosts == ("a", "b", "c")
    assert together.crew().links == (None, 6, 5)
    assert together.different_targets() == ["host c runs `train.py --lr 2`, and host a runs ``"]
    assert together.add(7, hello("d", facts=facts), 3.0)[0] == "host d: all 3 hosts are there already."


def test_a_host_without_a_number_gets_a_free_one() -> None:
    together, facts = gathering(4, 4), {"Python": "3.11"}
    for link, one in enumerate((hello("x", facts=facts), hello("d", 3, facts=facts), hello("b", 1, facts=facts)), 5):
        assert together.add(link, one, 1.0) == ("", "")
    assert together.crew().placement.hosts == ("a", "b", "x", "d")


def test_fewer_hosts_will_do_after_the_last_call() -> None:
    together = gathering(2, 4)
    together.add(5, hello("b", facts={"Python": "3.11"}), 10.0)
    assert not together.is_complete(39.0)
    assert together.due == 40.0
    assert together.is_complete(40.0)


@pytest.fixture
def two_ends() -> object:
    """Return the links of host 0 with its admission, and a raw socket that is connected to them."""
    listener = socket.create_server(("127.0.0.1", 0))
    links = Links(listener)
    client = socket.create_connection(listener.getsockname())
    client.settimeout(10)
    yield links, client
    client.close()
    links.close()


def turn(links: Links, admission: Admission, until: object) -> None:
    for _ in range(200):
        for link, message in links.read(0.05):
            admission.receive(link, message, 0.0)
        if until():  # type: ignore[operator]
            return
    raise AssertionError("nothing happened")


@pytest.mark.parametrize(("key", "job", "is_in"), [("k", "7", True), ("no", "7", False), ("k", "8", False)])
def test_only_who_knows_the_key_and_the_job_gets_in(two_ends: object, key: str, job: str, is_in: bool) -> None:
    links, client = two_ends  # type: ignore[misc]
    said: list[str] = []
    admission = Admission(links, job="7", key="k", limits=HostLimits(), wall=lambda: 0.0, note=said.append)
    turn(links, admission, lambda: links.has_unread or bool(admission._nonces))
    file = client.makefile("rb")
    greeting = messages.decode(file.readline())
    client.sendall(messages.encode(hello("b", job=job, proof=proof_of(key, greeting.nonce))))  # type: ignore[union-attr]
    turn(links, admission, lambda: not admission._nonces)
    answer = messages.decode(file.readline())
    assert isinstance(answer, messages.Admitted if is_in else messages.Refusal)
    assert bool(admission.hellos) is is_in
    refused = "host b does not have the key of this job (ALLRANKS_JOB_KEY), and is refused"
    assert said == ([refused] if key == "no" else [])
    assert getattr(answer, "is_wrong_key", False) is (key == "no")


@pytest.mark.parametrize("proof", ["\u00e9", "\ud800"])
def test_a_proof_may_be_any_text(two_ends: object, proof: str) -> None:
    links, client = two_ends  # type: ignore[misc]
    admission = Admission(links, job="", key="", limits=HostLimits(), wall=lambda: 0.0)
    client.sendall(messages.encode(hello("b", proof=proof)))
    turn(links, admission, lambda: not admission._nonces and admission._heard == {})
    assert admission.hellos == {}


def test_a_host_that_comes_during_the_job_waits_or_is_refused(two_ends: object) -> None:
    links, client = two_ends  # type: ignore[misc]
    admission = Admission(links, job="", key="", limits=HostLimits(), wall=lambda: 0.0)
    for admission.closed, answer in (
        ("", messages.Admitted("later")),
        ("never", messages.Refusal("never", is_final=True)),
    ):
        admission.wait = "later"
        with socket.create_connection(client.getpeername()) as late:
            file = late.makefile("rb")
            turn(links, admission, lambda: len(admission._nonces) == 2)  # it and the other end of the fixture
            greeting = messages.decode(file.readline())
            late.sendall(messages.encode(hello("b", proof=proof_of("", greeting.nonce))))  # type: ignore[union-attr]
            turn(links, admission, lambda: len(admission._nonces) == 1)
            assert messages.decode(file.readline()) == answer


def test_a_stranger_has_to_say_hello_in_time(two_ends: object) -> None:
    """Also during a job, and whatever else it sends."""
    links, client = two_ends  # type: ignore[misc]
    admission = Admission(links, job="", key="", limits=HostLimits(silence=1.0), wall=lambda: 0.0)
    client.sendall(messages.encode(messages.Ping(1.0)))
    turn(links, admission, lambda: bool(admission._nonces))
    [stranger] = admission._nonces
    admission.receive(stranger, messages.Ping(1.0), 0.9)
    admission.receive(99, None, 1.1)
    assert [*admission._nonces] == [99]


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"\xff\n", b'{"kind":"Ping"}\n'])
def test_a_stranger_at_the_port_is_dropped(two_ends: object, data: bytes) -> None:
    links, client = two_ends  # type: ignore[misc]
    admission = Admission(links, job="", key="", limits=HostLimits(silence=1.0), wall=lambda: 0.0)
    client.sendall(data)
    turn(links, admission, lambda: not admission._nonces and not admission.hellos and admission._heard == {})
    assert links.read(0.0) == []


def test_a_launcher_with_no_room_for_strangers_does_not_spin() -> None:
    class Full(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            if room:
                return super().accept()
            raise OSError(errno.EMFILE, "Too many open files")

    room: list[bool] = []
    listener = Full()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    with contextlib.closing(Links(listener)) as links, socket.create_connection(listener.getsockname()) as client:
        link = links.add(client)
        assert links.read(10) == []
        assert select.select([links], [], [], 0) == ([], [], [])
        room.append(True)
        links.close_link(link)
        assert links.read(10) == [(link + 1, None)]


def test_a_large_message_and_the_end_of_a_link_arrive(two_ends: object) -> None:
    links, client = two_ends  # type: ignore[misc]
    other = Links()
    link = other.add(client)
    text = "x" * 3_000_000
    other.send(link, messages.Refusal(text))
    found: list[object] = []
    while not any(isinstance(message, messages.Refusal) for message in found):
        other.read(0.0)
        found += [message for _, message in links.read(0.05)]
    assert found == [None, messages.Refusal(text)]
    other.close()
    [(_, lost)] = links.read(10)
    assert lost == LinkEnd("its launcher has ended")
