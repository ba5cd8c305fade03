"""The parts of our own reading, each alone: plan, ledger, index, packing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.data_place import Place
from bench.measure import must
from bench.page import duration, table
from bench.runs import Goal, Part, megabytes

SAMPLES, BLOCKS = 10**9, 10**6
Made = tuple[list[tuple[str, str]], list[Goal]]


def tables(place: Place, *, quick: bool, rounds: int) -> Part:
    """The best of the rounds: on a busy machine, that is what a part costs."""
    count = min(rounds, 3)

    def best(*words: object) -> Mapping[str, Any]:
        told = [must(place.run("data_parts.py", *words)).told[0] for _ in range(count)]
        return min(told, key=lambda one: float(one["seconds"]))

    tokens = 2_000_000 if quick else 20_000_000
    made = [
        _plan(best("plan", SAMPLES, BLOCKS)),
        _index(best("index", place.large.folder)),
        _ledger(best("ledger", place.large.documents, 1_000 if quick else 10_000)),
        *(_packing(method, best("packing", tokens, method)) for method in ("split", "best-fit")),
    ]
    rows = [row for rows, _ in made for row in rows]
    return Part(table(("part", "cost"), rows), tuple(goal for _, goals in made for goal in goals))


def _plan(told: Mapping[str, Any]) -> Made:
    seconds, memory, rank = told["seconds"], told["memory"], told["rank"]
    rows = [
        ("plan of 10^9 samples in 10^6 blocks, beyond their index", f"{duration(seconds)}, {megabytes(memory)}"),
        ("one rank of 10,000: the ids of its row at 80 %", duration(rank)),
    ]
    return rows, [
        Goal("plan of 10^9 samples", "<= 1 s", duration(seconds), "", seconds, 1),
        Goal("the same, memory", "<= 64 MB", megabytes(memory), "", memory, 64e6),
        Goal("one rank of 10,000", "milliseconds (<= 10 ms)", duration(rank), "", rank, 0.01),
    ]


def _index(told: Mapping[str, Any]) -> Made:
    speed, part = told["nbytes"] / told["cpu"], told["index"] / told["nbytes"]
    of = f"{100 * part:.3f} %"
    return [("index of jsonl, a core", f"{speed / 1e9:.2f} GB/s; the index has {of} of the corpus' bytes")], [
        Goal("index of jsonl", ">= 0.5 GB/s a core", f"{speed / 1e9:.2f} GB/s", "", 0.5e9 / speed, 1),
        Goal("bytes of the index", "<= 0.1 % of the corpus", of, "", part, 0.001),
    ]


def _ledger(told: Mapping[str, Any]) -> Made:
    one = told["seconds"] / told["samples"]
    unfound = told["faults"] - told["found"] + told["wrong"]
    rows = [
        ("ledger, in batches of 24, added up as by the loader", f"{one * 1e9:.0f} ns a sample"),
        ("to find where an epoch's ledger is wrong", duration(told["search"])),
    ]
    return rows, [
        Goal("ledger", "<= 100 ns a sample", f"{one * 1e9:.0f} ns", "none has one", one, 100e-9),
        Goal(
            *("injected faults, each found in its step", f"all {told['faults']:,}", f"{told['found']:,}"),
            *("none checks", unfound, 0),
        ),
    ]


def _packing(method: str, told: Mapping[str, Any]) -> Made:
    speed, padding = told["tokens"] / told["seconds"] / 1e6, f"{100 * told['padding']:.2f} %"
    return [(f"packing to 2,048 tokens, {method}", f"{speed:.0f} M tokens/s, {padding} padding")], [
        Goal(f"packing, {method}", ">= 20 M tokens/s a core", f"{speed:.0f} M/s", "", 20 / speed, 1),
        Goal(f"padding, {method}", "<= 0.5 %", padding, "", told["padding"], 0.005),
    ]
