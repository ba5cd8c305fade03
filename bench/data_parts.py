"""The parts of our own reading, each alone: plan, ledger, index, packing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.data_place import Place
from bench.measure import Ran, must
from bench.page import duration, table
from bench.runs import Goal, Part, megabytes

SAMPLES, BLOCKS = 10**9, 10**6


def tables(place: Place, *, quick: bool, rounds: int) -> Part:
    """The best of the rounds: on a busy machine, that is what a part costs."""
    count = min(rounds, 3)
    plan = min((_told(place.run("data_parts.py", "plan", SAMPLES, BLOCKS)) for _ in range(count)), key=_seconds)
    faults = 1_000 if quick else 10_000
    documents = place.large.documents
    ledger = min((_told(place.run("data_parts.py", "ledger", documents, faults)) for _ in range(count)), key=_seconds)
    index = min((_told(place.run("data_parts.py", "index", place.large.folder)) for _ in range(count)), key=_seconds)
    packing = min((_told(place.run("data_parts.py", "packing", 20_000_000)) for _ in range(count)), key=_seconds)
    one, speed, part = ledger["seconds"] / ledger["samples"], index["nbytes"] / index["cpu"], index["index"]
    unfound = ledger["faults"] - ledger["found"] + ledger["wrong"]
    tokens = packing["tokens"] / packing["seconds"]
    rows = [
        ("plan of 10^9 samples, 10^6 blocks", f"{duration(plan['seconds'])}, {megabytes(plan['memory'])}"),
        ("one rank of 10,000: its rows of a step at 80 %", duration(plan["rank"])),
        ("ledger, batches of 24", f"{one * 1e9:.0f} ns a sample"),
        ("where a ledger is wrong, an epoch", duration(ledger["search"])),
        ("index of jsonl, one core", f"{speed / 1e9:.2f} GB/s; the index is {100 * part / index['nbytes']:.3f} %"),
        ("packing to 2,048 tokens", f"{tokens / 1e6:.0f} M tokens/s, {100 * packing['padding']:.2f} % padding"),
    ]
    return Part(
        table(("part", "cost"), rows),
        (
            Goal("plan of 10^9 samples", "<= 1 s", duration(plan["seconds"]), "", plan["seconds"], 1),
            Goal("the same, memory", "<= 64 MB", megabytes(plan["memory"]), "", plan["memory"], 64e6),
            Goal("one rank of 10,000", "milliseconds (<= 10 ms)", duration(plan["rank"]), "", plan["rank"], 0.01),
            Goal("index of jsonl", ">= 0.5 GB/s a core", f"{speed / 1e9:.2f} GB/s", "", 0.5e9 / speed, 1),
            Goal(
                *("index", "<= 0.1 % of the corpus", f"{100 * part / index['nbytes']:.3f} %", ""),
                *(part / index["nbytes"], 0.001),
            ),
            Goal("ledger", "<= 500 ns a sample", f"{one * 1e9:.0f} ns", "nobody has one", one, 500e-9),
            Goal(
                *("injected faults found, each in its step", f"{ledger['faults']:,}", f"{ledger['found']:,}"),
                *("nobody looks", unfound, 0),
            ),
            Goal("packing", ">= 20 M tokens/s a core", f"{tokens / 1e6:.0f} M/s", "", 20e6 / tokens, 1),
            Goal("packing: padding", "<= 0.5 %", f"{100 * packing['padding']:.2f} %", "", packing["padding"], 0.005),
        ),
    )


def _told(ran: Ran) -> Mapping[str, Any]:
    return must(ran).told[0]


def _seconds(told: Mapping[str, Any]) -> float:
    return float(told["seconds"])
