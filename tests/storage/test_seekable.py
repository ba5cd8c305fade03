"""What is read by offset behaves as a file does."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.storage.seekable_file import SeekableFile

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(-1, 12), st.just(0)),
        st.tuples(st.just("readinto"), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("seek"), st.integers(-12, 12), st.integers(0, 2)),
    )
)


def outcome(file: io.BytesIO | SeekableFile, step: tuple[str, int, int]) -> object:
    """What a step gives, and where the file is after it; steps before the beginning are not taken."""
    what, number, whence = step
    if what == "read":
        return file.read(number), file.tell()
    if what == "readinto":
        into = bytearray(number)
        return file.readinto(into), bytes(into), file.tell()
    if number + (0, file.tell(), 8)[whence] < 0:
        return file.tell()
    return file.seek(number, whence), file.tell()


@given(STEPS)
def test_it_reads_as_a_file_in_memory_does(steps: list[tuple[str, int, int]]) -> None:
    """Any reads and seeks give what io.BytesIO gives, and nothing outside is ever asked for."""
    data = bytes(range(8))

    def read_at(offset: int, count: int) -> bytes:
        assert count == 0 or 0 <= offset <= offset + count <= len(data)
        return data[offset : offset + count]

    ours, theirs = SeekableFile(len(data), read_at), io.BytesIO(data)
    for step in steps:
        assert outcome(ours, step) == outcome(theirs, step)


def test_a_seek_before_the_beginning_is_refused() -> None:
    """The file stays where it was."""
    file = SeekableFile(8, lambda _, count: bytes(count))
    file.seek(3)
    with pytest.raises(ValueError, match="negative seek position -1"):
        file.seek(-4, io.SEEK_CUR)
    assert file.tell() == 3
