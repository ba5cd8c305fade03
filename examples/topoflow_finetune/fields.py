"""Fields to forecast: pieces of two photographs that scikit-learn ships, carried by wind over hills.

The three colours are three pollutants. A piece of the other photograph, smoothed, is the elevation. An hour later each
pollutant has been carried downwind, and hills have kept part of it back: less arrives where the air had to climb.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import TensorDataset

SIDE = 24  # cells of a piece, in both directions
REACH = 5  # the wind carries no farther than this many cells
HIGHEST = 3000.0  # metres
BLOCKS = 900.0  # metres of climb that keep all but 1/e of the pollutant back

Array = NDArray[np.float32]


def photographs() -> tuple[Array, Array]:
    """Return two maps [213, 320, 3] of values from 0 to 255."""
    package = find_spec("sklearn")  # where its files are: importing it all would take seconds on every rank
    if package is None or package.origin is None:
        raise ModuleNotFoundError("the photographs are scikit-learn's: pip install scikit-learn")
    folder = Path(package.origin).parent / "datasets" / "images"
    first, second = (Image.open(folder / name).resize((320, 213)) for name in ("china.jpg", "flower.jpg"))
    return np.asarray(first, np.float32), np.asarray(second, np.float32)


def fields(count: int, *, seed: int, centred: bool = True) -> TensorDataset:
    """Return ``count`` samples that follow from the seed, as tensors (of one sample):

    pollutants now [3, SIDE, SIDE], elevation [SIDE, SIDE] in metres, wind [2] in cells an hour (down, right), and
    pollutants an hour later [3, SIDE, SIDE]. Pollutants have deviation 1, and mean 0 where they are ``centred``.
    """
    chance = np.random.default_rng(seed)
    maps = photographs()
    mean, deviation = np.mean(maps), np.std(maps)
    hills = [smooth(one.mean(axis=-1), times=12) for one in maps]
    samples = []
    for _ in range(count):
        which = int(chance.integers(2))
        angle, speed = chance.uniform(0, 2 * np.pi), chance.uniform(1, REACH - 1)
        wind = (speed * np.array([np.sin(angle), np.cos(angle)])).astype(np.float32)
        height, width = hills[which].shape
        top, left = (int(chance.integers(REACH, size - SIDE - REACH)) for size in (height, width))
        values = (maps[which] - mean * centred) / deviation
        heights = hills[1 - which] / 255 * HIGHEST
        now, before = piece(values, top, left), carried(values, top, left, wind)
        climb = piece(heights, top, left) - carried(heights, top, left, wind)
        later = before * np.exp(-np.maximum(climb, 0) / BLOCKS)[..., None]
        samples.append((now.transpose(2, 0, 1), piece(heights, top, left), wind, later.transpose(2, 0, 1)))
    return TensorDataset(*(torch.from_numpy(np.stack(column)) for column in zip(*samples, strict=True)))


def smooth(values: Array, *, times: int) -> Array:
    """Return each value's mean with its four neighbours, taken ``times`` times; stretched to 0 to 255."""
    for _ in range(times):
        around = [np.roll(values, shift, axis) for shift in (-1, 1) for axis in (0, 1)]
        values = (values + sum(around)) / 5
    return (values - values.min()) / (values.max() - values.min()) * 255


def piece(values: Array, top: int, left: int) -> Array:
    return values[top : top + SIDE, left : left + SIDE]


def carried(values: Array, top: int, left: int, wind: Array) -> Array:
    """Return what stood upwind of each cell, between the four cells nearest to there."""
    y, x = np.array([top, left]) - wind
    row, column = int(np.floor(y)), int(np.floor(x))
    down, right = np.float32(y - row), np.float32(x - column)
    upper = (1 - right) * piece(values, row, column) + right * piece(values, row, column + 1)
    lower = (1 - right) * piece(values, row + 1, column) + right * piece(values, row + 1, column + 1)
    return (1 - down) * upper + down * lower
