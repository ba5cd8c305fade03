"""Define the outcome of an exchange: one JSON document that every rank turns into the same result or error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allranks.errors import (
    AllranksError,
    BarrierTimeout,
    CollectiveOnOneRank,
    Mismatch,
    RankDied,
    RemoteError,
    name_ranks,
)
from allranks.failure import message_of, one_line, remote_note, traceback_of
from allranks.world.claims import Ticket
from allranks.world.codec import Json, Value, pack, unpack

_LATE = "Every rank must make this call. Where a rank is only slow, raise timeout=."
_ENDED = "Look at the output of that rank first: its end is the cause."


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an exchange.

    ``document`` is sent to all ranks. ``cause`` is the exception itself, only on the rank that raised it.
    """

    document: dict[str, Any]
    cause: Exception | None = None

    @property
    def all_entered(self) -> bool:
        """Whether every rank had entered the exchange when this outcome was decided."""
        return self.document.get("error") in (None, "mismatch", "one rank", "raised")


def outcome_of(values: Mapping[int, Json], decide: Callable[[Sequence[Value]], Value]) -> Outcome:
    """Return the outcome of ``decide(values)``: its result, or the exception that all ranks raise.

    Only the first rank of ``values`` calls.
    """
    try:
        result = decide([unpack(value) for value in values.values()])
        return Outcome({"result": pack(result, what="the result")})
    except Mismatch as error:
        found = {"ranks": list(error.ranks), "step": error.step, "leaf": error.leaf}
        kind = "one rank" if isinstance(error, CollectiveOnOneRank) else "mismatch"
        return Outcome({"error": kind, "message": str(error), **found})
    except Exception as error:
        return Outcome(exception_as_json(error, rank=next(iter(values))), cause=error)


def exception_as_json(error: Exception, *, rank: int) -> dict[str, Any]:
    """Convert an exception of one rank to a JSON document, so that the other ranks can raise it."""
    return {
        "error": "raised",
        "rank": rank,
        "type": one_line(type(error).__qualname__),
        "message": message_of(error),
        "traceback": traceback_of(error),
    }


def mismatch_outcome(who_is_where: str, minority: Sequence[int]) -> Outcome:
    message = f"the ranks came with different calls: {who_is_where}. Every rank must make the same calls in one order."
    return Outcome({"error": "mismatch", "message": message, "ranks": list(minority)})


def death_outcome(reasons: Mapping[int, str], host_of: Callable[[int], str]) -> Outcome:
    told = "; ".join(f"rank {rank} (host {host_of(rank)}): {why}" for rank, why in sorted(reasons.items()))
    told = told.rstrip(".")
    return Outcome({"error": "died", "message": f"a rank has ended. {told}.", "reasons": list(reasons.items())})


def timed_out(
    seconds: float,
    missing: Sequence[int],
    *,
    stalled: Sequence[int],
    places: Mapping[int, str],
    host_of: Callable[[int], str],
) -> Outcome:
    """Return the outcome of a timeout.

    - ``missing``: the ranks that did not enter.
    - ``stalled``: if all ranks entered, the ranks that delayed the exchange.
    - ``places``: where each of these ranks is, if it answered.
    """
    late = missing or stalled
    told = _first_items(f"rank {r} (host {host_of(r)}): {places.get(r, 'gave no sign')}" for r in late)
    if missing:
        message = f"{name_ranks(late)} did not come within {seconds:g} s. {told}."
    else:
        message = f"all ranks came, but {name_ranks(late)} did not pass their values on within {seconds:g} s. {told}."
    return Outcome({"error": "timeout", "message": message, "ranks": list(late)})


def unjudged_outcome(judge: int, host: str, *, seconds: float) -> Outcome:
    who = f"rank {judge} (host {host}), which was to say what is wrong"
    message = f"the exchange failed, and {who}, did not do so within {seconds:g} s."
    return Outcome({"error": "timeout", "message": message, "ranks": [judge]})


def result_or_raise(outcome: Outcome, *, rank: int, ticket: Ticket) -> Value:
    """Return the result of an outcome to the caller on this rank, or raise its error."""
    document = outcome.document
    if "result" in document:
        return unpack(document["result"])
    if outcome.cause is not None:
        raise outcome.cause
    raise _decode_error(document, f"rank {rank}: {ticket}: {document['message']}", rank=rank, ticket=ticket)


def _decode_error(document: Mapping[str, Any], message: str, *, rank: int, ticket: Ticket) -> AllranksError:
    match document["error"]:
        case "mismatch" | "one rank" as kind:
            error = Mismatch if kind == "mismatch" else CollectiveOnOneRank
            return error(message, ranks=document["ranks"], step=document.get("step"), leaf=document.get("leaf"))
        case "timeout":
            return BarrierTimeout(message, ranks=document["ranks"], remedy=_LATE)
        case "died":
            return RankDied(message, reasons=dict(document["reasons"]), remedy=_ENDED)
        case _:
            return remote_error(document, rank=rank, where=str(ticket))


def remote_error(document: Mapping[str, Any], *, rank: int, where: str) -> RemoteError:
    """Return the RemoteError that this rank raises for an exception of another rank.

    The other rank's traceback is a note of the error.
    """
    error = RemoteError(
        f"rank {rank}: {where}: rank {document['rank']} raised {document['type']}: {document['message']}",
        rank=document["rank"],
        remote_type=document["type"],
        remote_traceback=document["traceback"],
    )
    error.add_note(remote_note(document["rank"], document["traceback"]))
    return error


def _first_items(items: Iterable[str], most: int = 8) -> str:
    listed = list(items)
    more = f"; and {len(listed) - most} more" if len(listed) > most else ""
    return "; ".join(listed[:most]) + more
