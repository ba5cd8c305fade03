"""Reports of any size and content: a failure is never lost, no datagram ends the launcher, no text forges a line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks import agent
from allranks.failure import Failure, failure_of
from allranks.launch import control_socket, typed_json
from allranks.launch.console import Console
from allranks.launch.control_socket import ControlSocket
from allranks.launch.engines import local
from allranks.launch.events import Joined, RankFailed
from allranks.launch.hosts.coordinator import Coordinator
from allranks.launch.job import Job, Script
from allranks.launch.limits import Limits
from allranks.launch.placement import Placement
from allranks.launch.summary import summary

control_of_rank: Any = agent.load("allranks_agent_control")
failures_of_rank: Any = agent.load("allranks_agent_failure")
PLACEMENT = Placement(("h",), (2,))
FAILURE = {"rank": 0, "host": "h", "what": "ValueError: bad row", "when": 1.0}


def datagram(**fields: object) -> bytes:
    return json.dumps({"kind": "failed", "rank": 0, **fields}).encode()


REFUSED = {
    "no text": b"\xff\x00junk",
    "no record": b"[]",
    "text": b'"x"',
    "nothing": b"",
    "deep lists": b"[" * 100_000,
    "deep records": b'{"a":' * 40_000,
    "infinity": b'{"kind":"left","rank":Infinity,"time":1}',
    "not a number": b'{"kind":"left","rank":0,"time":NaN}',
    "a float without end": b'{"kind":"left","rank":0,"time":1e999}',
    "a number of 4000 digits": b'{"kind":"joined","rank":' + b"9" * 4000 + b"}",
    "a text of 5000 digits": b'{"kind":"joined","rank":"' + b"9" * 5000 + b'"}',
    "no kind": b'{"rank":0}',
    "a list as kind": b'{"kind":[],"rank":0}',
    "rank 99": datagram(kind="joined", rank=99),
    "rank -7": datagram(kind="joined", rank=-7),
    "a failure of rank 99": datagram(failure={**FAILURE, "rank": 99}),
    "a failure of rank -1": datagram(failure={**FAILURE, "rank": -1}),
    "a failure of other types": datagram(failure={"rank": "zero", "host": None, "what": 7, "when": "now"}),
    "a failure without time": datagram(failure={"rank": 0, "host": "h", "what": "w"}),
    "a failure that is a text": datagram(failure="bad row"),
    "no failure": datagram(),
    "an exit code of 10**30": datagram(failure={**FAILURE, "exit_code": 10**30}),
    "a culprit that is none": datagram(kind="hang", culprits=[0, 5], lines=[], is_over=False),
    "lines that are none": datagram(kind="hang", culprits=[0], lines=[["x"]], is_over=False),
    "a hang without lines": datagram(kind="hang", culprits=[0], is_over=False),
    "a pid that is none": datagram(kind="started", pid="12"),
    "a step that is none": datagram(kind="saved", step=1.5),
    "samples that are none": datagram(kind="waits", samples="1", waits=0, begun=0, period=1.0),
}


@pytest.fixture
def control() -> Iterator[ControlSocket]:
    with ControlSocket(PLACEMENT) as opened:
        yield opened


def send(control: ControlSocket, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(data, control.path)


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_a_bad_datagram_is_refused_and_counted(control: ControlSocket, data: bytes) -> None:
    send(control, data)
    send(control, datagram(kind="joined", rank=1))
    assert control.reports() == [Joined(1)]
    assert control.refused == 1
    assert control.refusal_note().startswith("not a report of a rank, and ignored (1 so far): b'")
    assert control.refusal_note() == ""


def test_a_flood_of_datagrams_leaves_time_for_other_work(
    control: ControlSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender of the test would block: the kernel keeps ten datagrams."""
    monkeypatch.setattr(control_socket, "MOST_AT_ONCE", 3)
    for _ in range(8):
        send(control, b"junk")
    notes = []
    for _ in range(4):
        assert control.reports() == []
        notes.append(control.refusal_note())
    assert [bool(note) for note in notes] == [True, True, True, False]
    assert control.refused == 8


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "0", "x\n\x1b[2J", "jax"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["rank", "kind", "what"]), inner),
    max_leaves=4,
)
KINDS = ["started", "sigterm", "saved", "waits", "hang", "joining", "joined", "left", "leaving", "exiting", "failed"]
NAMES = ["rank", "time", "pid", "saves", "step", "samples", "waits", "begun", "period", "culprits", "lines", "is_over"]
FAILURES = st.fixed_dictionaries(
    {"rank": st.integers(-1, 2) | VALUES, "host": st.just("h") | VALUES, "what": st.text(max_size=5) | VALUES},
    optional={"when": st.floats(0, 10) | VALUES, "exit_code": VALUES, "where": VALUES, "traceback": VALUES},
)
REPORTS = st.fixed_dictionaries(
    {"kind": st.sampled_from(KINDS), "rank": st.integers(-1, 2)},
    optional={**dict.fromkeys(NAMES[1:], st.just(1) | VALUES), "failure": FAILURES | VALUES, "exit_code": VALUES},
)


