"""What ranks say about another one's end is folded; what the one says that failed never is."""

from __future__ import annotations

import io
from pathlib import Path

from allranks.launch.console import Console
from allranks.launch.fold import SHOWN, Fold


def test_before_a_failure_all_is_shown_and_after_it_a_little_of_the_others() -> None:
    fold = Fold()
    many = [str(number).encode() for number in range(SHOWN + 5)]
    assert fold.visible(1, many) == many
    fold.close(0)
    assert fold.visible(0, many) == many
    assert fold.visible(1, many[:4]) + fold.visible(1, many[4:]) == many[:SHOWN]
    assert fold.visible(2, many) == many[:SHOWN]
    assert fold.count() == "10 more lines of [1-2] after the failure"


def test_nothing_folded_is_nothing_said() -> None:
    fold = Fold()
    fold.close(0)
    fold.visible(1, [b"one"])
    assert fold.count() == ""


def test_what_is_folded_stands_in_the_log_files_and_in_the_tail(tmp_path: Path) -> None:
    """And it is said where; unfinished text at the end of a stream counts too."""
    out = io.BytesIO()
    console = Console(2, out=out, color=False, live=False, log_dir=tmp_path)
    console.fold(0)
    console.feed(1, "err", b"line\n" * (SHOWN + 2) + b"end", 0.0)
    console.end(1, "err", 0.1)
    console.say_what_is_folded()
    console.close()
    shown = out.getvalue().decode().splitlines()
    assert shown == ["(1)   line"] * SHOWN + ["allranks: 3 more lines of [1] after the failure: in the log files"]
    assert console.tail(1, 2) == ("line", "end")
    assert (tmp_path / "rank-1.log").read_bytes() == b"line\n" * (SHOWN + 2) + b"end"
