"""The words of a commit: what a rank can learn about a save, and the error in which a failed one ends."""

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
    """Which save: the ``number`` of this world's save, the training ``step``, the ``nonce`` that is in every file, and
    the ``digest`` of what the ranks agreed to write. Equal on all ranks."""

    number: int
    step: int
    nonce: str
    digest: str = ""


class Verdict(enum.Enum):
    """How a save ended, for all ranks."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fault:
    """An exception of one rank, as text."""

    rank: int
    type: str
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why a save was not committed: who failed, who died, who is missing, and what else there is to say.

    ``fenced``: because another job has taken the run over.
    """

    failed: tuple[Fault, ...] = ()
    died: tuple[tuple[int, str], ...] = ()
    missing: tuple[int, ...] = ()
    detail: str = ""
    fenced: bool = False

    def to_json(self) -> Json:
        """Return the document; of many tracebacks, only the first few travel: ranks that failed alike say the same."""
        bare = tuple(replace(fault, traceback="") for fault in self.failed[MOST_TRACEBACKS:])
        return asdict(replace(self, failed=(*self.failed[:MOST_TRACEBACKS], *bare)))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Reasons:
        return cls(
            failed=tuple(Fault(**fault) for fault in document["failed"]),
            died=tuple((rank, why) for rank, why in document["died"]),
            missing=tuple(document["missing"]),
            detail=document["detail"],
            fenced=document["fenced"],
        )

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({*(fault.rank for fault in self.failed), *(rank for rank, _ in self.died), *self.missing}))


@dataclass(frozen=True, slots=True)
class Written:
    """A rank says that its part is durable; ``ack`` goes into the manifest."""

    save: SaveId
    rank: int
    ack: Json


@dataclass(frozen=True, slots=True)
class Failed:
    """A rank says that it could not write its part."""

    save: SaveId
    fault: Fault


@dataclass(frozen=True, slots=True)
class Died:
    """A rank is known to have ended, and its ack is not there."""

    rank: int
    why: str


@dataclass(frozen=True, slots=True)
class Deadline:
    """Nothing has been heard for too many ``seconds``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Decided:
    """What the key ``decision`` says."""

    commit: bool
    reasons: Reasons = Reasons()


@dataclass(frozen=True, slots=True)
class Put:
    """The manifest is there."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The manifest was not put, and will not be; ``fenced``: because another job has taken the run over."""

    why: str
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class PutFailed:
    """Putting the manifest failed: it may be there or not."""

    why: str


@dataclass(frozen=True, slots=True)
class ManifestFound:
    """The manifest of this very save is there."""


@dataclass(frozen=True, slots=True)
class ManifestMissing:
    """The manifest of this very save is not there."""


@dataclass(frozen=True, slots=True)
class ManifestUnknown:
    """The storage does not say whether the manifest is there."""

    why: str


@dataclass(frozen=True, slots=True)
class Concluded:
    """What the key ``outcome`` says: ``verdict`` on the save."""

    verdict: Verdict
    reasons: Reasons = Reasons()


Event = (
    Written
    | Failed
    | Died
    | Deadline
    | Decided
    | Put
    | Refused
    | PutFailed
    | ManifestFound
    | ManifestMissing
    | ManifestUnknown
    | Concluded
)


_REMEDY = {
    Verdict.ABORTED: "Nothing was published; training may go on.",
    Verdict.UNKNOWN: "Its files were kept: if the manifest exists, the checkpoint is complete.",
}


def save_failed(save: SaveId, verdict: Verdict, reasons: Reasons, *, rank: int) -> SaveFailed | Fenced:
    """Return the error for a save that was not committed, as ``rank`` raises it: the same on all ranks but for that."""
    texts = _reasons_text(reasons).rstrip(".")
    if reasons.fenced:
        return Fenced(f"rank {rank}: save of step {save.step} refused: {texts}.", ranks=reasons.ranks, step=save.step)
    head = "stopped" if verdict is Verdict.ABORTED else "may have failed, or not"
    error = SaveFailed(
        f"rank {rank}: save of step {save.step} {head}: {texts}.",
        ranks=reasons.ranks,
        step=save.step,
        remedy=_REMEDY[verdict],
        unknown=verdict is Verdict.UNKNOWN,
    )
    for fault in reasons.failed[:MOST_TRACEBACKS]:
        error.add_note(f"On rank {fault.rank}:\n{fault.traceback.rstrip()}")
    return error


def _reasons_text(reasons: Reasons) -> str:
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
    return "; ".join(texts) or "nobody said why"
