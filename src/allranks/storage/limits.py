"""Define how much memory and time the metadata of a file may take, and read the variable that raises it.

Checkpoints come from elsewhere. So a reader takes a limited number of bytes of a manifest, a header, an index or a
pickle into memory, and does a limited amount of work for each byte.
"""

from __future__ import annotations

import os
import re

from allranks.errors import BadArgument

VARIABLE = "ALLRANKS_METADATA_LIMIT"
DEFAULT = 256 << 20
RAISE = f"If you trust the file, set {VARIABLE} to more bytes (for example 2GiB; now {{limit}})."
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,15}) ?(KiB|MiB|GiB|)")

# The most levels of lists and dicts, and the most dimensions of an array.
DEPTH = 200
DIMENSIONS = 64
# The most characters of a leaf's path.
NAME = 4096
# A number of an untrusted file that counts bytes or elements is below this.
NUMBER = 1 << 63
# The most bits of an integer: Python neither prints nor reads many more digits.
INTEGER_BITS = 14_000


def metadata_limit() -> int:
    """Return the most bytes of metadata that a reader takes from one file. Raises BadArgument for a wrong variable."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return DEFAULT
    found = _SIZE.fullmatch(text.strip())
    if not found or not int(found[1]):
        raise BadArgument(f"{VARIABLE}={text!r:.40}: expected a number of bytes, such as 268435456, 512MiB or 2GiB.")
    return int(found[1]) * _UNITS[found[2]]


def memory_of_host() -> int:
    """Return the bytes of memory that this host has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def advice_on_limit() -> str:
    """Return the sentence that says how a user raises the limit."""
    return RAISE.format(limit=f"{metadata_limit():,}")
