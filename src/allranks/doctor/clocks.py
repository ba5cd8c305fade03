"""Compute the offsets between the hosts' clocks, from the times of queries and answers. This module does no I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from allranks.doctor.hosts import format_duration, name_hosts
from allranks.findings import Row, error, not_determined, ok, warning

# Beyond: Kerberos refuses a ticket (the default clockskew of MIT's, krb5.conf), and clouds a signed request.
_REFUSED = 300.0
# Beyond: lines of logs and times of files are in the wrong order.
_CONFUSING = 1.0


def clock_offset(samples: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return how many seconds the other host's clock is ahead of this host's clock, and the uncertainty in seconds.

    A sample is (sent, answered, received): ``sent`` and ``received`` by this host's clock, ``answered`` by the other
    host's. The answer was given at some moment between the two. So the sample with the shortest round trip is the best,
    and its uncertainty is half of that round trip. At least one sample is needed.
    """
    request, answered, heard = min(samples, key=lambda sample: sample[2] - sample[0])
    return answered - (request + heard) / 2, (heard - request) / 2


def clock_row(main_host: str, offsets: Mapping[str, tuple[float, float] | None]) -> Row | None:
    """Return the report row about the clocks; None if there is only one host.

    ``offsets`` maps each other host to a pair: how many seconds the clock of host ``main_host`` is ahead, and the
    uncertainty. It is None if no answer arrived in time.
    """
    if not offsets:
        return None
    known = {host: pair for host, pair in offsets.items() if pair is not None}
    silent = [host for host, pair in offsets.items() if pair is None]
    if not known:
        return not_determined("clocks", f"host {main_host} did not answer in time: {name_hosts(silent)}")
    host, (ahead, doubt) = max(known.items(), key=lambda item: abs(item[1][0]))
    told = [
        f"host {host} is {_describe_offset(ahead, doubt)} host {main_host}"
        + (", the farthest" if len(known) > 1 else "")
    ]
    told += [f"not measured: {name_hosts(silent)}"] if silent else []
    sure = max(0.0, abs(ahead) - doubt)
    if sure > _REFUSED:
        told.append("credentials and signed requests are refused")
        return error("clocks", *told, remedy="Set the clock with chrony or NTP.")
    if sure > _CONFUSING:
        return warning("clocks", *told, "logs and file times are in the wrong order", remedy="Start chrony or NTP.")
    if silent or not math.isfinite(ahead):
        return not_determined("clocks", *told)
    return ok("clocks", *told, margin=-sure)


def _describe_offset(ahead: float, doubt: float) -> str:
    """Describe another host's clock relative to the main host's, which is ``ahead`` seconds ahead of it."""
    if abs(ahead) <= doubt:
        return f"within {format_duration(doubt)} of"
    return f"{format_duration(abs(ahead))} (+- {format_duration(doubt)}) {'behind' if ahead > 0 else 'ahead of'}"
