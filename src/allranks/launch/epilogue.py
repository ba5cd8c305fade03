"""What is said when a job has ended: the first failure, its consequences, a table. Values in, lines of text out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from allranks.errors import name_ranks
from allranks.failure import Failure, describe_exit
from allranks.launch.explain import told
from allranks.launch.result import JobResult, RankResult
from allranks.launch.verdict import LEFT_EARLY
from allranks.messages.book import BOOK
from allranks.report import table

MOST_LINES = 20
LONGEST_LINE = 2_000  # characters: a message of megabytes stands in the log files
_FILE = '  File "'
_TORCH_RANK = re.compile(r"^\[rank\d+\]: ")  # torch's own hook puts it before every line of a traceback
_OURS = "allranks: "
_JOINS = {"jax": "jax.distributed.initialize()", "torch": "torch.distributed.init_process_group()"}
_NUMBER = re.compile(r"\d+")


def epilogue(result: JobResult, *, quiet: bool = False) -> list[str]:
    """Return the lines that end a job; the cause first, the table last. ``quiet``: only the cause."""
    lines: list[str] = []
    if result.first_failure is not None:
        lines += [*_failure(result.first_failure, result), *_consequences(result.first_failure, result), ""]
    elif result.cause:
        lines += [f"job {result.cause}", ""]
    elif result.unmet:
        lines += [_unmet(result), ""]
    return lines[:-1] if quiet else [*lines, *_table(result)]


def _failure(first: Failure, result: JobResult) -> Iterator[str]:
    yield "first failure: " + first.headline()
    trace = first.traceback.rstrip().splitlines()
    tail = _last_words(result.ranks[first.rank].tail, trace)
    if tail and not first.what.startswith(LEFT_EARLY):  # what it prints while its peers fail is a consequence
        yield f"  last lines of rank {first.rank}:"
        yield from (f"    {_cut(line)}" for line in tail)
    yield from (f"  {_cut(line)}" for line in trace)
    if not trace and (known := BOOK.find(first.what.encode())):
        yield from told(known, about=f"  rank {first.rank}").splitlines()


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}... ({len(line)} characters)"


def _unmet(result: JobResult) -> str:
    size, frameworks = len(result.ranks), result.unmet.split(", ")
    join = " or ".join(_JOINS.get(one, f"what joins processes in {one}") for one in frameworks)
    return (
        f"the {size} ranks never met: {size} separate programs? Each uses {' and '.join(frameworks)}, and none has "
        f"joined the others. If they are one job, call {join} (or allranks.init()), and give each its part of the data."
    )


def _last_words(tail: Sequence[str], trace: Sequence[str]) -> list[str]:
    """Return the last lines of a rank before its traceback, which is printed in full anyway."""
    lines = [line for line in tail if not line.startswith(_OURS)]  # what we have said stands above already
    said = {line for line in trace if line.startswith((_FILE, *trace[:1]))}
    beginnings = [number for number, line in enumerate(lines) if _TORCH_RANK.sub("", line) in said]
    if beginnings:  # of a deep one, somewhere in its middle
        lines = lines[: beginnings[0]]
    while lines and (not lines[-1].strip() or _TORCH_RANK.sub("", lines[-1]) in trace):
        lines.pop()
    return lines[-MOST_LINES:]


def _consequences(first: Failure, result: JobResult) -> Iterator[str]:
    """One line for all ranks that ended in the same way, but for numbers (ports, addresses)."""
    groups: dict[str, list[RankResult]] = {}
    for rank in result.ranks:
        if rank.rank != first.rank:
            groups.setdefault(_NUMBER.sub("0", _how(rank)), []).append(rank)
    for ranks in groups.values():
        yield f"consequences: {name_ranks(rank.rank for rank in ranks)}: {_how(ranks[0])}"


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
    restarts = len(result.restarts)
    again = f", {restarts} restart{'s' if restarts > 1 else ''}" if restarts else ""
    return [*text.splitlines(), f"exit code {result.exit_code} after {result.seconds:.1f} s{again}"]


def _exit(rank: RankResult) -> str | None:
    if rank.wait_code is None:
        return None
    if rank.said is not None and rank.stopped:  # it had failed already, and was held until the others were down
        return str(rank.said.exit_code)
    return ("stopped: " if rank.stopped else "") + describe_exit(rank.wait_code).removeprefix("exit code ")
