"""Raw chunks of one stream become lines; bars leave their last state only."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.launch.lines import LONGEST_LINE, SETTLE, LineReader, remove_control_codes, split_long_line

UP = b"\x1b[A"


def read(*chunks: bytes, color: bool = False) -> list[bytes]:
    """Every line of a stream that writes these chunks in one instant and then ends."""
    reader = LineReader(color=color)
    return [line for chunk in chunks for line in reader.feed(chunk, 0.0)] + reader.finish()


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(at % (len(data) + 1) for at in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


BEGIN_CODES = (0x7F, 0xC2, 0xE2)
PLAIN = st.binary(max_size=9).map(lambda data: bytes(c for c in data if c > 0x1F and c not in BEGIN_CODES))


@given(st.lists(PLAIN), st.lists(st.integers(0, 999)))
def test_plain_lines_come_out_as_they_went_in(lines: list[bytes], cuts: list[int]) -> None:
    """Wherever the chunks are cut, and whatever bytes are in them, but those that may begin control characters."""
    assert read(*chunked(b"".join(line + b"\n" for line in lines), cuts)) == lines


@given(st.lists(st.sampled_from([b"\r", b"\n", UP, b"ab", b"  ", b"\x1b[2K", b"\x1b[31m", b"\x1b[0m", b"\xc3\xa4"])))
def test_where_a_chunk_is_cut_does_not_matter(pieces: list[bytes]) -> None:
    """Not inside an escape code either: byte for byte gives what one chunk gives, once bars have begun."""
    data = b"\rbar" + b"".join(pieces)
    assert read(*[data[at : at + 1] for at in range(len(data))]) == read(data)


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"\r 0%", b"\r 50%", b"\r100%\n"], [b"100%"]),
        ([b"\r 0%\r 50%    \r     \rdone\n"], [b"done"]),
        ([b"\r 50%", b"\r     \r"], []),
        ([b"one\r\ntwo\r\n"], [b"one", b"two"]),
        ([b"\r 50%", b"\x1b[2K\rnext\nplain\n"], [b"next", b"plain"]),
        ([b"\r 50%", b"\n\nafter\n"], [b" 50%", b"", b"after"]),
        ([b"\r 3/9Traceback (most recent call last):\n  File\nValueError\n"],
         [b" 3/9", b"Traceback (most recent call last):", b"  File", b"ValueError"]),
        ([b"no newline"], [b"no newline"]),
        ([b"bell\x07 up\x1b[2A title\x1b]0;me\x07 end\n"], [b"bell up title end"]),
    ],
)  # fmt: skip
def test_a_rewritten_line_leaves_its_last_state(chunks: list[bytes], lines: list[bytes]) -> None:
    """A bar, an erased bar, Windows line ends, a traceback behind a bar."""
    assert read(*chunks) == lines


def test_two_bars_of_tqdm_leave_one_line_each() -> None:
    """The inner bar stands below the outer one: its updates go down, write, and come back up."""
    reader = LineReader(color=False)
    inner = [b"\n", b"\rinner  0%", UP, b"\n", b"\rinner 99%", UP]
    chunks = [b"\router  0%", *inner, b"\router 50%", *inner]
    assert [line for chunk in chunks for line in reader.feed(chunk, 1.0)] == []
    assert reader.unfinished() == (b"outer 50%", b"inner 99%")
    reader.feed(b"\n\r         " + UP + b"\router100%\n", 2.0)
    assert reader.settle(2.0 + SETTLE / 2) == []
    assert reader.deadline == 2.0 + SETTLE
    assert reader.settle(2.0 + SETTLE) == [b"outer100%"]
    assert not reader.pending


def test_plain_text_below_a_bar_does_not_wait() -> None:
    """Nothing goes back up past a plain line, so the bar above it is finished."""
    reader = LineReader(color=False)
    assert reader.feed(b"\r 1%\r 2%\nsaved\nnext\n", 0.0) == [b" 2%", b"saved", b"next"]


def test_an_unfinished_line_is_shown_when_it_has_stood_a_while() -> None:
    """A prompt without newline is; the first half of a line whose second half is on its way is not."""
    reader = LineReader(color=False)
    reader.feed(b"Loading...", 5.0)
    assert reader.unfinished(5.0) == ()
    assert reader.unfinished(5.0 + SETTLE) == (b"Loading...",)
    assert reader.unfinished() == (b"Loading...",)


def test_a_line_without_end_is_cut() -> None:
    """Ten megabytes without newline never wait in memory, and no character is torn."""
    data = "日".encode() * 3_500_000
    reader, lines = LineReader(color=False), []
    for at in range(0, len(data), 65_537):
        lines += reader.feed(data[at : at + 65_537], 0.0)
        assert sum(map(len, reader.unfinished())) <= LONGEST_LINE
    lines += reader.finish()
    assert b"".join(lines) == data
    assert all(line.decode() for line in lines)
    assert b"".join(split_long_line(b"\x80" * 200_000)) == b"\x80" * 200_000


def test_a_bar_without_end_is_cut_too() -> None:
    """A row of a bar that grows without \\r obeys the same limit."""
    reader = LineReader(color=False)
    lines = reader.feed(b"\r" + b"x" * 200_000, 0.0)
    assert sum(map(len, lines)) >= 200_000 - LONGEST_LINE
    assert b"".join(lines + reader.finish()) == b"x" * 200_000


def test_colors_stay_and_end_with_the_line() -> None:
    """Only where colours are wanted; a colour left open does not run into the next line."""
    red = b"\x1b[31mred\x1b[K"
    assert remove_control_codes(red, color=True) == b"\x1b[31mred\x1b[0m"
    assert remove_control_codes(red + b"\x1b[0m", color=True) == b"\x1b[31mred\x1b[0m"
    assert remove_control_codes(red, color=False) == b"red"
    assert read(b"\r\x1b[31m 1%\x1b[0m\n", color=True) == [b"\x1b[31m 1%\x1b[0m"]
