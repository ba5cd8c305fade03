"""Define how a save is committed: two state tables, one for rank 0 and one for the other ranks. It does no I/O.

N ranks write their files. When all have written, rank 0 (the *coordinator*) writes the manifest, and only then does the
checkpoint exist. The other ranks are *members*. Ranks may fail, die or stop; messages may be late or lost. So two
questions are each settled by a key that is written once and never changed (``KeyValueStore.claim``):

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

How to read the tables: ``COORDINATOR[state][signal]`` is the ``Transition`` to the next state, with the action to
perform.
The result of the action is another event. ``STAY`` means that the signal changes nothing. A missing entry is a
KeyError. A state in which every signal stays is final, and is the outcome. ``mermaid_diagram`` draws the tables.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from allranks.checkpoint.commit_events import (
    Concluded,
    Deadline,
    Decided,
    Died,
    Event,
    Failed,
    Json,
    ManifestFound,
    ManifestMissing,
    ManifestUnknown,
    Put,
    PutFailed,
    Reasons,
    Refused,
    SaveId,
    Verdict,
    Written,
)

COORDINATOR_RANK = 0


class State(enum.Enum):
    """The states of one save on one rank: the rows of the state tables."""

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


class Signal(enum.Enum):
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


class Action(enum.Enum):
    """What a rank must do. The result of the action is passed to the state table as an event."""

    CLAIM_COMMIT = "claim commit"  # -> Decided
    CLAIM_ABORT = "claim abort"  # -> Decided
    PUT_MANIFEST = "put the manifest"  # -> Put, Refused, PutFailed
    CHECK_MANIFEST = "check the manifest"  # -> ManifestFound, ManifestMissing, ManifestUnknown
    CLAIM_COMMITTED = "claim committed"  # -> Concluded
    CLAIM_ABORTED = "claim aborted"  # -> Concluded
    CLAIM_UNKNOWN = "claim unknown"  # -> Concluded


@dataclass(frozen=True, slots=True)
class Transition:
    """One entry of a state table: the next state, and the action to perform."""

    to: State
    action: Action | None = None


STAY = None
Row = Mapping[Signal, Transition | None]


def _table_row(moves: Row, *stays: Signal) -> Row:
    return {**dict.fromkeys(stays, STAY), **moves}


_ACKS = (Signal.WRITTEN, Signal.ALL_WRITTEN)
_TROUBLE = (Signal.FAILED, Signal.DIED, Signal.COORDINATOR_DIED, Signal.DEADLINE)
_DECISION = (Signal.COMMIT, Signal.ABORT)
_PUTS = (Signal.PUT, Signal.REFUSED, Signal.PUT_FAILED)
_CHECKS = (Signal.MANIFEST_FOUND, Signal.MANIFEST_MISSING, Signal.MANIFEST_UNKNOWN)
_OUTCOME = (Signal.COMMITTED, Signal.ABORTED, Signal.UNKNOWN)

_GIVE_UP = Transition(State.ABORTING, Action.CLAIM_ABORT)
_ADMIT = Transition(State.CLOSING, Action.CLAIM_UNKNOWN)
_TO_THE_OUTCOME: Row = {
    Signal.COMMITTED: Transition(State.COMMITTED),
    Signal.ABORTED: Transition(State.ABORTED),
    Signal.UNKNOWN: Transition(State.UNKNOWN),
}
# What both sides share.
_CHECKING: Row = _table_row(
    {
        Signal.MANIFEST_FOUND: Transition(State.CLOSING, Action.CLAIM_COMMITTED),
        Signal.MANIFEST_MISSING: Transition(State.CLOSING, Action.CLAIM_ABORTED),
        Signal.MANIFEST_UNKNOWN: _ADMIT,
        **_TO_THE_OUTCOME,
    },
    *_ACKS,
    *_TROUBLE,
    *_DECISION,
    *_PUTS,
)
_CLOSING: Row = _table_row(_TO_THE_OUTCOME, *_ACKS, *_TROUBLE, *_DECISION, *_PUTS, *_CHECKS)
_END: Row = _table_row({}, *Signal)
_FINAL_STATES: dict[State, Row] = {
    State.CHECKING: _CHECKING,
    State.CLOSING: _CLOSING,
    State.COMMITTED: _END,
    State.ABORTED: _END,
    State.UNKNOWN: _END,
}

COORDINATOR: Mapping[State, Row] = {
    State.COLLECTING: _table_row(
        {
            Signal.WRITTEN: Transition(State.COLLECTING),
            Signal.ALL_WRITTEN: Transition(State.PROPOSING, Action.CLAIM_COMMIT),
            **dict.fromkeys(_TROUBLE, _GIVE_UP),
            Signal.ABORT: Transition(State.ABORTED),
            Signal.COMMIT: _ADMIT,  # another rank claimed it in rank 0's name
        },
        *_PUTS,
        *_CHECKS,
        *_OUTCOME,
    ),
    State.PROPOSING: _table_row(
        {Signal.COMMIT: Transition(State.PUTTING, Action.PUT_MANIFEST), Signal.ABORT: Transition(State.ABORTED)},
        *_ACKS,
        *_TROUBLE,
        *_PUTS,
        *_CHECKS,
        *_OUTCOME,
    ),
    State.PUTTING: _table_row(
        {
            Signal.PUT: Transition(State.CLOSING, Action.CLAIM_COMMITTED),
            Signal.REFUSED: Transition(State.CLOSING, Action.CLAIM_ABORTED),
            Signal.PUT_FAILED: Transition(State.CHECKING, Action.CHECK_MANIFEST),
        },
        *_ACKS,
        *_TROUBLE,
        *_DECISION,
        *_CHECKS,
        *_OUTCOME,  # another rank concluded while this rank was stopped: its own claim will return that
    ),
    State.ABORTING: _table_row(
        {
            **dict.fromkeys((Signal.FAILED, Signal.DIED), _GIVE_UP),  # one more reason
            Signal.ABORT: Transition(State.ABORTED),
            Signal.COMMIT: _ADMIT,  # another rank claimed it in rank 0's name
        },
        *_ACKS,
        Signal.COORDINATOR_DIED,
        Signal.DEADLINE,
        *_PUTS,
        *_CHECKS,
        *_OUTCOME,
    ),
    **_FINAL_STATES,
}

MEMBER: Mapping[State, Row] = {
    State.WAITING: _table_row(
        {
            Signal.FAILED: _GIVE_UP,
            Signal.COORDINATOR_DIED: _GIVE_UP,
            Signal.DEADLINE: _GIVE_UP,
            Signal.COMMIT: Transition(State.COMMITTING),
            Signal.ABORT: Transition(State.ABORTED),
        },
        *_ACKS,
        Signal.DIED,  # the coordinator knows whether it had written
        *_PUTS,
        *_CHECKS,
        *_OUTCOME,
    ),
    State.ABORTING: _table_row(
        {
            Signal.FAILED: _GIVE_UP,  # one more reason
            Signal.COMMIT: Transition(State.COMMITTING),  # the coordinator was faster
            Signal.ABORT: Transition(State.ABORTED),
        },
        *_ACKS,
        Signal.DIED,
        Signal.COORDINATOR_DIED,
        Signal.DEADLINE,
        *_PUTS,
        *_CHECKS,
        *_OUTCOME,
    ),
    State.COMMITTING: _table_row(
        {
            Signal.COORDINATOR_DIED: Transition(State.CHECKING, Action.CHECK_MANIFEST),
            Signal.DEADLINE: _ADMIT,
            **_TO_THE_OUTCOME,
        },
        *_ACKS,
        Signal.FAILED,
        Signal.DIED,
        *_DECISION,
        *_PUTS,
        *_CHECKS,
    ),
    **_FINAL_STATES,
}


@dataclass(slots=True)
class CommitSide:
    """The state of one save on one rank. ``on`` takes an event and returns the action to perform, if any."""

    save: SaveId
    rank: int
    size: int
    state: State = field(init=False)
    acks: dict[int, Json] = field(default_factory=dict)
    reasons: Reasons = field(default_factory=Reasons)

    def __post_init__(self) -> None:
        self.state = State.COLLECTING if self.rank == COORDINATOR_RANK else State.WAITING

    @property
    def verdict(self) -> Verdict | None:
        """How the save ended; None while it has not ended."""
        return _VERDICTS.get(self.state)

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks whose acks have not arrived."""
        return tuple(rank for rank in range(self.size) if rank not in self.acks)

    def on(self, event: Event) -> Action | None:
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

    def _signal_of_event(self, event: Event) -> Signal | None:
        """Return the meaning of an event for this rank; None if the event must be ignored.

        Ignored are repeated events, events of another save, and events of a rank outside this world.
        """
        match event:
            case Written(save, rank, _):
                if save != self.save or rank in self.acks or not 0 <= rank < self.size:
                    return None
                return Signal.ALL_WRITTEN if len(self.acks) + 1 == self.size else Signal.WRITTEN
            case Failed(save, fault):
                return None if save != self.save or fault in self.reasons.failed else Signal.FAILED
            case Died(rank, _):
                if rank in self.acks and rank != COORDINATOR_RANK:
                    return None  # its part is durable
                return Signal.COORDINATOR_DIED if rank == COORDINATOR_RANK else Signal.DIED
            case Decided(commit):
                return Signal.COMMIT if commit else Signal.ABORT
            case Concluded(verdict):
                return Signal[verdict.name]
            case _:
                return _PLAIN[type(event)]

    def _record_event(self, event: Event) -> None:
        match event:
            case Written(_, rank, ack):
                self.acks[rank] = ack
            case Failed(_, fault):
                failed = sorted((*self.reasons.failed, fault), key=lambda one: one.rank)
                self.reasons = replace(self.reasons, failed=tuple(failed))
            case Died(rank, why):
                died = {**dict(self.reasons.died), rank: why}
                self.reasons = replace(self.reasons, died=tuple(sorted(died.items())))
            case Deadline(seconds):
                self.reasons = self._reasons_of_timeout(seconds)
            case Refused(why, fenced):
                self.reasons = replace(self.reasons, detail=why, fenced=fenced)
            case PutFailed(why) | ManifestUnknown(why):
                detail = f"{self.reasons.detail}; {why}" if self.reasons.detail else why
                self.reasons = replace(self.reasons, detail=detail)
            case Decided(commit=False, reasons=reasons) | Concluded(_, reasons):
                self.reasons = reasons

    def _reasons_of_timeout(self, seconds: float) -> Reasons:
        if self.state is State.COLLECTING:
            dead = {rank for rank, _ in self.reasons.died}
            late = tuple(rank for rank in self.missing if rank not in dead)
            return replace(self.reasons, missing=late, detail=f"no report within {seconds:g} s" if late else "")
        what = "write the manifest" if self.state is State.COMMITTING else "decide"
        return replace(self.reasons, missing=(COORDINATOR_RANK,), detail=f"it did not {what} within {seconds:g} s")


