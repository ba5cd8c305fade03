"""Compare the state of all ranks, and repair it on request (``allranks.verify``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NoReturn

from allranks.arrays.base import OpenTree
from allranks.callsite import call_site
from allranks.consistency import elements
from allranks.consistency.claim import StateClaim
from allranks.consistency.differences import FoundDifferences, claim_of_state, find_differences, groups_that_differ
from allranks.consistency.placement import agree_placement, open_world_tree
from allranks.consistency.repair import repair_state
from allranks.consistency.verdict import Verdict, mismatch_error
from allranks.errors import AllranksError, Mismatch, name_ranks
from allranks.gate.collective import raise_leaf_mismatch
from allranks.world.base import World
from allranks.world.claims import by_claim
from allranks.world.detect import current

Odd = Mapping[str, Sequence[Sequence[int]]]
OnMismatch = Literal["raise", "repair"] | Callable[[Verdict], object]


def verify(
    state: Any,
    step: int | None = None,
    *,
    every: int = 1,
    proof: bool = False,
    on_mismatch: OnMismatch = "raise",
    world: World | None = None,
) -> Verdict | None:
    """Compare what all ranks hold of a state. **Every rank must call**, with the same arguments.

    ``state`` is anything that a checkpoint holds: containers, modules, optimizers, generators, loaders' snapshots,
    arrays, JSON values. Each rank digests its own parts on their devices, and no device waits for another rank. Copies
    that should be equal are compared over the key-value store, also copies on several devices of one rank. A sharded
    leaf is compared if several ranks hold a part. Bits count: -0.0 differs from 0.0, and NaNs are equal if their bits
    are.

    ``every``: compare only if ``step`` is a multiple of it; otherwise return None at once.
    ``proof``: compare BLAKE3 digests of names and bytes.
    ``world``: the current one by default.
    ``on_mismatch``: what happens if copies differ.
    - ``"raise"``: raise a Mismatch on every rank, which names ranks, leaves and elements.
    - ``"repair"``: give the minority the majority's values (raise if there is no majority). The repaired state is the
      ``state`` of the returned Verdict.
    - a callable: call it with the Verdict on every rank.

    Raises Mismatch, too, if the ranks' states do not have the same leaves.
    """
    if every != 1 and (step is None or every < 1):
        raise AllranksError(
            f"verify: every={every} needs a step: expected verify(state, step, every=...).",
            remedy="Write verify(state, step, every=100), with every from 1 on.",
        )
    if step is not None and step % every:
        return None
    return _VerifyCall(world or current(), step, proof).run(state, on_mismatch)


def require_equal_copies(tree: OpenTree, world: World, *, name: str) -> None:
    """Raise Mismatch on every rank unless all copies of a state are equal. **Every rank must call.**"""
    if world.size == 1:
        return
    claim = claim_of_state(tree, world, name="agree")
    odd = world.exchange(
        "verify", name, [claim.plan.placement, claim.root_digests(rank=world.rank)], decide=_decide_copies
    )
    if odd is None:
        require_equal_copies(agree_placement(tree, world, name=name), world, name=name)
    elif odd:
        raise_mismatch(world, name, claim, odd)


def _decide_copies(said: Sequence[Any]) -> dict[str, list[list[int]]] | None:
    """Return the groups whose digests differ, by label; None if the ranks disagree on which rank holds what."""
    if len({placement for placement, _ in said}) > 1:
        return None
    return groups_that_differ([roots for _, roots in said])


def raise_mismatch(
    world: World,
    name: str,
    claim: StateClaim,
    differing_groups: Odd,
    *,
    step: int | None = None,
    advice: Callable[[Sequence[str]], str] = lambda _: "",
) -> NoReturn:
    """Raise the Mismatch that names what differs in the groups of ``differing_groups``. **Every rank must call.**

    ``advice``: returns advice to append to the message, given the paths that differ.
    """
    found = find_differences(world, name, claim, differing_groups)
    error = mismatch_error(_make_verdict(None, step, claim, found), operation=f"rank {world.rank}: {name}")
    more = advice(list(dict.fromkeys(one.path for _, one in found.first)))
    raise Mismatch(f"{error} {more}".rstrip(), ranks=error.ranks, step=error.step, leaf=error.leaf) from None


class _VerifyCall:
    """Runs one call of ``verify`` on one rank."""

    def __init__(self, world: World, step: int | None, proof: bool) -> None:
        self._world, self._step, self._proof = world, step, proof
        self._name = ("state" if step is None else f"state at step {step}") + (", proof" if proof else "")

    def run(self, state: Any, on_mismatch: OnMismatch) -> Verdict:
        began, where = time.monotonic(), call_site()
        tree, claim, found = self._compare_state(state, everything=on_mismatch == "repair")
        verdict = _make_verdict(state, self._step, claim, found)
        if not verdict.ok:
            looked = elements.compare_elements(self._world, self._name, tree.declared_arrays, claim.copies, found)
            verdict = replace(verdict, differences=tuple(looked))
        if on_mismatch == "repair" and not verdict.ok and all(one.decided for _, one in found.first):
            verdict = replace(verdict, state=self._repair_and_check(state, tree, claim, found))
        elif callable(on_mismatch) and not verdict.ok:
            on_mismatch(verdict)
        elif not verdict.ok:
            raise mismatch_error(verdict, operation=f"rank {self._world.rank}: verify {self._name!r} ({where})")
        return replace(verdict, seconds=time.monotonic() - began)

    def _compare_state(
        self, state: Any, *, everything: bool = False, placed: OpenTree | None = None
    ) -> tuple[OpenTree, StateClaim, FoundDifferences]:
        """Return the tree, this rank's claim, and the first differences, or all with ``everything``."""
        world, tree, claim, error = self._world, None, None, None
        try:
            tree = placed if placed is not None else open_world_tree(state, world, for_comparison=True)
            claim = claim_of_state(tree, world, name="verify", is_proof=self._proof)
        except Exception as found:  # any error: the other ranks must not wait for this rank
            error = found
        plan = claim.plan if claim else None
        said = (
            [str(error)]
            if claim is None or plan is None
            else [None, plan.placement, plan.digest, claim.root_digests(rank=world.rank)]
        )
        outcome = world.exchange("verify", self._name, said, decide=_find_difference)
        if error is not None:
            raise error
        assert tree is not None
        assert claim is not None
        match outcome:
            case "placement":
                settled = agree_placement(tree, world, name=f"verify {self._name}")
                return self._compare_state(state, everything=everything, placed=settled)
            case {"refused": [ranks, why]}:
                raise AllranksError(f"rank {world.rank}: verify: {name_ranks(ranks)} cannot: {why}", ranks=ranks)
            case {"trees": groups}:
                raise_leaf_mismatch(world, f"verify {self._name}", groups, descriptions=claim.plan.descriptions)
            case {"odd": odd}:
                return tree, claim, find_differences(world, self._name, claim, odd, finds_all=everything)
        return tree, claim, FoundDifferences(0, ())

    def _repair_and_check(self, state: Any, tree: OpenTree, claim: StateClaim, found: FoundDifferences) -> Any:
        """Repair the state, compare it again, and return it. Raises Mismatch if copies still differ."""
        state = repair_state(self._world, state, tree, claim.copies, found.first)
        _, claim, found = self._compare_state(state)
        if found.total:
            verdict = _make_verdict(state, self._step, claim, found)
            raise mismatch_error(verdict, operation=f"rank {self._world.rank}: verify {self._name!r}, after a repair")
        return state


