"""Combine the CRC-32 of pieces to the CRC-32 of the complete data: threads and ranks can each read a part.

The CRC of ``a + b`` is the CRC of ``a`` shifted by the length of ``b``, xor the CRC of ``b``. To shift by one byte is
to multiply by x^8 modulo the polynomial (zlib's ``crc32_combine``, in its own bit order: the highest power is bit 0).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31


def _multiply_polynomials(a: int, b: int) -> int:
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@lru_cache(maxsize=4096)
def _moved_by(length: int) -> int:
    """Return x^(8 * length) modulo the polynomial, which shifts a CRC by ``length`` bytes."""
    power, square = _ONE, 1 << 23
    while length:
        if length & 1:
            power = _multiply_polynomials(square, power)
        square = _multiply_polynomials(square, square)
        length >>= 1
    return power


def combine_crcs(pieces: Iterable[tuple[int, int]]) -> int:
    """Return the CRC-32 of the concatenation of pieces; each piece is given as (its CRC-32, its length in bytes)."""
    whole = 0
    for crc, length in pieces:
        whole = _multiply_polynomials(_moved_by(length), whole) ^ crc if whole else crc
    return whole
