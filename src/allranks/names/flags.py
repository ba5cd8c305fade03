"""The flags of XLA_FLAGS that jaxlib accepts, by version. The list is written by tools/known_names.py."""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Mapping
from functools import cache, lru_cache


@cache
def xla_flags() -> Mapping[str, tuple[str, ...]]:
    """Return, by flag (without hyphens), the examined versions of jaxlib that accept it, oldest first."""
    lines = (pkgutil.get_data(__package__, "xla_flags.txt") or b"").decode("ascii").splitlines()
    words = [line.split() for line in lines if not line.startswith("#")]
    versions = words[0][1:]
    return {name: tuple(v for v, bit in zip(versions, bits, strict=True) if bit == "1") for name, bits in words[1:]}


@lru_cache(4096)
def nearest_flag(flag: str) -> str | None:
    """Return the most similar flag of the newest jaxlib; None if no flag is similar."""
    known = xla_flags()
    newest = max((versions[-1] for versions in known.values()), key=lambda v: tuple(map(int, v.split("."))))
    current = [name for name, versions in known.items() if newest in versions]
    return next(iter(difflib.get_close_matches(flag, current, n=1, cutoff=0.85)), None)
