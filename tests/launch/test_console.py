"""What a person sees: plain in a pipe, coloured and live on a terminal, and never in the way of the job."""

from __future__ import annotations

import fcntl
import io
import os
import re

import pytest

from allranks.launch.console import REDRAW, SNAPSHOT, Console, OutputClosed, Style, choose_style
from allranks.launch.merge import WINDOW
from allranks.launch.placement import Placement
from allranks.launch.terminal import LinePrefixes, cut_to_width, short_rank_list


def console(size: int = 4, *, color: bool = False, live: bool = False, **more) -> tuple[Console, io.BytesIO]:
    out = io.BytesIO()
    return Console(size, out=out, color=color, live=live, **more), out


def screen(written: bytes, width: int = 80) -> list[str]:
    """What a terminal shows after these bytes: a fake that knows what the console sends, and fails on anything else."""
    rows, row, column = [""], 0, 0
    for token in re.findall(r"\x1b\[\d*[A-Za-z]|\n|\r|[^\x1b\n\r]+|.", written.decode()):
        if token == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif token == "\r":
            column = 0
        elif token == "\x1b[J":
            rows = [*rows[:row], rows[row][:column]]
        elif re.fullmatch(r"\x1b\[\d+A", token):
            row -= int(token[2:-1])
        else:
            assert "\x1b" not in token
            rows[row] = rows[row][:column] + token + rows[row][column + len(token) :]
            column += len(token)
            assert column < width, "a row that wraps cannot be erased"
    return rows


def test_a_line_of_several_ranks_stands_once_with_its_ranks() -> None:
    """Prefixes are as wide as the job's widest; stderr has round brackets."""
    shown, out = console()
    for rank in range(4):
        shown.feed(rank, "out", b"loaded 12 files\n", 0.0)
    assert out.getvalue() == b"[0-3] loaded 12 files\n"
    shown.feed(2, "out", b"retry\n", 0.1)
    shown.feed(1, "err", b"warning\n", 0.1)
    shown.feed(3, "err", b"warning\n", 0.1)
    assert shown.flush_due(0.1) == 0.1 + WINDOW
    assert shown.flush_due(0.1 + WINDOW) is None
    assert out.getvalue().splitlines()[1:] == [b"[2]   retry", b"(1, 3) warning"]


def test_colors_are_for_prefixes_and_what_ranks_color_themselves() -> None:
    """A rank has its colour, a set is dim; the text is not touched."""
    shown, out = console(2, color=True)
    shown.feed(0, "out", b"\x1b[1mbold\n", 0.0)
    shown.feed(1, "out", b"\x1b[1mbold\n", 0.0)
    shown.feed(1, "out", b"mine\n", 0.0)
    shown.close()
    assert out.getvalue() == b"\x1b[2m[0-1]\x1b[0m \x1b[1mbold\x1b[0m\n\x1b[38;5;172m[1]\x1b[0m   mine\n"


def test_the_launchers_words_come_after_what_ranks_said_before() -> None:
    """And unfinished lines come at the end, once."""
    shown, out = console(2)
    shown.feed(0, "out", b"one\ntw", 0.0)
    shown.print_line("rank 1 failed")
    shown.feed(0, "out", b"o", 0.0)
    shown.close()
    assert out.getvalue() == b"[0]   one\nrank 1 failed\n[0]   two\n"


def test_a_job_of_one_rank_has_neither_prefix_nor_delay() -> None:
    """In a pipe its lines come at once; on a terminal its bytes go through, and our words start on a new line."""
    shown, out = console(1)
    shown.feed(0, "err", b"\r 1%\r 2%\nline\n", 0.0)
    assert out.getvalue() == b" 2%\nline\n"
    shown, out = console(1, live=True)
    shown.feed(0, "out", b"\x1b[2J 1%\r 2%", 0.0)
    shown.print_line("done")
    shown.print_line("bye")
    assert out.getvalue() == b"\x1b[2J 1%\r 2%\ndone\nbye\n"