_VERDICTS = {State[verdict.name]: verdict for verdict in Verdict}
_PLAIN: dict[type[Event], Signal] = {
    Deadline: Signal.DEADLINE,
    Put: Signal.PUT,
    Refused: Signal.REFUSED,
    PutFailed: Signal.PUT_FAILED,
    ManifestFound: Signal.MANIFEST_FOUND,
    ManifestMissing: Signal.MANIFEST_MISSING,
    ManifestUnknown: Signal.MANIFEST_UNKNOWN,
}


def mermaid_diagram(table: Mapping[State, Row]) -> str:
    """Return a table as a Mermaid state diagram.

    There is one arrow for each pair of states and action, labelled ``signals / action``.
    """
    arrows: dict[tuple[State, Transition], list[str]] = {}
    for state, row in table.items():
        for signal, move in row.items():
            if move is not STAY:
                arrows.setdefault((state, move), []).append(signal.value)
    lines = ["stateDiagram-v2", f"    [*] --> {next(iter(table)).name}"]
    for (state, move), signals in arrows.items():
        action = f" / {move.action.value}" if move.action else ""
        lines.append(f"    {state.name} --> {move.to.name}: {', '.join(signals).replace(':', '')}{action}")
    lines += [f"    {state.name} --> [*]" for state in _VERDICTS if state in table]
    return "\n".join(lines)
