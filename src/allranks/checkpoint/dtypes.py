"""Define the table of dtypes that a checkpoint can hold, with NumPy's name, element size and safetensors' name of each.

Dtypes narrower than a byte take one byte for each element, as in NumPy and JAX. safetensors (0.8) lacks some dtypes.
Those are stored as unsigned integers of the same size, and complex128 as bytes with a last dimension of 16. The
manifest has the true dtype.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dtype:
    """A dtype of a checkpoint.

    ``size``: the bytes of an element. ``stored_as``: safetensors' name. ``tail``: dimensions to add to the shape there.
    """

    name: str
    size: int
    stored_as: str
    tail: tuple[int, ...] = ()


_EXACT = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "U16": ("uint16", 2),
    "I16": ("int16", 2),
    "U32": ("uint32", 4),
    "I32": ("int32", 4),
    "U64": ("uint64", 8),
    "I64": ("int64", 8),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "F32": ("float32", 4),
    "F64": ("float64", 8),
    "C64": ("complex64", 8),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F8_E8M0": ("float8_e8m0fnu", 1),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 1),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 1),
}
# One byte an element here; safetensors' F4 and F6 are packed, so these are not they.
_BYTES = (
    *("int1", "int2", "int4", "uint1", "uint2", "uint4"),
    *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"),
)
DTYPES = {
    **{name: Dtype(name, size, stored_as) for stored_as, (name, size) in _EXACT.items()},
    **{name: Dtype(name, 1, "U8") for name in _BYTES},
    "complex32": Dtype("complex32", 4, "U32"),
    "bcomplex32": Dtype("bcomplex32", 4, "U32"),
    "complex128": Dtype("complex128", 16, "U8", (16,)),
}
