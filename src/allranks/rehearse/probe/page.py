"""Define a page of memory that a rank shares with the watcher: the rank's progress, and the line of its next file call.

It holds 64-bit numbers: [0] how many records of synchronisations there are, [1] the step, [2] the thread that takes
signals, [3] the step at which the rank is to be killed (0: never). From _SLOTS on there are pairs (thread, place): the
thread is about to make a file call at the line with the number ``place``.
"""

from __future__ import annotations

import mmap
import os
import struct

_SLOTS, _PAIRS = 16, 512
SIZE = 8 * (_SLOTS + 2 * _PAIRS)
_ONE, _TWO = struct.Struct("q"), struct.Struct("qq")


class Page:
    """The page. The rank makes it by ``Page.new()``; the watcher makes it from a descriptor that the rank sent."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, SIZE)

    @classmethod
    def new(cls) -> Page:
        descriptor = os.memfd_create("allranks-page")
        os.truncate(descriptor, SIZE)
        return cls(descriptor)

    def get(self, place: int) -> int:
        return int(_ONE.unpack_from(self._memory, 8 * place)[0])

    def set(self, place: int, value: int) -> None:
        _ONE.pack_into(self._memory, 8 * place, value)

    def announce(self, thread: int, place: int) -> None:
        """Record the number of the line at which this thread will make its next file call."""
        _TWO.pack_into(self._memory, 8 * (_SLOTS + 2 * (thread % _PAIRS)), thread, place)

    def take(self, thread: int) -> int:
        """Return the number of the line that a thread has announced, and clear it.

        Return 0 if it has announced none.
        """
        at = 8 * (_SLOTS + 2 * (thread % _PAIRS))
        who, place = _TWO.unpack_from(self._memory, at)
        if who != thread:
            return 0
        _TWO.pack_into(self._memory, at, 0, 0)
        return int(place)


POSITION, STEP, SIGNAL_THREAD, KILL_AT = 0, 1, 2, 3
