"""Define how a save is committed: two state tables, one for rank 0 and one for the other ranks. It does no I/O.

N ranks write their files. When all have written, rank 0 (the *coordinator*) writes the manifest, and only then does the
checkpoint exist. The other ranks are *members*. Ranks may fail, die or stop; messages may be late or lost. So two
questions are each settled by a key that is written once and never changed (``KeyValueStore.claim``: set if absent):

    decision    commit | abort                      commit: all ranks have written, and the manifest will be written
    outcome     committed | aborted | unknown       claimed only after ``commit``: does the manifest exist?

Only the coordinator claims ``commit``, and only when it has an ack of every rank. Any rank with a reason may claim
``abort``: the coordinator (a rank failed, died, or did not answer in time), a rank that failed, or a member whose
coordinator is dead or silent. So there is no manifest before the decision, and there never will be one after ``abort``.

``commit`` is published before the manifest is written. From then on the manifest may exist, and no member may decide
"aborted" by itself. If the coordinator dies now, members check the storage: a dead rank writes nothing, so all of them
see the same. If the coordinator is only slow, it may still write the manifest: then the outcome is *unknown*, and is
reported so. A write that raised an error may still have succeeded, so the coordinator checks the storage, too. A write
that was refused before it began (by the fence) has not happened.

An ack counts once. It counts only for its own save (number, step, nonce, digest of what the ranks agreed to write) and
from a rank of this world. Repeated, stale, foreign and late acks change nothing.

How to read the tables: ``COORDINATOR[state][signal]`` is the ``StateTransition`` to the next state, with the action to
perform.
The result of the action is another event. ``STAY`` means that the signal changes nothing. A missing entry is a
KeyError. A state in which every signal stays is final, and is the outcome. ``mermaid_diagram`` draws the tables.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from allranks.checkpoint.commit_events import (
    DeadlinePassed,
    DecisionSet,
    Event,
    FailureReasons,
    Json,
    ManifestFound,
    ManifestMissing,
    ManifestRefused,
    ManifestUnknown,
    ManifestWriteFailed,
    ManifestWritten,
    OutcomeSet,
    PartFailed,
    PartWritten,
    RankEnded,
    SaveId,
    SaveVerdict,
)

COORDINATOR_RANK = 0


class CommitState(enum.Enum):
    """The states of one save on one rank, which are the rows of the state tables."""

    COLLECTING = "collecting"  # the coordinator counts acks
    PROPOSING = "proposing"  # it claims the decision to commit
    PUTTING = "putting"  # it puts the manifest
    WAITING = "waiting"  # a member waits for the decision
    COMMITTING = "committing"  # it waits for the outcome
    ABORTING = "aborting"  # the decision to abort is claimed
    CHECKING = "checking"  # is the manifest there?
    CLOSING = "closing"  # the outcome is claimed
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class CommitSignal(enum.Enum):
    """The meaning of an event for one rank: the column of the state tables."""

    WRITTEN = "written"
    ALL_WRITTEN = "all written"
    FAILED = "a rank failed"
    DIED = "a rank died"
    COORDINATOR_DIED = "rank 0 died"
    DEADLINE = "deadline"
    COMMIT = "decision: commit"
    ABORT = "decision: abort"
    PUT = "put"
    REFUSED = "put refused"
    PUT_FAILED = "put failed"
    MANIFEST_FOUND = "manifest found"
    MANIFEST_MISSING = "manifest missing"
    MANIFEST_UNKNOWN = "check failed"
    COMMITTED = "outcome: committed"
    ABORTED = "outcome: aborted"
    UNKNOWN = "outcome: unknown"


class CommitAction(enum.Enum):
    """What a rank must do. The result of the action is passed to the state table as an event."""

    CLAIM_COMMIT = "claim commit"  # -> Decided
    CLAIM_ABORT = "claim abort"  # -> Decided
    PUT_MANIFEST = "put the manifest"  # -> Put, Refused, PutFailed
    CHECK_MANIFEST = "check the manifest"  # -> ManifestFound, ManifestMissing, ManifestUnknown
    CLAIM_COMMITTED = "claim committed"  # -> Concluded
    CLAIM_ABORTED = "claim aborted"  # -> Concluded
    CLAIM_UNKNOWN = "claim unknown"  # -> Concluded


@dataclass(frozen=True, slots=True)
class StateTransition:
    """One entry of a state table: the next state, and the action to perform."""

    to: CommitState
    action: CommitAction | None = None


STAY = None
Row = Mapping[CommitSignal, StateTransition | None]


def _table_row(moves: Row, *stays: CommitSignal) -> Row:
    return {**dict.fromkeys(stays, STAY), **moves}


_ACKS = (CommitSignal.WRITTEN, CommitSignal.ALL_WRITTEN)
_TROUBLE = (CommitSignal.FAILED, CommitSignal.DIED, CommitSignal.COORDINATOR_DIED, CommitSignal.DEADLINE)
_DECISION = (CommitSignal.COMMIT, CommitSignal.ABORT)
_PUTS = (CommitSignal.PUT, CommitSignal.REFUSED, CommitSignal.PUT_FAILED)
_CHECKS = (CommitSignal.MANIFEST_FOUND, CommitSignal.MANIFEST_MISSING, CommitSignal.MANIFEST_UNKNOWN)
_OUTCOME = (CommitSignal.COMMITTED, CommitSignal.ABORTED, CommitSignal.UNKNOWN)

_GIVE_UP = StateTransition(CommitState.ABORTING, CommitAction.CLAIM_ABORT)
_ADMIT = StateTransition(CommitState.CLOSING, CommitAction.CLAIM_UNKNOWN)
_TO_THE_OUTCOME: Row = {
    CommitSignal.COMMITTED: StateTransition(CommitState.COMMITTED),
    CommitSignal.ABORTED: StateTransition(CommitState.ABORTED),
    CommitSignal.UNKNOWN: StateTransition(CommitState.UNKNOWN),
}
# What both sides share.
_CHECKING: Row = _table_row(
    {
        CommitSignal.MANIFEST_FOUND: StateTransition(CommitState.CLOSING, CommitAction.CLAIM_COMMITTED),
        CommitSignal.MANIFEST_MISSING: StateTransition(CommitState.CLOSING, CommitAction.CLAIM_ABORTED),
        CommitSignal.MANIFEST_UNKNOWN: _ADMIT,
        **_TO_THE_OUTCOME,
    },
    *_ACKS,
    *_TROUBLE,
    *_DECISION,
    *_PUTS,
)
_CLOSING: Row = _table_row(_TO_THE_OUTCOME, *_ACKS, *_TROUBLE, *_DECISION, *_PUTS, *_CHECKS)
_END: Row = _table_row({}, *CommitSignal)
_FINAL_STATES: dict[CommitState, Row] = {
    CommitState.CHECKING: _CHECKING,
    CommitState.CLOSING: _CLOSING,
    CommitState.COMMITTED: _END,
    CommitState.ABORTED: _END,
    CommitState.UNKNOWN: _END,
}

COORDINATOR: Mapping[CommitState, Row] = {
    CommitState.COLLECTING: _table_row(
        {
            CommitSignal.WRITTEN: StateTransition(CommitState.COLLECTING),
            CommitSignal.ALL_WRITTEN: StateTransition(CommitState.PROPOSING, CommitAction.CLAIM_COMMIT),
            **dict.fromkeys(_TROUBLE, _GIVE_UP),
            CommitSignal.ABORT: StateTransition(CommitState.ABORTED),
            CommitSignal.COMMIT: _ADMIT,  # another rank claimed it in rank 0's name
        },
        *_PUTS,
        *_CHECKS,
        *_OUTCOME,
    ),
    CommitState.PROPOSING: _table_row(
        {
            CommitSignal.COMMIT: StateTransition(CommitState.PUTTING, CommitAction.PUT_MANIFEST),
            CommitSignal.ABORT: StateTransition(CommitState.ABORTED),
        },
        *_ACKS,
        *_TROUBLE,
        *_PUTS,
        *_CHECKS,
        *_OUTCOME,
    ),
    CommitState.PUTTING: _table_row(
        {
            CommitSignal.PUT: StateTransition(CommitState.CLOSING, CommitAction.CLAIM_COMMITTED),
            CommitSignal.REFUSED: StateTransition(CommitState.CLOSING, CommitAction.CLAIM_ABORTED),
            CommitSignal.PUT_FAILED: StateTransition(CommitState.CHECKING, CommitAction.CHECK_MANIFEST),
        },
        *_ACKS,
        *_TROUBLE,
        *_DECISION,
        *_CHECKS,
        *_OUTCOME,  # another rank concluded while this rank was stopped: its own claim will return that
    ),
    CommitState.ABORTING: _table_row(
        {
            **dict.fromkeys((CommitSignal.FAILED, CommitSignal.DIED), _GIVE_UP),  # one more reason
            CommitSignal.ABORT: StateTransition(CommitState.ABORTED),
            CommitSignal.COMMIT: _ADMIT,  # another rank claimed it in rank 0's name
        },
        *_ACKS,
        CommitSignal.COORDINATOR_DIED,
        CommitSignal.DEADLINE,
        *_PUTS,
        *_CHECKS,
        *_OUTCOME,
    ),
    **_FINAL_STATES,
}

MEMBER: Mapping[CommitState, Row] = {
    CommitState.WAITING: _table_row(
        {
            CommitSignal.FAILED: _GIVE_UP,
            CommitSignal.COORDINATOR_DIED: _GIVE_UP,
            CommitSignal.DEADLINE: _GIVE_UP,
            CommitSignal.COMMIT: StateTransition(CommitState.COMMITTING),
            CommitSignal.ABORT: StateTransition(CommitState.ABORTED),
        },
        *_ACKS,
        CommitSignal.DIED,  # the coordinator knows whether it had written
        *_PUTS,
        *_CHECKS,
        *_OUTCOME,
    ),
    CommitState.ABORTING: _table_row(
        {
            CommitSignal.FAILED: _GIVE_UP,  # one more reason
            CommitSignal.COMMIT: StateTransition(CommitState.COMMITTING),  # the coordinator was faster
            CommitSignal.ABORT: StateTransition(CommitState.ABORTED),
        },
        *_ACKS,
        CommitSignal.DIED,
        CommitSignal.COORDINATOR_DIED,
        CommitSignal.DEADLINE,
        *_PUTS,
        *_CHECKS,
        *_OUTCOME,
    ),
    CommitState.COMMITTING: _table_row(
        {
            CommitSignal.COORDINATOR_DIED: StateTransition(CommitState.CHECKING, CommitAction.CHECK_MANIFEST),
            CommitSignal.DEADLINE: _ADMIT,
            **_TO_THE_OUTCOME,
        },
        *_ACKS,
        CommitSignal.FAILED,
        CommitSignal.DIED,
        *_DECISION,
        *_PUTS,
        *_CHECKS,
    ),
    **_FINAL_STATES,
}


@dataclass(slots=True)
class CommitSide:
    """The state of one save on one rank. ``apply_event`` takes an event and returns the action to perform, if any."""

    save: SaveId
    rank: int
    size: int
    state: CommitState = field(init=False)
    acks: dict[int, Json] = field(default_factory=dict)
    reasons: FailureReasons = field(default_factory=FailureReasons)

    def __post_init__(self) -> None:
        self.state = CommitState.COLLECTING if self.rank == COORDINATOR_RANK else CommitState.WAITING

    @property
    def verdict(self) -> SaveVerdict | None:
        """How the save ended; None while it has not ended."""
        return _VERDICTS.get(self.state)

    @property
    def ranks_without_ack(self) -> tuple[int, ...]:
        """The ranks whose acks have not arrived."""
        return tuple(rank for rank in range(self.size) if rank not in self.acks)

    def apply_event(self, event: Event) -> CommitAction | None:
        """Apply an event to the state; return the action to perform, or None."""
        signal = self._signal_of_event(event)
        if signal is None:
            return None
        table = COORDINATOR if self.rank == COORDINATOR_RANK else MEMBER
        move = table[self.state][signal]
        if move is STAY:
            return None
        self._record_event(event)
        self.state = move.to
        return move.action

    def _signal_of_event(self, event: Event) -> CommitSignal | None:
        """Return the meaning of an event for this rank; None if the event must be ignored.

        Ignored are repeated events, events of another save, and events of a rank outside this world.
        """
        match event:
            case PartWritten(save, rank, _):
                if save != self.save or rank in self.acks or not 0 <= rank < self.size:
                    return None
                return CommitSignal.ALL_WRITTEN if len(self.acks) + 1 == self.size else CommitSignal.WRITTEN
            case PartFailed(save, fault):
                return None if save != self.save or fault in self.reasons.failed else CommitSignal.FAILED
            case RankEnded(rank, _):
                if rank in self.acks and rank != COORDINATOR_RANK:
                    return None  # its part is durable
                return CommitSignal.COORDINATOR_DIED if rank == COORDINATOR_RANK else CommitSignal.DIED
            case DecisionSet(commit):
                return CommitSignal.COMMIT if commit else CommitSignal.ABORT
            case OutcomeSet(verdict):
                return CommitSignal[verdict.name]
            case _:
                return _PLAIN[type(event)]

    def _record_event(self, event: Event) -> None:
        match event:
            case PartWritten(_, rank, ack):
                self.acks[rank] = ack
            case PartFailed(_, fault):
                failed = sorted((*self.reasons.failed, fault), key=lambda one: one.rank)
                self.reasons = replace(self.reasons, failed=tuple(failed))
            case RankEnded(rank, why):
                died = {**dict(self.reasons.died), rank: why}
                self.reasons = replace(self.reasons, died=tuple(sorted(died.items())))
            case DeadlinePassed(seconds):
                self.reasons = self._reasons_of_timeout(seconds)
            case ManifestRefused(why, fenced):
                self.reasons = replace(self.reasons, detail=why, fenced=fenced)
            case ManifestWriteFailed(why) | ManifestUnknown(why):
                detail = f"{self.reasons.detail}; {why}" if self.reasons.detail else why
                self.reasons = replace(self.reasons, detail=detail)
            case DecisionSet(commit=False, reasons=reasons) | OutcomeSet(_, reasons):
                self.reasons = reasons

    def _reasons_of_timeout(self, seconds: float) -> FailureReasons:
        if self.state is CommitState.COLLECTING:
            dead = {rank for rank, _ in self.reasons.died}
            late = tuple(rank for rank in self.ranks_without_ack if rank not in dead)
            return replace(self.reasons, missing=late, detail=f"no report within {seconds:g} s" if late else "")
        what = "write the manifest" if self.state is CommitState.COMMITTING else "decide"
        return replace(self.reasons, missing=(COORDINATOR_RANK,), detail=f"it did not {what} within {seconds:g} s")


_VERDICTS = {CommitState[verdict.name]: verdict for verdict in SaveVerdict}
_PLAIN: dict[type[Event], CommitSignal] = {
    DeadlinePassed: CommitSignal.DEADLINE,
    ManifestWritten: CommitSignal.PUT,
    ManifestRefused: CommitSignal.REFUSED,
    ManifestWriteFailed: CommitSignal.PUT_FAILED,
    ManifestFound: CommitSignal.MANIFEST_FOUND,
    ManifestMissing: CommitSignal.MANIFEST_MISSING,
    ManifestUnknown: CommitSignal.MANIFEST_UNKNOWN,
}


def mermaid_diagram(state_table: Mapping[CommitState, Row]) -> str:
    """Return a state table as the text of a Mermaid state diagram.

    There is one arrow for each pair of states and action, labelled ``signals / action``.
    """
    arrows: dict[tuple[CommitState, StateTransition], list[str]] = {}
    for state, row in state_table.items():
        for signal, move in row.items():
            if move is not STAY:
                arrows.setdefault((state, move), []).append(signal.value)
    lines = ["stateDiagram-v2", f"    [*] --> {next(iter(state_table)).name}"]
    for (state, move), signals in arrows.items():
        action = f" / {move.action.value}" if move.action else ""
        lines.append(f"    {state.name} --> {move.to.name}: {', '.join(signals).replace(':', '')}{action}")
    lines += [f"    {state.name} --> [*]" for state in _VERDICTS if state in state_table]
    return "\n".join(lines)