@settings(max_examples=30)
@given(st.lists(REPORTS, max_size=6))
def test_no_report_ends_the_launcher(sent: list[dict[str, object]]) -> None:
    """Whatever is accepted has the types of its record, and the job can be decided, and summarised."""
    coordinator = Coordinator(PLACEMENT, now=0.0, limits=Limits(), wall=lambda: 1.0)
    for number, fields in enumerate(sent):
        try:
            report = control_socket.read(json.dumps(fields).encode(), PLACEMENT)
        except ValueError:
            continue
        if report is not None and not isinstance(report, control_socket.AgentStarted):
            coordinator.on(report, float(number))
    end = coordinator.ending()
    assert end.first_failure is None or 0 <= end.first_failure.rank < 2


def test_a_record_has_the_types_of_its_fields() -> None:
    """Other values, and unknown kinds of records, are refused; unknown fields are ignored."""
    assert typed_json.typed({**FAILURE, "new": 1}, Failure) == Failure(**FAILURE)  # type: ignore[arg-type]
    assert typed_json.typed(3, float) == 3.0
    for value, hint in ((True, int), (1.0, int), (2**63, int), (10**400, float), ({"rank": 0}, Failure), ("x", bool)):
        with pytest.raises(ValueError):  # noqa: PT011 - of every kind
            typed_json.typed(value, hint)


class HugeError(Exception):
    def __str__(self) -> str:
        return "\x1b" * 300_000


