"""Define the events and results of a commit, and the error that a failed save raises."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from allranks.errors import Fenced, SaveFailed, name_ranks

# JSON types at any depth.
Json = Any
MOST_TRACEBACKS = 3


@dataclass(frozen=True, slots=True)
class SaveId:
    """The identity of one save, equal on all ranks.

    ``number``: the number of the save in this world. ``step``: the training step. ``nonce``: is in the name of every
    file of the save. ``digest``: the digest of what the ranks agreed to write.
    """

    number: int
    step: int
    nonce: str
    digest: str = ""


class SaveVerdict(enum.Enum):
    """How a save ended, the same for all ranks."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RankFault:
    """An exception of one rank, converted to text."""

    rank: int
    type: str
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class FailureReasons:
    """Why a save was not committed: the ranks that failed, that died, that are missing, and further detail.

    ``fenced``: whether another job has taken over the run.
    """

    failed: tuple[RankFault, ...] = ()
    died: tuple[tuple[int, str], ...] = ()
    missing: tuple[int, ...] = ()
    detail: str = ""
    fenced: bool = False

    def to_json(self) -> Json:
        """Return the reasons as a JSON document. Only the first few tracebacks are included, because most are equal."""
        bare = tuple(replace(fault, traceback="") for fault in self.failed[MOST_TRACEBACKS:])
        return asdict(replace(self, failed=(*self.failed[:MOST_TRACEBACKS], *bare)))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FailureReasons:
        return cls(
            failed=tuple(RankFault(**fault) for fault in document["failed"]),
            died=tuple((rank, why) for rank, why in document["died"]),
            missing=tuple(document["missing"]),
            detail=document["detail"],
            fenced=document["fenced"],
        )

    @property
    def named_ranks(self) -> tuple[int, ...]:
        return tuple(sorted({*(fault.rank for fault in self.failed), *(rank for rank, _ in self.died), *self.missing}))


@dataclass(frozen=True, slots=True)
class PartWritten:
    """Event: a rank reports that its files are durable. ``ack``: what rank 0 needs of them for the manifest."""

    save: SaveId
    rank: int
    ack: Json


@dataclass(frozen=True, slots=True)
class PartFailed:
    """Event: a rank reports that it could not write its part."""

    save: SaveId
    fault: RankFault


@dataclass(frozen=True, slots=True)
class RankEnded:
    """Event: a rank has ended without an ack."""

    rank: int
    why: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """Event: the deadline of ``seconds`` has passed."""

    seconds: float


@dataclass(frozen=True, slots=True)
class DecisionSet:
    """Event: the key ``decision`` has this value."""

    commit: bool
    reasons: FailureReasons = FailureReasons()


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """Event: the manifest was written."""


@dataclass(frozen=True, slots=True)
class ManifestRefused:
    """Event: the manifest was not written, and will not be.

    ``fenced``: whether the reason is that another job has taken over the run.
    """

    why: str
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class ManifestWriteFailed:
    """Event: an error occurred while the manifest was written, so the manifest may or may not exist."""

    why: str


@dataclass(frozen=True, slots=True)
class ManifestFound:
    """Event: the manifest of this save exists."""


@dataclass(frozen=True, slots=True)
class ManifestMissing:
    """Event: the manifest of this save does not exist."""


@dataclass(frozen=True, slots=True)
class ManifestUnknown:
    """Event: the storage cannot tell whether the manifest exists."""

    why: str


@dataclass(frozen=True, slots=True)
class OutcomeSet:
    """Event: the key ``outcome`` has this value, the ``verdict`` on the save."""

    verdict: SaveVerdict
    reasons: FailureReasons = FailureReasons()


Event = (
    PartWritten
    | PartFailed
    | RankEnded
    | DeadlinePassed
    | DecisionSet
    | ManifestWritten
    | ManifestRefused
    | ManifestWriteFailed
    | ManifestFound
    | ManifestMissing
    | ManifestUnknown
    | OutcomeSet
)


_REMEDY = {
    SaveVerdict.ABORTED: "No checkpoint was published; the training can go on.",
    SaveVerdict.UNKNOWN: "Its files are kept: if manifest.json exists in its folder, the checkpoint is complete.",
}


def save_failed_error(
    save_id: SaveId, verdict: SaveVerdict, reasons: FailureReasons, *, rank: int
) -> SaveFailed | Fenced:
    """Return the error that ``rank`` raises for a save that was not committed.

    The error is equal on all ranks except for the rank in its text.
    """
    texts = _reasons_text(reasons).rstrip(".")
    if reasons.fenced:
        return Fenced(
            f"rank {rank}: save of step {save_id.step} refused: {texts}.", ranks=reasons.named_ranks, step=save_id.step
        )
    head = "stopped" if verdict is SaveVerdict.ABORTED else "has an unknown end"
    error = SaveFailed(
        f"rank {rank}: save of step {save_id.step} {head}: {texts}.",
        ranks=reasons.named_ranks,
        step=save_id.step,
        remedy=_REMEDY[verdict],
        unknown=verdict is SaveVerdict.UNKNOWN,
    )
    for fault in reasons.failed[:MOST_TRACEBACKS]:
        error.add_note(f"On rank {fault.rank}:\n{fault.traceback.rstrip()}")
    return error


def _reasons_text(reasons: FailureReasons) -> str:
    alike: dict[str, list[int]] = {}
    for fault in reasons.failed:
        alike.setdefault(f"{fault.type}: {fault.message}", []).append(fault.rank)
    for rank, why in reasons.died:
        alike.setdefault(f"dead ({why})", []).append(rank)
    texts = [f"{name_ranks(ranks)}: {what}" for what, ranks in alike.items()]
    if reasons.missing:
        texts.append(f"{name_ranks(reasons.missing)}: {reasons.detail}")
    elif reasons.detail:
        texts.append(reasons.detail)
    return "; ".join(texts) or "no rank reported a reason"
