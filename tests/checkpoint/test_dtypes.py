"""The table of dtypes agrees with NumPy, ml_dtypes and the safetensors library."""

from __future__ import annotations

import json
import math

import ml_dtypes
import numpy as np
import pytest
from safetensors import SafetensorError, deserialize

from allranks.checkpoint.dtypes import DTYPES


def file_of(dtype: str, shape: tuple[int, ...], size: int) -> bytes:
    header = json.dumps({"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_is_numpys_and_opens_in_safetensors(name: str) -> None:
    """NumPy's name and item size; stored under safetensors' name, three elements are as many bytes."""
    dtype = DTYPES[name]
    assert name == dtype.name
    numpys = getattr(ml_dtypes, name, None) or name
    assert (np.dtype(numpys).name, np.dtype(numpys).itemsize) == (name, dtype.size)
    shape = (3, *dtype.tail)
    [(_, found)] = deserialize(file_of(dtype.stored_as, shape, 3 * dtype.size))
    assert (found["dtype"], tuple(found["shape"]), len(found["data"])) == (dtype.stored_as, shape, 3 * dtype.size)
    assert math.prod(dtype.tail) in (1, dtype.size)


def test_no_dtype_of_ml_dtypes_is_left_out() -> None:
    """A new one there is a decision here."""
    there = {name for name in dir(ml_dtypes) if isinstance(getattr(ml_dtypes, name), type)} - {"finfo", "iinfo"}
    assert there <= DTYPES.keys()


def test_the_look_into_safetensors_can_fail() -> None:
    """It refuses a name it does not know, and a wrong size: so complex128 and int4 need another name."""
    for dtype, size in (("C128", 48), ("F4", 3), ("F32", 3)):
        with pytest.raises(SafetensorError):
            deserialize(file_of(dtype, (3,), size))
