"""Record which ranks have ended: one key per rank, and one that says whether there are any."""

from __future__ import annotations

from allranks.world.store import KeyValueStore

_ONE, _ANY = "gone/", "any_gone"


def mark(store: KeyValueStore, rank: int, why: str) -> None:
    """Record that a rank has ended: from now on, exchanges that wait for it raise RankDied."""
    store.set(f"{_ONE}{rank}", why.encode())
    store.set(_ANY, b"1")


def read(store: KeyValueStore) -> dict[int, str]:
    """Return why each ended rank has ended. Costs one small read while all ranks live."""
    if store.get(_ANY) is None:
        return {}
    return {int(key.removeprefix(_ONE)): why.decode() for key, why in sorted(store.list(_ONE).items())}
