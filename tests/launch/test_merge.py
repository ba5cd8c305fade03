"""Lines of several ranks stand once, with their ranks, and every rank keeps its order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from allranks.launch.merge import MOST_WAITING, WINDOW, LineMerger, MergedLine, group_blocks, merge_equal, ranks_of

SIZE = 4
# What happens to a merger: a rank says lines (few different ones, some indented), or time passes.
SAID = st.tuples(
    st.integers(0, SIZE - 1),
    st.sampled_from(["out", "err"]),
    st.lists(st.sampled_from([b"a", b"b", b"c", b" i", b""]), max_size=4),
)
STORY = st.lists(st.tuples(SAID, st.sampled_from([0.0, WINDOW / 3, WINDOW * 2])))


@given(STORY)
def test_nothing_is_lost_or_invented_and_each_rank_keeps_its_order(story) -> None:
    """The entries that name a rank are, in order, exactly what that rank said; whatever the interleaving."""
    merger, now, shown = LineMerger(SIZE), 0.0, []
    said: dict[int, list] = {rank: [] for rank in range(SIZE)}
    for (rank, stream, lines), pause in story:
        merger.add(rank, stream, lines, now)
        said[rank] += [(stream, line) for line in lines]
        shown += merger.due(now)
        now += pause
    shown += merger.flush()
    for rank in range(SIZE):
        assert [(e.stream, e.text) for e in shown if rank in ranks_of(e.ranks)] == said[rank]
    assert all(e.ranks for e in shown)
    assert merger.deadline is None


@given(STORY)
def test_no_line_waits_longer_than_the_window(story) -> None:
    """After its window a line has left; while lines wait there is a deadline within the window."""
    merger, now, came = LineMerger(SIZE), 0.0, []
    for (rank, stream, lines), pause in story:
        merger.add(rank, stream, lines, now)
        merger.due(now)
        came += [now] if lines else []
        assert merger.deadline is None or now < merger.deadline <= now + WINDOW
        now += pause
    if came:
        merger.due(came[-1] + WINDOW)
        assert merger.deadline is None
        assert merger.flush() == []


@given(st.permutations([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]))
def test_the_same_program_on_all_ranks_shows_each_line_once(turns: list[int]) -> None:
    """Within the window, in any interleaving: three lines that all ranks say are three entries, at once."""
    merger, lines, shown = LineMerger(SIZE), [b"x", b"y", b"x"], []
    at = [0] * SIZE
    for rank in turns:
        merger.add(rank, "out", [lines[at[rank]]], 0.0)
        at[rank] += 1
        shown += merger.due(0.0)
    assert shown == [MergedLine(0b1111, "out", line) for line in lines]


def test_a_line_that_all_have_said_does_not_jump_ahead() -> None:
    """It waits behind another line of a rank that it stands for."""
    merger = LineMerger(2)
    merger.add(0, "out", [b"only 0", b"both"], 0.0)
    merger.add(1, "out", [b"both"], 0.0)
    assert merger.due(0.0) == []
    assert merger.due(WINDOW) == [MergedLine(0b01, "out", b"only 0"), MergedLine(0b11, "out", b"both")]


def test_equal_words_on_different_streams_are_different_lines() -> None:
    """What one rank says on stdout and another on stderr is not merged."""
    merger = LineMerger(2)
    merger.add(0, "out", [b"x"], 0.0)
    merger.add(1, "err", [b"x"], 0.0)
    assert [entry.ranks for entry in merger.flush()] == [1, 2]


def test_a_late_rank_gets_a_line_of_its_own() -> None:
    """What has been shown cannot be joined any more."""
    merger = LineMerger(2)
    merger.add(0, "out", [b"x", b"x"], 0.0)
    assert len(merger.due(WINDOW)) == 2
    merger.add(1, "out", [b"x"], 1.0)
    assert merger.flush() == [MergedLine(2, "out", b"x")]


def test_a_flood_does_not_wait() -> None:
    """Above a number of waiting lines all of them leave, so that memory stays bounded."""
    merger = LineMerger(2)
    merger.add(0, "out", [b"%d" % n for n in range(MOST_WAITING + 1)], 0.0)
    assert len(merger.due(0.0)) == MOST_WAITING + 1


def test_a_line_repeated_for_ever_keeps_no_past() -> None:
    """The index of waiting lines holds those that wait, also when the same text always waits."""
    merger = LineMerger(2)
    for moment in range(100):
        merger.add(0, "out", [b"."], moment * WINDOW / 2)
        merger.due(moment * WINDOW / 2)
    assert len(merger._places["out"][b"."]) <= 2


def test_tracebacks_that_arrive_mixed_stand_apart() -> None:
    """Line by line from two ranks: the common head once, then each rank's own lines together."""
    merger = LineMerger(3)
    ours = [b"Traceback", b"  File a", b"    x", b"ValueError: 0"]
    theirs = [b"Traceback", b"  File b", b"    y", b"ValueError: 1"]
    for one, other in zip(ours, theirs, strict=True):
        merger.add(0, "err", [one], 0.0)
        merger.add(2, "out", [b"step"], 0.0)
        merger.add(1, "err", [other], 0.0)
    shown = [(e.ranks, e.text) for e in merger.flush() if e.text != b"step"]
    assert shown == [(3, b"Traceback"), *((1, line) for line in ours[1:]), *((2, line) for line in theirs[1:])]


def test_lines_that_are_not_indented_keep_their_order_of_arrival() -> None:
    """Step 1 of all ranks before step 2 of any."""
    entries = [MergedLine(1 << rank, "out", b"%d step %d" % (rank, step)) for step in range(3) for rank in range(3)]
    shown = group_blocks([*entries, MergedLine(1, "out", b" indented")])
    assert [entry for entry in shown if entry.text != b" indented"] == entries


def test_states_of_one_moment_merge_by_text() -> None:
    """One entry per different text, in order of first mention."""
    said = [(0, "err", b"50%"), (1, "err", b"60%"), (2, "err", b"50%"), (2, "out", b"50%")]
    assert merge_equal(said) == [
        MergedLine(0b101, "err", b"50%"),
        MergedLine(0b010, "err", b"60%"),
        MergedLine(0b100, "out", b"50%"),
    ]


def test_bars_that_differ_by_their_clock_are_one() -> None:
    """Ranks in step show one bar; another loss or count is another bar."""
    bar = "epoch:  87%|███| 26/30 [{}, loss=1.{}]"
    said = [(0, "err", bar.format("00:01<00:00, 19.86it/s", 5)), (1, "err", bar.format("01:02:01<?, ?s/it", 5))]
    said.append((2, "err", bar.format("00:01<00:00, 19.86it/s", 6)))
    entries = merge_equal((rank, stream, text.encode()) for rank, stream, text in said)
    assert entries == [MergedLine(0b011, "err", said[0][2].encode()), MergedLine(0b100, "err", said[2][2].encode())]
