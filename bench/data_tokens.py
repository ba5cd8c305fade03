"""Tokens against a bare memory map, and the wait for batches that a thread copies to the device."""

from __future__ import annotations

from typing import Any

from bench.data_place import Place
from bench.measure import median, must
from bench.page import duration, table
from bench.runs import Goal, Part, how, x

LENGTHS = (256, 1024)
FRAMEWORKS = ("jax", "torch")
PEERS = {"litdata": False, "mosaic": True}  # whether it needs the peers' own environment
PEER_TOKENS = 20_000_000  # which are in memory after the first round, as all tokens here


def tables(place: Place, *, quick: bool, rounds: int) -> Part:
    """Ratios within rounds of one process, and medians of the waits."""
    count, seconds = (10_000_000, 0.3) if quick else (200_000_000, 2.0)
    rows, goals, our_rates = [], list[Goal](), dict[int, float]()
    for length in LENGTHS:
        one = must(place.run("data_tokens.py", place.large.folder / "tokens", count, length, seconds, rounds)).told[0]
        ordered, random = (_ratio(one, way) for way in ("ordered", "random"))
        rates = [f"{median(one[way]) / 1e6:,.0f} M/s" for way in ("bare", "ordered", "random")]
        rows.append((f"windows of {length:,}", *rates, x(ordered), x(random)))
        our_rates[length] = median(one["ordered"])
        worst = min(ordered, random)
        what = f"tokens against a bare memory map, windows of {length:,}"
        goals.append(Goal(what, ">= 0.8 x", x(worst), "", 0.8 / worst, 1))
    peers = [
        _peer(place, kind, length, our_rates[length], seconds, rounds)
        for length in LENGTHS
        for kind in _peers(place, quick=quick)
    ]
    waits = {(which, ahead): _wait(place, which, ahead, quick=quick) for which in FRAMEWORKS for ahead in (0, 2)}
    slowest = max(waits[which, 2] for which in FRAMEWORKS)
    goals.append(
        Goal("waiting for 8 MB on the device, steps of 20 ms", "< 100 µs", duration(slowest), "", slowest, 1e-4)
    )
    goals += [goal for _, goal in peers if goal is not None]
    headers = ("tokens a second", "memory map", "in order", "at random", "in order / map", "at random / map")
    copied = [(which, *(duration(waits[which, ahead]) for ahead in (0, 2))) for which in FRAMEWORKS]
    both = [
        table(headers, rows),
        table(("tokens a second", "the library", "in order / the library"), [row for row, _ in peers]),
        table(("wait for 8 MB, median", "copied by the loop", "by a thread, 2 ahead"), copied),
    ]
    return Part("\n\n".join(both), tuple(goals))


def _ratio(one: Any, way: str) -> float:
    return median(mine / bare for mine, bare in zip(one[way], one["bare"], strict=True))


def _wait(place: Place, which: str, ahead: int, *, quick: bool) -> float:
    told = must(place.run("data_transfer.py", which, ahead, 50 if quick else 200)).told
    return median(told[0]["waits"])


def _peers(place: Place, *, quick: bool) -> list[str]:
    return [kind for kind, own in PEERS.items() if not own or not (quick or place.missing.get("own"))]


def _peer(
    place: Place, kind: str, length: int, ours: float, seconds: float, rounds: int
) -> tuple[tuple[str, ...], Goal | None]:
    """Return a row of the table of other libraries, and the goal; no goal if the library cannot be run."""
    words = (place.large.folder / "tokens", kind, PEER_TOKENS, length, seconds, rounds)
    ran = place.run("data_token_peers.py", *words, own=PEERS[kind])
    name = f"{kind}, windows of {length:,}"
    if ran.code != 0 or not ran.told:
        return (name, how(ran), "-"), None
    theirs = median(ran.told[0]["rate"])
    goal = Goal(f"tokens against {name}", ">= 1.0 x", x(ours / theirs), "", theirs / ours, 1)
    return (name, f"{theirs / 1e6:,.1f} M/s", x(ours / theirs)), goal