def _find_difference(said: Sequence[Any]) -> dict[str, Any] | str | None:
    """Return None if all is equal. If not, return one of:

    - ``{"refused": ...}``: the ranks that cannot take part;
    - ``{"trees": ...}``: the ranks by their leaves, which differ;
    - ``"placement"``: the ranks have the same leaves, and disagree on which rank holds them;
    - ``{"odd": ...}``: the groups whose digests differ.
    """
    if refused := [rank for rank, one in enumerate(said) if one[0] is not None]:
        return {"refused": [refused, said[refused[0]][0]]}
    trees = by_claim((rank, tree) for rank, (_, _, tree, _) in enumerate(said))
    if len(trees) > 1:
        return {"trees": list(trees.values())}
    if len({placement for _, placement, _, _ in said}) > 1:
        return "placement"
    odd = groups_that_differ([roots for *_, roots in said])
    return {"odd": odd} if odd else None


def _make_verdict(state: Any, step: int | None, claim: StateClaim, found: FoundDifferences) -> Verdict:
    return Verdict(
        step=step,
        leaves=len(claim.plan.descriptions),
        nbytes=claim.nbytes,
        differing=found.total,
        differences=tuple(one for _, one in found.first),
        covered=claim.plan.covered,
        state=state,
        seconds=0.0,
    )
