"""Summarise a job that has ended: the first failure, its consequences, a table. Returns lines of text; does no I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from allranks.errors import name_ranks
from allranks.failure import Failure, describe_exit
from allranks.launch.explain import explanation_text
from allranks.launch.filters import text_without_rank
from allranks.launch.first_failure import LEFT_EARLY
from allranks.launch.result import JobResult, RankResult
from allranks.messages.book import BOOK
from allranks.report import format_table

MOST_LINES = 20
LONGEST_LINE = 2_000  # characters: the log files have a message of megabytes in full
_FILE = '  File "'
_OURS = "allranks:"
_JOINS = {"jax": "jax.distributed.initialize()", "torch": "torch.distributed.init_process_group()"}
_NUMBER = re.compile(r"\d+")


def summary(result: JobResult, *, recent: Collection[str] = (), quiet: bool = False) -> list[str]:
    """Return the lines to print at the end of a job: the cause first, the table last. ``quiet``: only the cause.

    ``recent`` are lines of ranks that were shown just now, without the rank's number. They are not shown again.
    """
    lines: list[str] = []
    first = result.first_failure
    if first is not None:
        lines += [*_failure_lines(first, result, recent), *_consequence_lines(first, result, recent), ""]
    elif result.cause:
        lines += [f"job {result.cause}", ""]
    elif result.unjoined:
        lines += [_unjoined_note(result), ""]
    shown = lines[:-1] if quiet else [*lines, *result.slow, *_rank_table(result)]
    return [line.replace("\n", "\\n") for line in shown]


def member_summary(result: JobResult, *, quiet: bool = False) -> list[str]:
    """Return the lines to print at the end of a job on another host than host 0, which prints the rest.

    ``quiet``: only the cause.
    """
    first, code = result.first_failure, [] if quiet else [f"exit code {result.exit_code}"]
    if first is not None:
        return ["first failure: " + replace(first, what=text_without_rank(first.rank, first.what)).headline(), *code]
    return [f"job {result.cause}", *code] if result.cause else []


def _failure_lines(first: Failure, result: JobResult, recent: Collection[str]) -> Iterator[str]:
    yield "first failure: " + replace(first, what=text_without_rank(first.rank, first.what)).headline()
    trace = [text_without_rank(first.rank, line) for line in first.traceback.rstrip().splitlines()]
    tail = _last_lines(result.ranks[first.rank].tail, trace)
    if tail and not first.what.startswith(LEFT_EARLY) and not _is_shown(tail, recent):
        yield f"  last lines of rank {first.rank}:"  # what it prints while its peers fail is a consequence
        yield from (f"    {_shorten_line(line)}" for line in tail)
    if trace and _is_shown(trace[-MOST_LINES:], recent):
        yield "  (its traceback is above)"
    else:
        yield from (f"  {_shorten_line(line)}" for line in trace)
    if not trace and (known := BOOK.find_in_line(first.what.encode())):
        explanation = explanation_text(known, about=f"  rank {first.rank}").splitlines()
        if not all(line in recent for line in explanation[1:]):
            yield from explanation


def _is_shown(lines: Sequence[str], recent: Collection[str]) -> bool:
    """Return whether all lines are in ``recent``.

    Python may have added a suggestion to the last ("Did you mean: ...").
    """
    return all(line in recent for line in lines[:-1] if line.strip()) and any(
        line.startswith(lines[-1]) for line in recent
    )


def _shorten_line(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}... ({len(line)} characters)"


def _unjoined_note(result: JobResult) -> str:
    size, frameworks = len(result.ranks), result.unjoined.split(", ")
    join = " or ".join(_JOINS.get(one, f"what joins processes in {one}") for one in frameworks)
    return (
        f"the {size} ranks never met: {size} separate programs? Each uses {' and '.join(frameworks)}, and none has "
        f"joined the others. If they are one job, call {join} (or allranks.init()), and give each its part of the data."
    )


def _last_lines(tail: Sequence[str], trace: Sequence[str]) -> list[str]:
    """Return the last lines of a rank before its traceback. (The traceback is printed completely anyway.)"""
    lines = [line for line in tail if not line.startswith(_OURS)]  # the messages of allranks are above already
    said = {line for line in trace if line.startswith((_FILE, *trace[:1]))}
    beginnings = [number for number, line in enumerate(lines) if line in said]
    if beginnings:  # of a deep one, somewhere in its middle
        lines = lines[: beginnings[0]]
    while lines and (not lines[-1].strip() or lines[-1] in trace):
        lines.pop()
    return lines[-MOST_LINES:]


def _consequence_lines(first: Failure, result: JobResult, recent: Collection[str]) -> Iterator[str]:
    """Yield one line for each group of ranks that ended in the same way, apart from numbers (ports, addresses)."""
    same = _how_rank_ended(result.ranks[first.rank])
    groups: dict[str, list[RankResult]] = {}
    for rank in result.ranks:
        if rank.rank != first.rank:
            groups.setdefault(_NUMBER.sub("0", _how_rank_ended(rank)), []).append(rank)
    for ranks in groups.values():
        names = name_ranks(rank.rank for rank in ranks)
        how, is_lost = _how_rank_ended(ranks[0], recent), ranks[0].is_lost
        is_same = ranks[0].reported is not None and _how_rank_ended(ranks[0]) == same
        yield f"{names}: the same" if is_same else f"{names}: {how}" if is_lost else f"consequences: {names}: {how}"


def _how_rank_ended(rank: RankResult, recent: Collection[str] = ()) -> str:
    """Return a text that says how a rank ended.

    If the text of its error is in ``recent``, give only the error's type.
    """
    if rank.reported is not None:
        what = text_without_rank(rank.rank, rank.reported.what)
        if what in recent:
            what = what.partition(": ")[0]
        return what + (f" (at {rank.reported.where})" if rank.reported.where else "")
    if rank.stopped:
        return "stopped by allranks"
    if rank.is_lost:
        return "lost with their hosts"
    return "not started" if rank.wait_code is None else describe_exit(rank.wait_code)


def _rank_table(result: JobResult) -> list[str]:
    rows = [(one.rank, one.host, one.devices, _exit_text(one), *_usage(one)) for one in result.ranks]
    text = format_table(("rank", "host", "devices", "exit", "time", "peak memory"), rows)
    restarts = len(result.restarts)
    again = f", {restarts} restart{'s' if restarts > 1 else ''}" if restarts else ""
    return [*text.splitlines(), f"exit code {result.exit_code} after {result.seconds:.1f} s{again}"]


def _usage(rank: RankResult) -> tuple[str | None, str | None]:
    """Return the time and the peak memory of a rank, as text."""
    return (None, None) if rank.seconds is None else (f"{rank.seconds:.1f} s", f"{rank.peak_bytes / 2**20:.0f} MB")


def _exit_text(rank: RankResult) -> str | None:
    if rank.is_lost:
        return "lost"
    if rank.wait_code is None:
        return None
    if rank.reported is not None and rank.stopped:  # it had failed already, and was held until the others were down
        return str(rank.reported.exit_code)
    return ("stopped: " if rank.stopped else "") + describe_exit(rank.wait_code).removeprefix("exit code ")
