"""Keys made for the devices of all processes, of which each process takes its own."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """\
import jax

step = jax.pmap(lambda key: key)


def keys(key):
    rows = jax.random.split(key, jax.device_count())
    rows = jax.numpy.array_split(rows, PARTS)[jax.process_index()]
    return step(rows)
"""


@pytest.mark.parametrize(("parts", "lines"), [("jax.process_count()", []), ("jax.local_device_count()", [7])])
def test_keys_cut_in_a_part_for_each_process_have_a_row_for_each_of_its_devices(parts: str, lines: list[int]) -> None:
    """In as many parts as there are devices, they have not."""
    found = check({"train.py": TRAIN.replace("PARTS", parts).encode()}, Settings(select=("AR608",))).findings
    assert [one.place.line for one in found] == lines
