"""Define all errors. Every message says who, where, what was expected, what was found, and what to do.

House form: ``rank 3: save of step 1200 stopped: leaf 'opt/mu/0' is (512, 64) here, (512, 128) on ranks 0-2. Did every
rank build the same model?``
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from allranks.failure import one_line, visible


def rank_list(ranks: Iterable[int]) -> str:
    """Format rank numbers for people, e.g. ``0-2, 5``; ``none`` for an empty list."""
    runs: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"


def name_ranks(ranks: Iterable[int]) -> str:
    """Format ranks with their noun, e.g. ``rank 3`` or ``ranks 0-2, 5``."""
    found = set(ranks)
    return f"{'rank' if len(found) == 1 else 'ranks'} {rank_list(found)}"


class AllranksError(Exception):
    """The base class of every error that allranks raises.

    ``ranks`` are the ranks that the error is about. ``step`` is the training step, ``leaf`` the path of the array, or
    None. ``remedy`` says what to do; it is also the last sentence of the message.

    The message is one line, whatever the names in it contain. Only errors with a list have several lines.
    """

    _has_lines: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        ranks: Iterable[int] = (),
        step: int | None = None,
        leaf: str | None = None,
        remedy: str = "",
    ) -> None:
        shown = visible if self._has_lines else one_line
        super().__init__(shown(f"{message} {remedy}".rstrip()))
        self.ranks = tuple(sorted(set(ranks)))
        self.step = step
        self.leaf = leaf
        self.remedy = remedy


class ContradictingSigns(AllranksError):
    """Raised when two facts about the world contradict each other: launcher variables, or a framework's state."""


class NotJsonable(AllranksError, TypeError):
    """Raised when a value is neither bytes nor made of JSON types, so it cannot travel or be saved."""


class StoreError(AllranksError):
    """Raised when the key-value store (JAX's coordination service, torch's Store) fails or cannot be reached."""


class KeyTimeout(StoreError, TimeoutError):
    """Raised when a key does not appear in the key-value store before the timeout."""


class BarrierTimeout(AllranksError, TimeoutError):
    """Raised when a call waits longer than its timeout.

    ``ranks`` are the ranks that did not reach the call, if all ranks must make it.
    """


class RankDied(AllranksError):
    """Raised when a rank that this rank waits for has ended.

    ``ranks`` are the ranks that ended; ``reasons`` says of each of them how it ended.
    """

    def __init__(self, message: str, *, reasons: Mapping[int, str], remedy: str = "") -> None:
        super().__init__(message, ranks=reasons, remedy=remedy)
        self.reasons = dict(reasons)


class Mismatch(AllranksError):
    """Raised when ranks make different calls, or hold different values, where they must be equal.

    ``ranks`` are the ranks in the minority, or all ranks if there is no majority.
    """


class CollectiveOnOneRank(Mismatch):
    """Raised when a collective starts in code that only one rank runs: the other ranks would never join it."""


class RemoteError(AllranksError):
    """Raised when another rank raised an exception in a call that all ranks make.

    ``ranks`` is that rank. ``remote_type`` and ``remote_traceback`` are its exception's type and traceback, as text.
    """

    _has_lines = True

    def __init__(self, message: str, *, rank: int, remote_type: str, remote_traceback: str) -> None:
        super().__init__(message, ranks=(rank,))
        self.remote_type = remote_type
        self.remote_traceback = remote_traceback


class BatchMismatch(AllranksError, ValueError):
    """Raised when rows, ranks, devices and accumulation steps do not multiply to the global batch."""


class BadArgument(AllranksError, ValueError):
    """Raised when an argument is not accepted.

    The message has the name of the argument, its value, and what was expected.
    """


class NotReady(AllranksError):
    """Raised when ``preflight`` finds errors that must be corrected before the first step.

    The message lists them, one on each line, each with what to do.
    """

    _has_lines = True


class DataError(AllranksError):
    """Raised when a data set cannot be read as planned.

    ``path`` is the file, or empty; ``sample`` is the id of the sample, or None.
    """

    def __init__(self, message: str, *, path: str = "", sample: int | None = None, **known: Any) -> None:
        super().__init__(message, **known)
        self.path = path
        self.sample = sample


class DataChanged(DataError):
    """Raised when the samples or a file of a data set changed after they were indexed."""


class NoLength(DataError, TypeError):
    """Raised when ``len()`` is called on a loader whose number of batches is not known."""


class WorkerDied(DataError):
    """Raised when a worker process of a loader ends before it has returned its samples."""


class LedgerMismatch(DataError):
    """Raised when the ranks did not take the planned samples: some samples were read twice, or never.

    ``gaps`` are the first places where (rank, steps, samples), as far as they are known.
    """

    def __init__(self, message: str, *, gaps: Iterable[object] = (), **known: Any) -> None:
        super().__init__(message, **known)
        self.gaps = tuple(gaps)


class StorageError(AllranksError):
    """Raised when a file system or an object store fails.

    ``path`` is the file.
    """

    def __init__(self, message: str, *, path: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.path = path


class NotThere(StorageError):
    """Raised when a file, a checkpoint or a step does not exist."""


class StepRemoved(NotThere):
    """Raised when a step was removed, or saved again, before it could be read.

    The job that owns the run, or ``ckpt gc``, removes steps.
    """


class NotAFile(StorageError):
    """Raised when a path that must be a file is a folder, a pipe, a socket or a device."""


class AlreadyThere(StorageError):
    """Raised when a file that must be new already exists."""


class Truncated(StorageError):
    """Raised when a file ends before the requested bytes."""


class CannotStore(AllranksError, TypeError):
    """Raised when a leaf of a state is neither an array nor a JSON value, so a checkpoint cannot hold it."""


class DoesNotFit(AllranksError, ValueError):
    """Raised when a checkpoint does not fit the template that it should fill.

    The message and ``differences`` list every difference.
    """

    _has_lines = True

    def __init__(
        self, message: str, *, differences: Iterable[object], step: int | None = None, remedy: str = ""
    ) -> None:
        super().__init__(message, step=step, remedy=remedy)
        self.differences = tuple(differences)


class Damaged(AllranksError):
    """Raised when the bytes of a checkpoint's file differ from what was saved.

    ``path`` is the file, ``leaf`` the array, ``where`` the damaged bytes (begin, end) of the file.
    """

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
    """Raised when a save was stopped, on every rank; nothing was published.

    ``ranks`` are the ranks that failed. ``unknown`` is True where the rank that publishes failed while it
    published: the checkpoint may exist then.
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
    """Raised when another job owns the run, so this job may not write into it."""


class StepExists(AllranksError):
    """Raised when the step to save is already in the run."""


class UnknownFormat(AllranksError, ValueError):
    """Raised when a file or a folder is in no checkpoint format that allranks reads.

    ``path`` is the file or the folder.
    """

    def __init__(self, message: str, *, path: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.path = path


class NewerFormat(UnknownFormat):
    """Raised when a checkpoint is in a newer version of the format than this allranks reads.

    The checkpoint is not damaged. ``path`` is its manifest.
    """


class Unsafe(AllranksError):
    """Raised when a file could run code, or asks for memory or for files that a checkpoint must not use.

    ``path`` is the file.
    """

    def __init__(self, message: str, *, path: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.path = path


class NotResumed(AllranksError):
    """Raised when the first metrics after a resume differ from the metrics that the checkpoint recorded."""

    _has_lines = True
