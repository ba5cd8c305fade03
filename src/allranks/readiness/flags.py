"""Check that this jaxlib knows the flags in XLA_FLAGS, and that XLA has read exactly these flags.

An unknown flag ends a process at once. A flag that is set after XLA has read its flags silently does nothing. So a
child process reads the flags, and its options are compared with the options of this process.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_UNKNOWN = re.compile(r"Unknown flags? in XLA_FLAGS: (.*)")
_VALUE = re.compile(r"Couldn't interpret value (.*) for flag (\w+)")
_NO_FILE = re.compile(r'Could not open file "([^"]*)"')
# Python's start, and the import of jaxlib: a second where nothing is in the page cache is a lot.
_PATIENCE = 60.0
# XLA's options as bytes: they contain every flag.
OPTIONS = "hashlib.sha256(xla_client.CompileOptions().SerializeAsString()).hexdigest()"
_PROGRAM = f"import hashlib; from jaxlib import xla_client; print({OPTIONS})"


@dataclass(frozen=True, slots=True)
class FlagsReading:
    """The result of a process that read XLA_FLAGS with jaxlib.

    ``digest`` is the digest of its options; ``refused`` is why it refused the flags; ``unknown`` are the unknown flags.
    """

    digest: str = ""
    refused: str = ""
    unknown: tuple[str, ...] = ()


def read_in_child(flags: str, environ: Mapping[str, str] | None = None) -> FlagsReading:
    """Start a new process of this Python with ``flags`` as XLA_FLAGS; return how it reads them. Takes about 0.3 s."""
    inherited = {k: v for k, v in (environ or os.environ).items() if not k.startswith("ALLRANKS_")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM],
        env={**inherited, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    if done.returncode == 0:
        return FlagsReading(digest=done.stdout.strip())
    if found := _UNKNOWN.search(done.stderr):
        unknown = tuple(found[1].split())
        return FlagsReading(refused=f"XLA does not know {' '.join(unknown)}", unknown=unknown)
    if found := _VALUE.search(done.stderr):
        return FlagsReading(refused=f"XLA cannot read the value {found[1]!r} of --{found[2]}")
    if found := _NO_FILE.search(done.stderr):
        return FlagsReading(refused=f"{found[1]!r} does not begin with --, so XLA looks for a file of that name")
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return FlagsReading(refused=f"XLA ends: {last}")


def known_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Return those of the flags that the installed jaxlib knows."""
    left = tuple(flags)
    while left and (unknown := read_in_child(" ".join(left)).unknown):
        left = tuple(flag for flag in left if flag.partition("=")[0] not in {one.partition("=")[0] for one in unknown})
    return left
