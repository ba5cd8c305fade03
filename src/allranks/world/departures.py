"""Record in the store which ranks have ended: one key for each ended rank, and one key that says if any has."""

from __future__ import annotations

from allranks.world.store import KeyValueStore

_ONE, _ANY = "gone/", "any_gone"


def mark_ended(store: KeyValueStore, rank: int, why: str) -> None:
    """Record that a rank has ended, and why. From now on, exchanges that wait for this rank raise RankDied."""
    store.set(f"{_ONE}{rank}", why.encode())
    store.set(_ANY, b"1")


def read_ended(store: KeyValueStore) -> dict[int, str]:
    """Return the ended ranks, each with the reason why it ended. Costs one small read while all ranks live."""
    if store.get(_ANY) is None:
        return {}
    return {int(key.removeprefix(_ONE)): why.decode() for key, why in sorted(store.list(_ONE).items())}
