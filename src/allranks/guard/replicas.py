"""Find parameters that should be replicas and differ, from digests of each parameter and its gradient.

Each rank has different data. So a gradient is equal on all ranks only if it was reduced over them. A parameter with
equal, non-zero gradients should therefore be a replica. If its values differ, each rank trains another model with the
gradients of all ranks. Gradients of pipelines, experts and populations differ: they are not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from allranks.errors import name_ranks
from allranks.failure import Failure
from allranks.world.claims import by_claim, describe_groups


@dataclass(frozen=True, slots=True)
class Claim:
    """One rank's report about one parameter: ``what`` it is (dtype, shape), and two digests. A zero gradient has "".

    With ``is_rate``, the report is about the learning rate of a group of parameters: its value as text, and the digest
    of the group's first gradient.
    """

    what: str
    value: str
    gradient: str
    is_rate: bool = False


def differing(ranks: Sequence[Sequence[Claim]]) -> tuple[int, ...]:
    """Return the indices of the parameters that should be equal on all ranks and are not.

    ``ranks`` has each rank's claims.
    """
    if len({len(claims) for claims in ranks}) != 1:
        return ()
    columns = list(zip(*ranks, strict=True))
    return tuple(
        place
        for place, claims in enumerate(columns)
        if len({(one.what, one.gradient) for one in claims}) == 1
        and claims[0].gradient
        and len({one.value for one in claims}) > 1
    )


# Why replicas differ before the first step, and later.
_AT_START = (
    "Did every rank load the weights, and use one seed? Wrap the model in DistributedDataParallel, or broadcast the "
    "parameters of rank 0."
)
_LATER = "Do all ranks use one learning rate, and does none change parameters by itself?"


def failure(ranks: Sequence[Sequence[Claim]], places: Sequence[int], *, where: str, host: str, step: int) -> Failure:
    """Return the failure of the ranks in the minority. ``step`` is the optimizer's step, 1 for the first.

    ``places`` are the indices of the parameters that differ.
    """
    values = [claims[places[0]].value for claims in ranks]
    most = Counter(values).most_common(1)[0][0]
    odd = [rank for rank, value in enumerate(values) if value != most] or [1]
    others = [rank for rank in range(len(ranks)) if rank not in odd]
    first, rates = ranks[0][places[0]], sum(claim.is_rate for claim in ranks[0])
    if first.is_rate:
        told = describe_groups(by_claim(enumerate(values)).items())
        advice = "The gradients are equal: give all ranks one rate."
        what = f"{first.what} at step {step} of the optimizer: {told}. {advice}"
    else:
        what = (
            f"replicas at step {step} of the optimizer: {len(places)} of {len(ranks[0]) - rates} parameters differ, "
            f"the first is {first.what}, number {places[0] - rates}: expected equal values, since the gradients are "
            f"equal; found others on {name_ranks(odd)} than on {name_ranks(others)}. "
            f"{_AT_START if step == 1 else _LATER}"
        )
    return Failure(odd[0], host, what, 0.0, where=where, exit_code=1)
