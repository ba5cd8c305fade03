"""Compare a few samples over all ranks at the start, to check that all ranks have the same data.

A source may be divided already (``samples[rank::size]``, ``datasets.distributed.split_dataset_by_node``). It has the
same type and length on every rank, and would be divided once more, so no rank would read the other samples.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from allranks.data.agreement import DIVIDED
from allranks.data.detect import import_adapter
from allranks.digest import digest, show
from allranks.world.base import World
from allranks.world.claims import by_claim, mismatch_of_ranks

VARIES = "not comparable"
_DEEPEST, _LONGEST, _HEAD = 6, 64, 2


def rows_to_compare(samples: int) -> list[int]:
    """Return the numbers of the samples to compare: the first, two in between, and the last."""
    return sorted({0, samples // 3, 2 * samples // 3, samples - 1}) if samples else []


def hash_samples(samples: int, read: Callable[[int], Any]) -> str:
    """Return a digest of a few samples, to be compared between ranks; VARIES if reading twice gives different samples.

    ``read`` returns the sample with a number. The result is VARIES if reading fails (the training then reports that
    error), or if the first sample differs when it is read again (a random augmentation).
    """
    numbers = rows_to_compare(samples)
    try:
        with _seeded_generators():
            words = [text_of_sample(read(number)) for number in numbers]
        with _seeded_generators():
            again = [text_of_sample(read(number)) for number in numbers[:1]]
    except Exception:  # of any kind: it is the user's code
        return VARIES
    return VARIES if again != words[:1] else show(digest(*words))[:8]


class FirstSamples:
    """An iterable whose first samples are compared over the ranks before it is read."""

    def __init__(self, samples: Any) -> None:
        self._samples = samples
        self._once = hasattr(samples, "__next__")  # a generator: what is taken of it does not come again
        self._taken: list[Any] = []
        self._error: Exception | None = None
        self._word = self._hash_head()

    def __iter__(self) -> Iterator[Any]:
        """Iterate over all samples, including the first ones that were compared."""
        if not self._once:
            return iter(self._samples)
        taken, self._taken = self._taken, []
        return chain(taken, self._remaining_samples())

    def compare_over_ranks(self, world: World) -> None:
        """Raise Mismatch on every rank unless all ranks have the same first samples. **Every rank must call.**

        Nothing is compared if a rank has no samples, or if its samples differ when they are read again.
        """
        words = world.all_gather(self._word, name="first samples")
        if len(set(words)) == 1 or "" in words:
            return
        if not world.all(self._once or self._hash_head() == self._word, name="first samples again"):
            return
        groups = by_claim((rank, f"first samples {one}") for rank, one in enumerate(words))
        raise mismatch_of_ranks("the ranks do not read the same data", groups, remedy=DIVIDED)

    def _hash_head(self) -> str:
        """Return a digest of the first samples; "" if there are none, or if reading fails."""
        found: list[Any] = []
        try:
            found.extend(islice(self._samples, _HEAD))
            words = [text_of_sample(one) for one in found]
        except Exception as error:  # of any kind: it is the user's code
            self._error, words = error, []
        if self._once:
            self._taken = found
        return show(digest(*words))[:8] if words else ""

    def _remaining_samples(self) -> Iterator[Any]:
        if self._error is not None:
            raise self._error
        yield from self._samples


def text_of_sample(value: Any, max_depth: int = 0) -> str:
    """Convert a sample into a text that is equal on all ranks.

    It has no memory address; an unknown type gives its name.
    """
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if max_depth > _DEEPEST:
        return ""
    if isinstance(value, Mapping):
        items = [
            f"{text_of_sample(key)}:{text_of_sample(one, max_depth + 1)}" for key, one in list(value.items())[:_LONGEST]
        ]
        return f"{{{','.join(items)}}}"
    if isinstance(value, list | tuple):
        return f"{len(value)}[{','.join(text_of_sample(one, max_depth + 1) for one in value[:_LONGEST])}]"
    if is_dataclass(value):
        return text_of_sample({one.name: getattr(value, one.name) for one in fields(value)}, max_depth + 1)
    return f"{type(value).__qualname__} {_content_digest(value)}"


def _content_digest(value: Any) -> str:
    """Return a digest of the content of an array, a tensor or an image; "" for other values."""
    for name in ("tobytes", "numpy"):
        if callable(made := getattr(value, name, None)):
            found = made()
            data = found if isinstance(found, bytes) else np.ascontiguousarray(found).tobytes()
            return show(digest(data))
    return ""


@contextmanager
def _seeded_generators() -> Iterator[None]:
    """Seed the usual random generators equally on all ranks, and restore them afterwards."""
    state, legacy = random.getstate(), np.random.get_state()
    random.seed(0)
    np.random.seed(0)
    try:
        if "torch" in sys.modules:
            with import_adapter("torch").seeded_generator():
                yield
        else:
            yield
    finally:
        random.setstate(state)
        np.random.set_state(legacy)
