"""What is said when a job has ended: the first failure, its consequences, a table. Values in, lines of text out."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.errors import name_ranks
from allranks.failure import Failure, describe_exit
from allranks.launch.result import JobResult, RankResult
from allranks.report import table

MOST_LINES = 20


def epilogue(result: JobResult) -> list[str]:
    """Return the lines that end a job; the cause first, the table last."""
    lines: list[str] = []
    if result.first_failure is not None:
        lines += [*_failure(result.first_failure, result), *_consequences(result.first_failure, result), ""]
    elif result.cause:
        lines += [f"job {result.cause}", ""]
    return [*lines, *_table(result)]


def _failure(first: Failure, result: JobResult) -> Iterator[str]:
    yield "first failure: " + first.headline()
    trace = first.traceback.rstrip().splitlines()
    tail = list(result.ranks[first.rank].tail)
    if trace:  # the traceback stands at the end of its output too: there it is cut off
        begins = [i for i, line in enumerate(tail) if line.startswith(trace[0])]
        tail = tail[: begins[0]] if begins else tail
    while tail and not tail[-1].strip():
        tail.pop()
    if tail:
        yield f"  last lines of rank {first.rank}:"
        yield from (f"    {line}" for line in tail[-MOST_LINES:])
    yield from (f"  {line}" for line in trace)


def _consequences(first: Failure, result: JobResult) -> Iterator[str]:
    """One line for all ranks that ended in the same way."""
    groups: dict[str, list[int]] = {}
    for rank in result.ranks:
        if rank.rank != first.rank:
            groups.setdefault(_how(rank), []).append(rank.rank)
    for how, ranks in groups.items():
        yield f"consequences: {name_ranks(ranks)}: {how}"


def _how(rank: RankResult) -> str:
    if rank.said is not None:
        return rank.said.what + (f" (at {rank.said.where})" if rank.said.where else "")
    if rank.stopped:
        return "stopped by allranks"
    return "not started" if rank.wait_code is None else describe_exit(rank.wait_code)


def _table(result: JobResult) -> list[str]:
    rows = [
        (r.rank, r.host, r.devices, _exit(r), f"{r.seconds:.1f} s", f"{r.peak_bytes / 2**20:.0f} MB")
        for r in result.ranks
    ]
    text = table(("rank", "host", "devices", "exit", "time", "peak memory"), rows)
    return [*text.splitlines(), f"exit code {result.exit_code} after {result.seconds:.1f} s"]


def _exit(rank: RankResult) -> str | None:
    if rank.wait_code is None:
        return None
    return ("stopped: " if rank.stopped else "") + describe_exit(rank.wait_code).removeprefix("exit code ")
