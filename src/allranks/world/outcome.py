"""The outcome of an exchange: one JSON document that every rank turns into the same result or the same error."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allranks.errors import AllranksError, BarrierTimeout, Mismatch, RankDied, RemoteError, StoreError, name_ranks
from allranks.world.codec import Json, Value, pack, unpack
from allranks.world.ticket import Ticket


@dataclass(frozen=True, slots=True)
class Outcome:
    """``document`` travels; ``cause``, on the rank that raised it only, is the exception itself."""

    document: dict[str, Any]
    cause: Exception | None = None

    @property
    def all_came(self) -> bool:
        """Whether every rank had come when this was decided."""
        return self.document.get("error") in (None, "mismatch", "raised")


def decided(values: Mapping[int, Json], decide: Callable[[Sequence[Value]], Value]) -> Outcome:
    """Let rank 0 decide over the values of all ranks; an exception becomes an outcome that all ranks raise."""
    try:
        result = decide([unpack(values[rank]) for rank in range(len(values))])
        return Outcome({"result": pack(result, what="the result")})
    except Mismatch as error:
        found = {"ranks": list(error.ranks), "step": error.step, "leaf": error.leaf}
        return Outcome({"error": "mismatch", "message": str(error), **found})
    except Exception as error:
        return Outcome(raised(error, rank=0), cause=error)


def raised(error: Exception, *, rank: int) -> dict[str, Any]:
    """Return an exception of one rank as text, for the others to raise."""
    return {
        "error": "raised",
        "rank": rank,
        "type": type(error).__qualname__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
    }


def mismatched(who_is_where: str, minority: Sequence[int]) -> Outcome:
    message = f"the ranks came with different calls: {who_is_where}. Every rank must make the same calls in one order."
    return Outcome({"error": "mismatch", "message": message, "ranks": list(minority)})


def died(reasons: Mapping[int, str], host_of: Callable[[int], str]) -> Outcome:
    told = "; ".join(f"rank {rank} (host {host_of(rank)}): {why}" for rank, why in sorted(reasons.items()))
    return Outcome({"error": "died", "message": f"a rank is dead. {told}.", "reasons": list(reasons.items())})


def timed_out(
    *, seconds: float, missing: Sequence[int], places: Mapping[int, str], host_of: Callable[[int], str]
) -> Outcome:
    """``places`` says where missing ranks are, as far as they could be asked."""
    if missing:
        told = _few(f"rank {r} (host {host_of(r)}): {places.get(r, 'gave no sign')}" for r in missing)
        message = f"{name_ranks(missing)} did not come within {seconds:g} s. {told}."
    else:
        message = f"all ranks came, but rank 0 did not conclude within {seconds:g} s: the deadline is too short."
    return Outcome({"error": "timeout", "message": message, "ranks": list(missing)})


def undecided(grace: float) -> Outcome:
    message = f"the rank that had to decide did not write the outcome within {grace:g} s; it has probably died."
    return Outcome({"error": "store", "message": message})


def reveal(outcome: Outcome, *, rank: int, ticket: Ticket) -> Value:
    """Return the result, or raise the error, as this rank should see it."""
    document = outcome.document
    if "result" in document:
        return unpack(document["result"])
    if outcome.cause is not None:
        raise outcome.cause
    raise _error(document, f"rank {rank}: {ticket}: {document['message']}", rank=rank, ticket=ticket)


def _error(document: Mapping[str, Any], message: str, *, rank: int, ticket: Ticket) -> AllranksError:
    match document["error"]:
        case "mismatch":
            return Mismatch(message, ranks=document["ranks"], step=document.get("step"), leaf=document.get("leaf"))
        case "timeout":
            return BarrierTimeout(message, ranks=document["ranks"])
        case "died":
            return RankDied(message, reasons=dict(document["reasons"]))
        case "raised":
            return remote_error(document, rank=rank, where=str(ticket))
        case _:
            return StoreError(message)


def remote_error(document: Mapping[str, Any], *, rank: int, where: str) -> RemoteError:
    """Return the error for this rank that stands for an exception of another; its traceback is a note below ours."""
    error = RemoteError(
        f"rank {rank}: {where}: rank {document['rank']} raised {document['type']}: {document['message']}",
        rank=document["rank"],
        remote_type=document["type"],
        remote_traceback=document["traceback"],
    )
    error.add_note(f"On rank {document['rank']}:\n{document['traceback']}")
    return error


def _few(items: Iterable[str], most: int = 8) -> str:
    listed = list(items)
    more = f"; and {len(listed) - most} more" if len(listed) > most else ""
    return "; ".join(listed[:most]) + more
