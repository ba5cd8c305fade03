"""One family of errors. Every error says who, where, what was expected, what was found, and what to do.

House form: ``rank 3: save of step 1200 stopped: leaf 'opt/mu/0' is (512, 64) here, (512, 128) on ranks 0-2.
Did every rank build the same model?``
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def rank_list(ranks: Iterable[int]) -> str:
    """Return ranks as a person writes them: ``0-2, 5``; ``none`` for no rank at all."""
    runs: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"


def name_ranks(ranks: Iterable[int]) -> str:
    """Return ``rank 3`` or ``ranks 0-2, 5``."""
    found = set(ranks)
    return f"{'rank' if len(found) == 1 else 'ranks'} {rank_list(found)}"


class AllranksError(Exception):
    """The base of every error that allranks raises.

    ``ranks`` are the ranks that the error is about, ``step`` and ``leaf`` the training step and the path of the array
    where they are known, ``remedy`` what to do about it (also the last sentence of the message).
    """

    def __init__(
        self,
        message: str,
        *,
        ranks: Iterable[int] = (),
        step: int | None = None,
        leaf: str | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(f"{message} {remedy}".rstrip())
        self.ranks = tuple(sorted(set(ranks)))
        self.step = step
        self.leaf = leaf
        self.remedy = remedy


class ContradictingSigns(AllranksError):
    """Two facts about the world (launcher variables, a framework's state) cannot both be true."""


class NotJsonable(AllranksError, TypeError):
    """A value handed to the world is neither bytes nor made of JSON types."""


class StoreError(AllranksError):
    """The key-value store (JAX's coordination service, torch's Store) failed or cannot be reached."""


class KeyTimeout(StoreError, TimeoutError):
    """A key did not appear in the store within its time."""


class BarrierTimeout(AllranksError, TimeoutError):
    """Not every rank came to an exchange before its deadline; ``ranks`` are the missing ones."""


class RankDied(AllranksError):
    """A rank that this rank waits for is known to have ended; ``ranks`` are the dead ones, ``reasons`` why."""

    def __init__(self, message: str, *, reasons: Mapping[int, str], remedy: str = "") -> None:
        super().__init__(message, ranks=reasons, remedy=remedy)
        self.reasons = dict(reasons)


class Mismatch(AllranksError):
    """The ranks came to the same point with different intentions or values; ``ranks`` are the minority."""


class CollectiveOnOneRank(Mismatch):
    """A collective was started where only one rank can reach it: the other ranks would never join it."""


class RemoteError(AllranksError):
    """Another rank (``ranks``) raised; ``remote_type`` and ``remote_traceback`` are its exception's, as text."""

    def __init__(self, message: str, *, rank: int, remote_type: str, remote_traceback: str) -> None:
        super().__init__(message, ranks=(rank,))
        self.remote_type = remote_type
        self.remote_traceback = remote_traceback


class BatchMismatch(AllranksError, ValueError):
    """Rows, ranks, devices and accumulation steps do not multiply to the global batch."""


class BadArgument(AllranksError, ValueError):
    """An argument makes no sense; the message has its name, its value, and what was expected."""


class NotReady(AllranksError):
    """``preflight`` found something that must be put right before the first step; the message is its table."""


class DataError(AllranksError):
    """A data set cannot be read as it was planned: ``path`` of which file, ``sample`` the id of which sample (or None).

    Its kinds below.
    """

    def __init__(self, message: str, *, path: str = "", sample: int | None = None, **known: Any) -> None:
        super().__init__(message, **known)
        self.path = path
        self.sample = sample


class DataChanged(DataError):
    """A file is not what it was when its index was built."""


class NoLength(DataError, TypeError):
    """How many batches there will be is not known; a TypeError, as of whatever has no ``len``."""


class WorkerDied(DataError):
    """A process that mapped samples ended before its work was done."""


class LedgerMismatch(DataError):
    """The samples that the ranks took are not those of the plan: some were read twice, or never.

    ``gaps`` are the first places where (rank, steps, samples), as far as they are known.
    """

    def __init__(self, message: str, *, gaps: Iterable[object] = (), **known: Any) -> None:
        super().__init__(message, **known)
        self.gaps = tuple(gaps)


class StorageError(AllranksError):
    """A file system or object store failed; ``path`` is the file it is about."""

    def __init__(self, message: str, *, path: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.path = path


class NotThere(StorageError):
    """There is no such file."""


class StepRemoved(NotThere):
    """A step was there, and has been removed or saved over since, by the job that owns the run or by ``ckpt gc``."""


class AlreadyThere(StorageError):
    """A file that must be new exists."""


class Truncated(StorageError):
    """A file ends before the bytes that were asked for."""


class CannotStore(AllranksError, TypeError):
    """A leaf of a state (``leaf``) is neither an array nor a JSON value, so a checkpoint cannot hold it."""


class DoesNotFit(AllranksError, ValueError):
    """A template differs from the checkpoint; the message and ``differences`` list all of it."""

    def __init__(
        self, message: str, *, differences: Iterable[object], step: int | None = None, remedy: str = ""
    ) -> None:
        super().__init__(message, step=step, remedy=remedy)
        self.differences = tuple(differences)


class Damaged(AllranksError):
    """A checkpoint is not what was saved: ``path`` is the file, ``leaf`` the array, ``where`` its bytes (from, to)."""

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        leaf: str | None = None,
        where: tuple[int, int] | None = None,
        step: int | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(message, leaf=leaf, step=step, remedy=remedy)
        self.path = path
        self.where = where


class SaveFailed(AllranksError):
    """A save was given up on all ranks, and nothing was published; ``ranks`` are those that failed.

    With ``unknown``, the rank that publishes stood still while it did: the checkpoint may be there after all.
    """

    def __init__(
        self,
        message: str,
        *,
        ranks: Iterable[int] = (),
        step: int | None = None,
        remedy: str = "",
        unknown: bool = False,
    ) -> None:
        super().__init__(message, ranks=ranks, step=step, remedy=remedy)
        self.unknown = unknown


class Fenced(AllranksError):
    """Another job has taken over this run's directory, so this one may not write into it any more."""


class StepExists(AllranksError):
    """The step is saved already."""


class UnknownFormat(AllranksError, ValueError):
    """What stands at ``path`` is no checkpoint that allranks can read."""

    def __init__(self, message: str, *, path: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.path = path


class NewerFormat(UnknownFormat):
    """A checkpoint (``path``) is in a newer version of the format than this allranks reads: it is not damaged."""


class Unsafe(AllranksError):
    """A file (``path``) asks for what no reader should give it: to run code, or memory and bytes that are not its."""

    def __init__(self, message: str, *, path: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.path = path


class NotResumed(AllranksError):
    """The first values after a resume are not those that the checkpoint recorded."""
