"""Do all ranks see the same directory?"""

from __future__ import annotations

import json

from allranks.errors import StorageError, name_ranks
from allranks.storage.base import Storage
from allranks.world.base import World


def check_visible(storage: Storage, world: World, path: str, *, nonce: str) -> None:
    """Raise StorageError on every rank unless all see the fence with this nonce, which rank 0 has put at ``path``.

    **Every rank must call.**
    """
    seen = world.all_gather(_nonce_at(storage, path), name="fence")
    blind = [rank for rank, found in enumerate(seen) if found != nonce]
    if blind:
        hosts = ", ".join(sorted({world.hosts[rank] for rank in blind}))
        error = StorageError(
            f"rank {world.rank}: {name_ranks(blind)} (host {hosts}) do not see what rank 0 (host {world.hosts[0]}) "
            f"wrote into {storage.url}: {seen[blind[0]]}.",
            remedy="Use a directory that all hosts share, or an object store.",
        )
        error.ranks = tuple(blind)
        raise error


def _nonce_at(storage: Storage, path: str) -> str:
    """Return the nonce of the fence that this rank sees there, or what it sees instead."""
    try:
        found: str = json.loads(storage.get(path))["nonce"]
    except StorageError as error:
        return str(error)
    except (ValueError, LookupError, TypeError):
        return "it sees a file there that is no fence"
    return found
