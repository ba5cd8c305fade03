"""What a step in memory costs beside one on disk, and how soon it is restored: two ranks on two pretended hosts."""

from __future__ import annotations

import tempfile

from bench.measure import PROGRAMS, allranks, must, run
from bench.page import duration, table


def tables(*, quick: bool) -> str:
    """Return the one table: medians of saves that take turns."""
    megabytes, times = (64, 2) if quick else (1024, 5)
    with tempfile.TemporaryDirectory() as folder:
        found = must(run(allranks(2, PROGRAMS / "memory_tier_costs.py", folder, megabytes, times), limit=600.0)).told[0]
    rows = [
        (name, *(duration(found[f"{where} {what}"]) for what in ("blocked", "complete", "restored")))
        for where, name in (("disk", "on disk"), ("memory", "in memory, with a copy on the other host"))
    ]
    rows.append(("a copy of what a rank writes, for scale", duration(found["copy"]), "", ""))
    return table((f"{megabytes} MB, two ranks", "training stops for", "complete after", "restored in, warm"), rows)
