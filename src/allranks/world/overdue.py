"""After half of the grace period, report the ranks that have not reached the call at which all ranks leave."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping

from allranks.callsite import whereabouts
from allranks.errors import StoreError, name_ranks
from allranks.world.base import World
from allranks.world.claims import by_claim
from allranks.world.progress import progress

# The grace of torchrun, of Slurm (KillWait) and of `allranks run`, in seconds, where no launcher of ours says another.
DEFAULT_GRACE = 30.0
_CAME, _REPORTED = "leaving/came/", "leaving/reported"


def grace_seconds() -> float:
    """Return how many seconds a rank has between SIGTERM and SIGKILL."""
    return float(os.environ.get("ALLRANKS_GRACE", DEFAULT_GRACE))


def is_known() -> bool:
    """Return whether ``allranks run`` has set the grace period."""
    return "ALLRANKS_GRACE" in os.environ


def record_arrival(world: World) -> None:
    """Record that this rank has reached a call at which all ranks leave."""
    world.store.set(f"{_CAME}{world.rank}", b"1")


def watch_late_ranks(world: World, name: str, *, why: str, call: str) -> None:
    """Start a thread that, after half of the grace, prints where the late ranks are.

    Only rank 0 calls; returns at once. A late rank is one that has not reached ``call``. Of several watches with
    different ``name``, only one prints.
    """
    thread = threading.Thread(
        target=_print_late_ranks, args=(world, name, why, call), name="allranks-overdue", daemon=True
    )
    thread.start()


def _print_late_ranks(world: World, name: str, why: str, call: str) -> None:
    half = grace_seconds() / 2
    time.sleep(half)
    try:
        late = set(range(world.size)) - {int(one.removeprefix(_CAME)) for one in world.store.list(_CAME)}
        if not late or world.store.claim(_REPORTED, name.encode()) != name.encode():
            return
        places = dict(world.listener.locate(sorted(late)))
    except StoreError:
        return
    if world.rank in late:
        places[world.rank] = f"at {whereabouts() or 'an unknown line'}"
    told = late_ranks_line(late, places, why=why, call=call, seconds=half, saved=progress.saved)
    print(f"allranks: {told}", file=sys.stderr)


def late_ranks_line(
    late: Iterable[int], places: Mapping[int, str], *, why: str, call: str, seconds: float, saved: int | None
) -> str:
    """Return one line that says which ranks are late, where each of them is, and what to do.

    ``saved`` is the last saved step, or None.
    """
    since = "" if saved is None else f" since step {saved}"
    groups = by_claim((rank, places.get(rank, "gave no sign")) for rank in sorted(late))
    where = "; ".join(f"{name_ranks(ranks)} {place}" for place, ranks in groups.items())
    return (
        f"{why} {seconds:g} s ago, and {name_ranks(late)} did not come to the next {call}: {where}. Nothing is saved"
        f"{since}, and in {seconds:g} s the job may be killed. Call {call} after every step, and now and then (same "
        "step) in a long warm-up or evaluation, or give more time: allranks run --grace."
    )
