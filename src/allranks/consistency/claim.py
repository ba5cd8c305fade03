"""Compute the digests of the state that one rank holds, to be compared between ranks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allranks.arrays.base import OpenTree
from allranks.consistency.digests import PROOF, QUICK, Copies, digest_of_value, digests_of_copies
from allranks.consistency.plan import VALUE, ComparedEntry, ComparisonPlan
from allranks.consistency.vote import EqualRanks
from allranks.digest import Hasher, hasher_by_name

_LONGEST = 60


@dataclass(frozen=True, slots=True)
class _DigestGroup:
    """The digests of the entries that this rank shares with one group of ranks, concatenated.

    ``inconsistent``: for each entry that differs between this rank's devices, the digest on each device.
    """

    digests: bytes
    inconsistent: Mapping[int, Mapping[str, bytes]]

    def root_digest(self, of: Hasher, rank: int) -> str:
        """Return one digest for the group. If this rank's devices disagree, the digest equals that of no other rank."""
        found = of(self.digests)
        return f"{found} torn on {rank}" if self.inconsistent else found


class StateClaim:
    """The digests of what one rank holds, for each group of ranks in a plan.

    ``nbytes``: the bytes that were read for them.
    """

    def __init__(self, tree: OpenTree, plan: ComparisonPlan, copies: Copies, *, proof: bool) -> None:
        self.width = PROOF if proof else QUICK
        self.plan, self.copies, self.nbytes = plan, copies, sum(copy.part.nbytes for of in copies for copy in of)
        self._values = tree.values
        self._hasher = hasher_by_name("blake3" if proof else "xxh3-128")
        found = digests_of_copies(tree.declared_arrays, copies, is_proof=proof)
        self._by_cell: dict[tuple[int, int], dict[str, bytes]] = {}
        for array, (of, said) in enumerate(zip(copies, found, strict=True)):
            for copy, one in zip(of, said, strict=True):
                self._by_cell.setdefault((array, copy.cell), {})[copy.device] = one
        self._groups = {label: self._digest_group(entries, proof=proof) for label, entries in plan.groups.items()}

    def root_digests(self, *, rank: int) -> dict[str, list[Any]]:
        """Return, by group label, the digest of the group, and whether this rank's devices disagree on it."""
        return {
            label: [one.root_digest(self._hasher, rank), bool(one.inconsistent)] for label, one in self._groups.items()
        }

    def describe_group(self, group_label: str, *, with_names: bool) -> list[Any]:
        """Return the details of a group as JSON: digests, inconsistent entries, JSON values.

        With ``with_names``, the entries themselves are included.
        """
        group, entries = self._groups[group_label], self.plan.groups[group_label]
        values = {str(n): _short_json(self._values[e.path]) for n, e in enumerate(entries) if e.array == VALUE}
        inconsistent = [[number, list(said.items())] for number, said in group.inconsistent.items()]
        named = [[e.array, e.cell, e.path, e.what, e.part] for e in entries] if with_names else []
        return [group.digests, inconsistent, values, named]

    def _digest_group(self, entries: Sequence[ComparedEntry], *, proof: bool) -> _DigestGroup:
        digests: list[bytes] = []
        inconsistent: dict[int, dict[str, bytes]] = {}
        for number, entry in enumerate(entries):
            if entry.array == VALUE:
                digests.append(digest_of_value(self._values[entry.path], is_proof=proof))
                continue
            said = self._by_cell.get((entry.array, entry.cell), {})
            first = next(iter(said.values()), bytes(self.width))
            digests.append(first)
            if len(said) > 1 and any(one != first for one in said.values()):
                inconsistent[number] = said
        return _DigestGroup(b"".join(digests), inconsistent)


def party_from_report(ranks: Sequence[int], report: Sequence[Any]) -> EqualRanks:
    """Return the EqualRanks that a report describes.

    The first of ``ranks`` made it with ``StateClaim.describe_group``.
    """
    return EqualRanks(tuple(ranks), report[0], {number: dict(digests) for number, digests in report[1]})


def _short_json(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