@pytest.mark.parametrize("text", ["\x1b", "\U0001f600", "\ud800", "line\n"])
def test_a_failure_of_any_size_arrives(
    text: str, control: ControlSocket, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its beginning and end: characters that need six bytes in JSON, too, after causes of the same size."""
    monkeypatch.setenv("ALLRANKS_CONTROL", control.path)
    monkeypatch.setenv("ALLRANKS_RANK", "0")
    try:
        try:
            raise ValueError("first " + text * 300_000 + " last")
        except ValueError as cause:
            raise HugeError from cause
    except HugeError as error:
        failure = json.loads(failure_of(error, rank=0, host="h").to_json())
    assert control_of_rank.send("failed", failure=failure, waits=False)
    (report,) = control.reports()
    assert isinstance(report, RankFailed)
    assert report.failure.what.startswith("HugeError: \\x1b") or "HugeError: \\x1b" in report.failure.what
    assert report.failure.traceback.startswith("Traceback (most recent call last)")
    assert capfd.readouterr().err == ""


def test_a_failure_is_reported_without_a_free_descriptor(
    control: ControlSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLRANKS_CONTROL", control.path)
    monkeypatch.setenv("ALLRANKS_RANK", "0")
    control_of_rank.keep_spare()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    opened = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(highest + 1, 910), before[1]))
    try:
        with contextlib.suppress(OSError):
            while len(opened) < 2000:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        assert len(opened) < 2000
        assert control_of_rank.send("joined")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for fd in opened:
            os.close(fd)
    assert control.reports() == [Joined(0)]


HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\u202eFAKE\nfirst failure: rank 7\r::error::x"


def test_a_failure_forges_no_line_and_no_code_of_the_launcher() -> None:
    """Whatever its parts contain, as they come from the control socket: only the headline begins with its words."""
    failure = Failure(0, HOSTILE, HOSTILE, 1.0, where=HOSTILE, thread=HOSTILE, traceback=f"Traceback:\n{HOSTILE}")
    with ControlSocket(PLACEMENT) as control:
        send(control, datagram(failure=json.loads(failure.to_json())))
        (report,) = control.reports()
    assert isinstance(report, RankFailed)
    coordinator = Coordinator(PLACEMENT, now=0.0, limits=Limits(), wall=lambda: 1.0)
    coordinator.on(report, 0.0)
    out = io.BytesIO()
    console = Console(2, out=out, color=False, live=False)
    for line in summary(_result(report.failure)):
        console.print_line(line)
    console.print_line(f"allranks: {coordinator.ending().first_failure}")
    console.close()
    text = out.getvalue().decode()
    assert [line for line in text.splitlines() if line.startswith("first failure: rank ")] == [text.splitlines()[0]]
    assert text.startswith("first failure: rank 0 ")
    assert not {c for c in text if not c.isprintable()} - {"\n"}
    assert "\x9b" not in text
    assert "\u202e" not in text


def _result(failure: Failure) -> Any:
    from allranks.launch.result import JobResult, RankResult

    ranks = tuple(RankResult(rank, "h", None, 1, reported=failure if rank == 0 else None) for rank in range(2))
    return JobResult(1, ranks, failure)


NAMED = """
import sys, time
class Silent(Exception):
    def __str__(self): raise RuntimeError("no text")
if sys.argv[1] == "text": raise Silent
raise type("Evil\\x1b[2J\\x9b2J\\nfirst failure: rank 7", (Exception,), {})("x" * 5_000_000)
"""


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["text", "name"])
def test_a_real_failure_with_a_hostile_class_is_reported_at_once(tmp_path: Path, kind: str) -> None:
    (tmp_path / "train.py").write_text(NAMED)
    out = io.BytesIO()
    console = Console(2, out=out, color=False, live=False)
    began = time.monotonic()
    result = local.run(Job(Script("train.py", (kind,)), 2, timeout=60), console, cwd=str(tmp_path))
    assert time.monotonic() - began < 30
    console.close()
    assert result.first_failure is not None
    said = {"text": "Silent: (its __str__ raises)", "name": "Evil\\x1b[2J\\x9b2J\\nfirst failure: rank 7: xxx"}[kind]
    assert result.first_failure.what.startswith(said)
    assert result.first_failure.where.endswith("train.py:5" if kind == "text" else "train.py:6")


def _raising(_: object) -> None:
    raise KeyError("of the program")


class CauseError(Exception):
    __cause__ = __context__ = property(_raising)  # type: ignore[assignment]


class TracebackError(Exception):
    __traceback__ = property(_raising)  # type: ignore[assignment]


class ClassError(Exception):
    __class__ = property(_raising)  # type: ignore[assignment]


class NotesError(Exception):
    __notes__ = property(_raising)


class BoolError(Exception):
    __bool__ = _raising


class Meta(type):
    __module__ = property(_raising)  # type: ignore[assignment]


class MetaError(Exception, metaclass=Meta):
    pass


def _with_notes() -> Exception:
    error = ValueError("m")
    error.__notes__ = 5  # type: ignore[assignment]
    return error


def _nested() -> Exception:
    error: Exception = ValueError("m")
    for _ in range(3000):
        error = ExceptionGroup("group", [error])
    return error


HOSTILE_EXCEPTIONS: dict[str, tuple[Any, str]] = {
    "cause": (lambda: CauseError("m"), "CauseError: m"),
    "traceback": (lambda: TracebackError("m"), "TracebackError: m"),
    "class": (lambda: ClassError("m"), "ClassError: m"),
    "notes": (lambda: NotesError("m"), "NotesError: m"),
    "notes that are no list": (_with_notes, "ValueError: m"),
    "bool": (lambda: BoolError("m"), "BoolError: m"),
    "metaclass": (lambda: MetaError("m"), "MetaError: m"),
    "nested": (_nested, "ExceptionGroup: group (1 sub-exception): ValueError: m"),
    "many": (
        lambda: ExceptionGroup("group", [ValueError("m") for _ in range(20_000)]),
        "ExceptionGroup: group (20000 sub-exceptions): ValueError: m",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE_EXCEPTIONS)
def test_an_exception_whose_attributes_raise_is_described(kind: str) -> None:
    make, says = HOSTILE_EXCEPTIONS[kind]
    began = time.process_time()
    try:
        try:
            raise make()
        except Exception as error:
            raise ValueError("after") from error
    except ValueError as error:
        failure = failures_of_rank.of(error)
        cause = failures_of_rank.of(failures_of_rank.frames.field(error, "__cause__"))
    assert cause["what"].endswith(says)
    assert failure["before"].endswith(says)
    assert cause["where"].partition(":")[0].endswith("test_reports.py")
    assert "Traceback (most recent call last)" in cause["traceback"]
    assert time.process_time() - began < 10


EXITS = """
import os, sys
class ExitError(Exception):
    def __str__(self): (os._exit if sys.argv[1] == "at once" else sys.exit)(9)
if sys.argv[1] != "code": raise ExitError
sys.exit(10**30)
"""


@pytest.mark.parametrize(
    ("kind", "code", "says"),
    [
        ("text", 1, "ExitError: (its __str__ raises)"),
        ("at once", 9, "ExitError: (its __str__ raises)"),
        ("code", 255, "left with exit code 255"),
    ],
)
def test_a_rank_ends_as_python_ends_it(tmp_path: Path, kind: str, code: int, says: str) -> None:
    """An exit code that is no C long is -1 for Python; an exit in `__str__` is no end of the program."""
    (tmp_path / "train.py").write_text(EXITS)
    console = Console(1, out=io.BytesIO(), color=False, live=False)
    result = local.run(Job(Script("train.py", (kind,)), 1, timeout=60), console, cwd=str(tmp_path))
    console.close()
    assert result.exit_code == code
    assert result.first_failure is not None
    assert result.first_failure.what == says


@pytest.mark.parametrize(
    ("code", "ends_with"),
    [(2**40, 0), (2**63, 255), (-(2**63), 0), (-(2**63) - 1, 255), (-1, 255), (True, 1), (None, 0), ("text", 1)],
)
def test_an_exit_code_is_that_of_python(code: object, ends_with: int) -> None:
    assert failures_of_rank.exit_code_of(SystemExit(code)) == ends_with
