"""Tests of four ranks, to be run by pytest with our plugin."""

import os

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TESTS = int(os.environ["BENCH_TESTS"])


@pytest.mark.world(n=4, devices=2)
@pytest.mark.parametrize("number", range(TESTS))
def test_a_sum_over_all_devices(world, number):
    assert world.all(True)
    split = NamedSharding(Mesh(jax.devices(), "d"), PartitionSpec("d"))
    whole = jax.make_array_from_process_local_data(split, np.full(2, number, np.float32))
    assert jax.jit(lambda x: x.sum())(whole) == 8 * number
