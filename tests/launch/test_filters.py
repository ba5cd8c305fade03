"""Which lines of ranks are not shown: library noise, and most lines of the peers of a rank that failed."""

from __future__ import annotations

import io
from pathlib import Path

from allranks.launch.console import Console
from allranks.launch.filters import SHOWN, PeerLimit, without_noise

CONNECTED = b"[Gloo] Rank 3 is connected to 7 peer ranks. Expected number of connected peer ranks is : 7"


def test_a_line_that_reports_trouble_is_no_noise() -> None:
    """All peers are there: noise. One is missing, or somebody quotes the line: not."""
    short = CONNECTED.replace(b"to 7", b"to 6")
    quoted = b"hint: " + CONNECTED
    assert without_noise([b"one", CONNECTED, short, quoted, b"", CONNECTED + b"1"]) == [
        b"one",
        short,
        quoted,
        b"",
        CONNECTED + b"1",
    ]


def test_the_interleaved_lines_of_two_devices_are_noise_too() -> None:
    """Their lines come in pieces; what stands between them does not."""
    interleaved = [
        b"[Gloo] Rank 1[Gloo] Rank 0 is connected to  is connected to 77 peer ranks. ",
        b" peer ranks. Expected number of connected peer ranks is : 7",
    ]
    assert without_noise([*interleaved, b"77", b"7 peer ranks. "]) == [b"77", b"7 peer ranks. "]


def test_noise_is_kept_in_the_log_files_only(tmp_path: Path) -> None:
    """Not on the screen, not among a rank's last lines."""
    out = io.BytesIO()
    shown = Console(2, out=out, color=False, live=False, log_dir=tmp_path)
    shown.feed(1, "out", b"one\n" + CONNECTED[:20], 0.0)
    shown.feed(1, "out", CONNECTED[20:] + b"\ntwo\n", 0.1)
    shown.close()
    assert out.getvalue() == b"[1]   one\n[1]   two\n"
    assert shown.tail(1) == ("one", "two")
    assert (tmp_path / "rank-1.log").read_bytes() == b"one\n" + CONNECTED + b"\ntwo\n"


def test_before_a_failure_all_is_shown_and_after_it_a_little_of_the_others() -> None:
    limit = PeerLimit()
    many = [str(number).encode() for number in range(SHOWN + 5)]
    assert limit.visible(1, many) == many
    limit.start(0)
    assert limit.visible(0, many) == many
    assert limit.visible(1, many[:4]) + limit.visible(1, many[4:]) == many[:SHOWN]
    assert limit.visible(2, many) == many[:SHOWN]
    assert limit.count() == "10 more lines of [1-2] after the failure"


def test_the_report_of_a_hang_is_shown_whole_after_the_failure() -> None:
    limit = PeerLimit()
    limit.start(0)
    report = [f"allranks: {number}".encode() for number in range(SHOWN + 5)]
    assert limit.visible(1, report) == report
    assert limit.count() == ""


def test_without_hidden_lines_there_is_no_report() -> None:
    limit = PeerLimit()
    limit.start(0)
    limit.visible(1, [b"one"])
    assert limit.count() == ""


def test_hidden_lines_are_in_the_log_files_and_in_the_tail(tmp_path: Path) -> None:
    """The console says where they are; unfinished text at the end of a stream counts too."""
    out = io.BytesIO()
    console = Console(2, out=out, color=False, live=False, log_dir=tmp_path)
    console.limit_peers(0)
    console.feed(1, "err", b"line\n" * (SHOWN + 2) + b"end", 0.0)
    console.end(1, "err", 0.1)
    console.report_hidden_lines()
    console.close()
    shown = out.getvalue().decode().splitlines()
    assert shown == ["(1)   line"] * SHOWN + ["allranks: 3 more lines of [1] after the failure: in the log files"]
    assert console.tail(1, 2) == ("line", "end")
    assert (tmp_path / "rank-1.log").read_bytes() == b"line\n" * (SHOWN + 2) + b"end"
