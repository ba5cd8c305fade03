"""Record the calls of a framework: synchronisations with other ranks, and values that the program reads."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from allranks.rehearse.probe.record import Recorder, is_main_thread

# How many values of one line are recorded.
_VALUES = 200


class CallRecorder:
    """The wrappers for the functions of one framework in one process."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._counts: Counter[str] = Counter()
        self._values: Counter[int] = Counter()
        self._local = threading.local()

    @property
    def is_inside(self) -> bool:
        """Whether this thread is in a recorded call, whose own calls are not recorded."""
        return getattr(self._local, "is_inside", False)

    def next_key(self, label: str) -> str:
        """Return the key of the next synchronisation with this label. It is equal on all ranks that take part."""
        self._counts[label] += 1
        return f"{label}/{self._counts[label]}"

    def enter(self, call: Callable[[], Any], **data: Any) -> Any:
        """Record that this rank enters a synchronisation, and return the result of ``call``."""
        self._local.is_inside = True
        try:
            self._recorder.synchronise("enter", **data)
            return call()
        finally:
            self._local.is_inside = False

    def leave(self, **data: Any) -> None:
        """Record that this rank leaves a synchronisation."""
        self._recorder.synchronise("leave", **data)

    def of_all(
        self, original: Callable[..., Any], name: str, *, label: str, applies: Callable[[], bool] = lambda: True
    ) -> Callable[..., Any]:
        """Return a wrapper for a function in which all ranks wait for each other.

        Only calls for which ``applies`` returns True are recorded.
        """

        @functools.wraps(original)
        def synchronisation(*args: Any, **options: Any) -> Any:
            if self.is_inside or not applies():
                return original(*args, **options)
            data: dict[str, Any] = {"name": name, "way": "all", "root": None, "members": []}
            data["key"] = self.next_key(label)
            result = self.enter(lambda: original(*args, **options), **data)
            self.leave(**data)
            return result

        return synchronisation

    def reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper for a method that returns an array's value.

        The numbers of the main thread are recorded: floats, whole numbers, and arrays of one float.
        """

        @functools.wraps(original)
        def read(array: Any, *args: Any, **options: Any) -> Any:
            value = original(array, *args, **options)
            known = float(value) if isinstance(value, int | float) or _is_number(value) else None
            if known is not None and not isinstance(value, bool) and is_main_thread():
                place = self._recorder.place()
                self._values[place] += 1
                if place and self._values[place] <= _VALUES:
                    self._recorder.write("value", place=place, value=known, count=self._values[place])
            return value

        return read


def _is_number(value: Any) -> bool:
    """Return whether a value is an array of numpy with one float."""
    return getattr(value, "size", 0) == 1 and getattr(getattr(value, "dtype", None), "kind", "") == "f"


def without_local_groups(function: Callable[..., Any], local: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``local`` for a group which its members make without the other ranks."""

    @functools.wraps(function)
    def make(*args: Any, **options: Any) -> Any:
        return (local if options.get("use_local_synchronization") else function)(*args, **options)

    return make
