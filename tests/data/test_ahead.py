"""An iterator run ahead: in order, so far and no further, with its errors, and gone when it is closed."""

from __future__ import annotations

import itertools
import threading

import pytest

from allranks.data.prefetch import Prefetcher


def test_items_come_in_order_to_the_end():
    """All items, in order; then no more, however often one asks."""
    items = [[number] for number in range(1000)]
    ahead = Prefetcher(items, 8, name="test")
    assert list(ahead) == items
    assert list(ahead) == []


def test_it_makes_so_many_ahead_and_no_more():
    """The thread goes on until ``most`` wait, by their lengths, and has one more in hand."""
    made, enough = [], threading.Semaphore(0)

    def items():
        for number in range(100):
            made.append(number)
            enough.release()
            yield [number] * 2

    ahead = Prefetcher(items(), 5, name="test")
    for _ in range(4):
        assert enough.acquire(timeout=30)
    assert not enough.acquire(timeout=0.2)
    assert made == [0, 1, 2, 3]
    assert next(ahead) == [0, 0]
    assert enough.acquire(timeout=30)
    ahead.close()


def test_an_error_comes_where_its_item_was_due():
    """What was made before the error is handed out first."""

    def items():
        yield [1]
        raise OSError("gone")

    ahead = Prefetcher(items(), 8, name="test")
    assert next(ahead) == [1]
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            next(ahead)


def test_closing_ends_the_thread():
    """close() returns when the thread has ended, also if it waits for room."""
    ahead = Prefetcher(itertools.repeat("item"), 2, name="allranks-test-endless")
    assert next(ahead) == "item"
    ahead.close()
    assert "allranks-test-endless" not in [thread.name for thread in threading.enumerate()]