def test_bars_live_at_the_bottom_and_lines_go_above() -> None:
    """Equal bars share a row; a finished bar becomes a line; nothing of the live area remains."""
    shown, out = console(3, live=True)
    shown.feed(0, "err", b"\r 10%", 0.0)
    shown.feed(1, "err", b"\r 10%", 0.01)
    shown.feed(2, "err", b"\r 20%", 0.02)
    shown.flush_due(0.0 + REDRAW)
    assert screen(out.getvalue()) == ["(0-1)  10%", "(2)    20%"]
    for rank in range(3):
        shown.feed(rank, "out", b"hello\n", 0.11)
    assert screen(out.getvalue()) == ["(0-1)  10%", "(2)    20%"]
    assert shown.flush_due(0.12) == pytest.approx(2 * REDRAW)
    shown.flush_due(2 * REDRAW)
    assert screen(out.getvalue()) == ["[0-2] hello", "(0-1)  10%", "(2)    20%"]
    shown.feed(2, "err", b"\r100%\n", 0.21)
    shown.print_line("words")
    assert screen(out.getvalue()) == ["[0-2] hello", "words", "(0-1)  10%", "(2)    20%"]
    shown.feed(0, "err", b"\r    \r", 0.3)
    shown.flush_due(1.0)
    shown.flush_due(2.0)
    assert screen(out.getvalue()) == ["[0-2] hello", "words", "(2)   100%", "(1)    10%"]
    shown.close()
    assert screen(out.getvalue()) == ["[0-2] hello", "words", "(2)   100%", "(1)    10%", ""]


def test_the_bar_of_a_rank_that_ended_becomes_a_line() -> None:
    """With the other ranks' lines, not after the launcher's last words."""
    shown, out = console(2, live=True)
    shown.feed(0, "err", b"\r 10%", 0.0)
    shown.feed(1, "err", b"\r 20%", 0.0)
    shown.flush_due(REDRAW)
    shown.end(1, "err", 1.0)
    shown.print_line("rank 1 failed")
    shown.flush_due(2.0)
    assert screen(out.getvalue()) == ["(1)    20%", "rank 1 failed", "(0)    10%"]
    shown.close()
    assert shown.tail(1) == (" 20%",)
    assert screen(out.getvalue()) == ["(1)    20%", "rank 1 failed", "(0)    10%", ""]


def test_the_live_area_is_drawn_ten_times_a_second_at_most() -> None:
    """However often a bar moves."""
    shown, out = console(2, live=True)
    for hundredth in range(100):
        shown.feed(0, "err", b"\r%d" % hundredth, hundredth / 100)
        shown.flush_due(hundredth / 100)
    assert 9 <= out.getvalue().count(b"\x1b[J") + 1 <= 10


def test_a_resting_bar_asks_for_no_time() -> None:
    """Once drawn, nothing wakes the launcher until something comes."""
    shown, _ = console(2, live=True)
    shown.feed(0, "err", b"\r 10%", 0.0)
    shown.flush_due(0.0)
    assert shown.flush_due(REDRAW) is None


def test_a_prompt_without_newline_shows_but_half_a_line_does_not() -> None:
    """Text without newline joins the live area when it has stood for a moment."""
    shown, out = console(2, live=True)
    shown.feed(0, "out", b"Loading...", 0.0)
    assert shown.flush_due(0.0) == REDRAW
    assert shown.flush_due(REDRAW) == pytest.approx(2 * REDRAW)
    assert out.getvalue() == b""
    assert shown.flush_due(2 * REDRAW) is None
    assert screen(out.getvalue()) == ["[0]   Loading..."]


def test_many_bars_and_wide_bars_fit_the_terminal() -> None:
    """At most eight rows, none of which wraps."""
    shown, out = console(64, live=True, width=20)
    for rank in range(64):
        shown.feed(rank, "err", f"\r{rank} ".encode() + "█".encode() * 50, 0.0)
    shown.flush_due(REDRAW)
    rows = screen(out.getvalue(), width=20)
    assert rows[0] == "(0)    0 " + "█" * 10
    assert rows[-1] == "... and 57 more"
    assert len(rows) == 8


def test_a_pipe_gets_a_bars_end_and_a_sign_of_life_now_and_then() -> None:
    """One line each thirty seconds while it moves, and its final state."""
    shown, out = console(2)
    for second in range(70):
        shown.feed(0, "err", b"\r%d%%" % second, float(second))
        shown.feed(1, "err", b"\r%d%%" % second, float(second))
        shown.flush_due(float(second))
    shown.feed(0, "err", b"\r100%\n", 70.0)
    shown.feed(1, "err", b"\r100%\n", 70.0)
    shown.flush_due(71.0)
    assert SNAPSHOT == 30.0
    assert out.getvalue() == b"(0-1) 30%\n(0-1) 61%\n(0-1) 100%\n"


def test_the_tail_of_a_rank_is_what_it_said_last() -> None:
    """Both streams, no colours, unfinished words at the end."""
    shown, _ = console(2)
    shown.feed(0, "out", b"".join(b"line %d\n" % n for n in range(500)), 0.0)
    shown.feed(0, "err", b"\x1b[31mTraceback\x1b[0m\n\xff dying", 0.0)
    assert shown.tail(0, 3) == ("line 499", "Traceback", "� dying")
    assert shown.tail(1) == ()
    shown.close()
    assert shown.tail(0, 1) == ("� dying",)


