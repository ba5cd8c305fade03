"""The table of dtypes agrees with NumPy, ml_dtypes and the safetensors library."""

from __future__ import annotations

import json
import math
import re

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors import SafetensorError, deserialize

from allranks.checkpoint.checkpointer import Checkpointer
from allranks.checkpoint.dtypes import DTYPES
from allranks.storage import MemoryStorage
from allranks.world.detect import single_world


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


TORCHS = [name for name in dir(torch) if re.fullmatch("u?int[1-7]|float4_e2m1fn_x2", name)]


@pytest.mark.parametrize("name", TORCHS)
def test_what_torch_only_has_a_name_for_comes_back_in_its_bytes(name: str) -> None:
    """Parts of a byte: contiguous or not, into tensors that are there, and onto the meta device."""
    dtype = getattr(torch, name)
    bytes_ = torch.arange(6, dtype=torch.uint8).reshape(2, 3) % (2 if name.endswith("1") else 3)
    state = {"x": bytes_.view(dtype), "turned": bytes_.t().view(dtype)}
    storage = MemoryStorage()
    with Checkpointer(storage, single_world(), on_sigterm=False) as ckpt:
        ckpt.save(1, state, block=True)
        into = {key: torch.zeros(value.shape, dtype=torch.uint8).view(dtype) for key, value in state.items()}
        empty = {key: torch.empty(value.shape, dtype=dtype, device="meta") for key, value in state.items()}
        for template in (into, empty):
            restored = ckpt.restore(template)
            assert restored is not None
            for key, value in restored[0].items():
                assert value.dtype == dtype
                assert value.view(torch.uint8).tolist() == state[key].view(torch.uint8).tolist()


def test_a_number_of_numpy_comes_back_as_its_own_type() -> None:
    """Of two C types of one size, the one that a program has: np.int64, not np.longlong."""
    state = {name: getattr(np, name)(3) for name in ("int64", "uint64", "int32", "float32", "complex128")}
    with Checkpointer(MemoryStorage(), single_world(), on_sigterm=False) as ckpt:
        ckpt.save(1, state, block=True)
        restored = ckpt.restore({name: type(value)(0) for name, value in state.items()})
    assert restored is not None
    assert {name: type(value) for name, value in restored[0].items()} == {n: type(v) for n, v in state.items()}