def test_a_closed_output_is_told_once_and_the_log_goes_on(tmp_path) -> None:
    """``allranks run | head`` raises OutputClosed; after that feeding and closing still work."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb", buffering=0) as out:
        shown = Console(1, out=out, color=False, live=False, log_dir=tmp_path)
        with pytest.raises(OutputClosed, match="Broken pipe"):
            shown.feed(0, "out", b"one\n", 0.0)
        shown.feed(0, "out", b"two\n", 0.0)
        shown.print_line("three")
        shown.close()
    assert (tmp_path / "rank-0.log").read_bytes() == b"one\ntwo\n"
    assert shown.tail(0) == ("one", "two")


def test_a_reader_that_does_not_read_stops_nobody() -> None:
    """A pager: feed returns at once, ``is_full`` says when to stop feeding, ``full_descriptors`` what to wait for."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    with os.fdopen(write, "wb", buffering=0) as out, os.fdopen(read, "rb") as pager:
        shown = Console(1, out=out, color=False, live=False)
        sent = 0
        while not shown.is_full:
            shown.feed(0, "out", b"x" * 99 + b"\n", 0.0)
            sent += 100
        assert shown.full_descriptors == {write}
        got = 0
        while shown.full_descriptors:
            got += len(pager.read1(65536))
            shown.flush_due(0.0)
        shown.close()
        out.close()
        assert got + len(pager.read()) == sent


def test_pictures_of_a_bar_do_not_pile_up_before_a_stopped_terminal() -> None:
    """Else a bar that moves would clog the output, and in the end stop the ranks."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    with os.fdopen(write, "wb", buffering=0) as out, os.fdopen(read, "rb") as terminal:
        shown = Console(2, out=out, color=False, live=True)
        for second in range(5000):
            shown.feed(0, "err", b"\r%d " % second + b"#" * 60, float(second))
            due = shown.flush_due(float(second))
            assert due is None or due > second
        assert shown._outputs._all[0]._size <= 100
        pictures = []
        for second in (5000.0, 5001.0, 5002.0):
            pictures.append(terminal.read1(4096))
            shown.flush_due(second)
        assert [picture.split()[-2] for picture in pictures] == [b"0", b"1", b"4999"]
        shown.close()
        out.close()
        assert terminal.read().endswith(b"(0)   4999 " + b"#" * 60 + b"\n")


@pytest.mark.parametrize(
    ("isatty", "environ", "style"),
    [
        (True, {}, Style(color=True, live=True)),
        (True, {"NO_COLOR": "1"}, Style(color=False, live=True)),
        (True, {"NO_COLOR": ""}, Style(color=True, live=True)),
        (True, {"TERM": "dumb"}, Style(color=False, live=False)),
        (True, {"CI": "true"}, Style(color=False, live=False)),
        (True, {"CI": "false"}, Style(color=True, live=True)),
        (False, {}, Style(color=False, live=False)),
        (False, {"FORCE_COLOR": "1"}, Style(color=True, live=False)),
        (False, {"CI": "1", "FORCE_COLOR": "1"}, Style(color=True, live=False)),
        (False, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, Style(color=False, live=False)),
    ],
)
def test_the_style_follows_the_output_and_the_environment(isatty: bool, environ: dict[str, str], style: Style) -> None:
    """A terminal, a pipe, CI, a dumb terminal, NO_COLOR and FORCE_COLOR."""
    assert choose_style(isatty, environ) == style


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "3"),
        (range(16), "0-15"),
        ([*range(16), 20, 22, 24, 26], "0-15, 20, +3"),
        (range(0, 64, 2), "0, 2, 4, +29"),
        ([1000, *range(2000, 3000), 5000], "1000, +1001"),
    ],
)
def test_a_wide_set_of_ranks_is_shortened(ranks, text: str) -> None:
    """To its first runs and the count of the rest."""
    assert short_rank_list(tuple(ranks)) == text


def test_names_stand_for_single_ranks() -> None:
    """``hosta:1`` for rank 1; sets are numbers still."""
    prefixes = LinePrefixes(Placement(("a",), (2,)), color=False, names=("a:0", "bb:1"))
    assert [prefixes[1, "out"], prefixes[2, "err"], prefixes[3, "out"]] == [b"[a:0]  ", b"(bb:1) ", b"[0-1]  "]


def test_a_cut_row_ends_its_color_and_counts_wide_characters() -> None:
    """Columns, not bytes: two for a wide character, none for colours and accents."""
    assert cut_to_width("\x1b[31m日本語".encode(), 5) == "\x1b[31m日本".encode() + b"\x1b[0m"
    assert cut_to_width("e\u0301\tx".encode(), 3) == "e\u0301 x".encode()
    assert cut_to_width(b"plain", 5) == b"plain"
    assert cut_to_width(b"plain!", 5) == b"plain"
