"""One save, from "my part is written" to one outcome for all ranks: two tables, and nothing but values.

Theory. N ranks write their files. When all have, rank 0 (the *coordinator*) puts the manifest, and only then the
checkpoint exists; everybody else is a *member*. Ranks may fail, die, stand still, and messages may be late or lost, so
two questions are each settled by a key that is written once and for all (``KeyValueStore.claim``):

    decision    commit | abort                  commit: all ranks have written, and the manifest will be put
    outcome     committed | aborted | unknown   asked only after ``commit``: is the manifest there?

Only the coordinator claims ``commit``, and only with an ack of every rank in its hands. Whoever has a reason may claim
``abort``: the coordinator (a rank failed, died, or did not answer in time), a rank that failed itself, a member whose
coordinator is dead or gives no sign. So before the decision nothing is there, and after ``abort`` nothing will be.

``commit`` is published before the manifest is put. From there on the manifest may be there, and a member may not say
"aborted" by itself. If the coordinator dies now, members look into the storage: a dead rank puts nothing any more, so
all of them see the same. If it merely stands still, it may still put the manifest: the outcome is *unknown*, and is
reported as such. A put that failed may have worked all the same, so the coordinator looks, too. A put that was refused
before it began (the fence) has not.

An ack counts once, and only for its own save (number, step, nonce, digest of what the ranks agreed to write) and from a
rank of this world: double, stale, foreign and late ones change nothing.

How to read the tables: ``COORDINATOR[state][sign]`` is the ``Move`` to the next state, with what is to be done on the
way, whose result comes back as another event; ``STAY`` where the sign changes nothing. A missing entry is a KeyError.
A state has no exit, and is the outcome, where every sign stays. ``diagram`` draws them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from allranks.checkpoint.commit_words import (
    Concluded,
    Deadline,
    Decided,
    Died,
    Event,
    Failed,
    Found,
    Json,
    LookFailed,
    NotFound,
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
    """Where one rank stands with one save."""

    COLLECTING = "collecting"  # the coordinator counts acks
    PROPOSING = "proposing"  # it claims the decision to commit
    PUTTING = "putting"  # it puts the manifest
    WAITING = "waiting"  # a member waits for the decision
    COMMITTING = "committing"  # it waits for the outcome
    ABORTING = "aborting"  # the decision to abort is claimed
    LOOKING = "looking"  # is the manifest there?
    CLOSING = "closing"  # the outcome is claimed
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Sign(enum.Enum):
    """What an event means to a rank."""

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
    FOUND = "found"
    NOT_FOUND = "not found"
    LOOK_FAILED = "look failed"
    COMMITTED = "outcome: committed"
    ABORTED = "outcome: aborted"
    UNKNOWN = "outcome: unknown"


class Act(enum.Enum):
    """What is to be done; the result comes back as an event."""

    CLAIM_COMMIT = "claim commit"  # -> Decided
    CLAIM_ABORT = "claim abort"  # -> Decided
    PUT_MANIFEST = "put the manifest"  # -> Put, Refused, PutFailed
    LOOK = "look"  # -> Found, NotFound, LookFailed
    CLAIM_COMMITTED = "claim committed"  # -> Concluded
    CLAIM_ABORTED = "claim aborted"  # -> Concluded
    CLAIM_UNKNOWN = "claim unknown"  # -> Concluded


@dataclass(frozen=True, slots=True)
class Move:
    """The next state, and what is to be done on the way there."""

    to: State
    act: Act | None = None


STAY = None
Row = Mapping[Sign, Move | None]


def _row(moves: Row, *stays: Sign) -> Row:
    return {**dict.fromkeys(stays, STAY), **moves}


_ACKS = (Sign.WRITTEN, Sign.ALL_WRITTEN)
_TROUBLE = (Sign.FAILED, Sign.DIED, Sign.COORDINATOR_DIED, Sign.DEADLINE)
_DECISION = (Sign.COMMIT, Sign.ABORT)
_PUTS = (Sign.PUT, Sign.REFUSED, Sign.PUT_FAILED)
_LOOKS = (Sign.FOUND, Sign.NOT_FOUND, Sign.LOOK_FAILED)
_OUTCOME = (Sign.COMMITTED, Sign.ABORTED, Sign.UNKNOWN)

_GIVE_UP = Move(State.ABORTING, Act.CLAIM_ABORT)
_ADMIT = Move(State.CLOSING, Act.CLAIM_UNKNOWN)
_TO_THE_OUTCOME: Row = {
    Sign.COMMITTED: Move(State.COMMITTED),
    Sign.ABORTED: Move(State.ABORTED),
    Sign.UNKNOWN: Move(State.UNKNOWN),
}
# What both sides share.
_LOOKING: Row = _row(
    {
        Sign.FOUND: Move(State.CLOSING, Act.CLAIM_COMMITTED),
        Sign.NOT_FOUND: Move(State.CLOSING, Act.CLAIM_ABORTED),
        Sign.LOOK_FAILED: _ADMIT,
        **_TO_THE_OUTCOME,
    },
    *_ACKS,
    *_TROUBLE,
    *_DECISION,
    *_PUTS,
)
_CLOSING: Row = _row(_TO_THE_OUTCOME, *_ACKS, *_TROUBLE, *_DECISION, *_PUTS, *_LOOKS)
_END: Row = _row({}, *Sign)
_ENDS: dict[State, Row] = {
    State.LOOKING: _LOOKING,
    State.CLOSING: _CLOSING,
    State.COMMITTED: _END,
    State.ABORTED: _END,
    State.UNKNOWN: _END,
}

COORDINATOR: Mapping[State, Row] = {
    State.COLLECTING: _row(
        {
            Sign.WRITTEN: Move(State.COLLECTING),
            Sign.ALL_WRITTEN: Move(State.PROPOSING, Act.CLAIM_COMMIT),
            **dict.fromkeys(_TROUBLE, _GIVE_UP),
            Sign.ABORT: Move(State.ABORTED),
            Sign.COMMIT: _ADMIT,  # somebody says it in our name
        },
        *_PUTS,
        *_LOOKS,
        *_OUTCOME,
    ),
    State.PROPOSING: _row(
        {Sign.COMMIT: Move(State.PUTTING, Act.PUT_MANIFEST), Sign.ABORT: Move(State.ABORTED)},
        *_ACKS,
        *_TROUBLE,
        *_PUTS,
        *_LOOKS,
        *_OUTCOME,
    ),
    State.PUTTING: _row(
        {
            Sign.PUT: Move(State.CLOSING, Act.CLAIM_COMMITTED),
            Sign.REFUSED: Move(State.CLOSING, Act.CLAIM_ABORTED),
            Sign.PUT_FAILED: Move(State.LOOKING, Act.LOOK),
        },
        *_ACKS,
        *_TROUBLE,
        *_DECISION,
        *_LOOKS,
        *_OUTCOME,  # made up while we stood still: our claim will learn of it
    ),
    State.ABORTING: _row(
        {
            **dict.fromkeys((Sign.FAILED, Sign.DIED), _GIVE_UP),  # one more reason
            Sign.ABORT: Move(State.ABORTED),
            Sign.COMMIT: _ADMIT,  # somebody says it in our name
        },
        *_ACKS,
        Sign.COORDINATOR_DIED,
        Sign.DEADLINE,
        *_PUTS,
        *_LOOKS,
        *_OUTCOME,
    ),
    **_ENDS,
}

MEMBER: Mapping[State, Row] = {
    State.WAITING: _row(
        {
            Sign.FAILED: _GIVE_UP,
            Sign.COORDINATOR_DIED: _GIVE_UP,
            Sign.DEADLINE: _GIVE_UP,
            Sign.COMMIT: Move(State.COMMITTING),
            Sign.ABORT: Move(State.ABORTED),
        },
        *_ACKS,
        Sign.DIED,  # the coordinator knows whether it had written
        *_PUTS,
        *_LOOKS,
        *_OUTCOME,
    ),
    State.ABORTING: _row(
        {
            Sign.FAILED: _GIVE_UP,  # one more reason
            Sign.COMMIT: Move(State.COMMITTING),  # the coordinator was faster
            Sign.ABORT: Move(State.ABORTED),
        },
        *_ACKS,
        Sign.DIED,
        Sign.COORDINATOR_DIED,
        Sign.DEADLINE,
        *_PUTS,
        *_LOOKS,
        *_OUTCOME,
    ),
    State.COMMITTING: _row(
        {
            Sign.COORDINATOR_DIED: Move(State.LOOKING, Act.LOOK),
            Sign.DEADLINE: _ADMIT,
            **_TO_THE_OUTCOME,
        },
        *_ACKS,
        Sign.FAILED,
        Sign.DIED,
        *_DECISION,
        *_PUTS,
        *_LOOKS,
    ),
    **_ENDS,
}


@dataclass(slots=True)
class Side:
    """One rank's side of one save. ``on`` takes an event and returns what is to be done, if anything is."""

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
        """How the save ended, None while it has not."""
        return _VERDICTS.get(self.state)

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks whose acks are not here."""
        return tuple(rank for rank in range(self.size) if rank not in self.acks)

    def on(self, event: Event) -> Act | None:
        sign = self._sign(event)
        if sign is None:
            return None
        table = COORDINATOR if self.rank == COORDINATOR_RANK else MEMBER
        move = table[self.state][sign]
        if move is STAY:
            return None
        self._note(event)
        self.state = move.to
        return move.act

    def _sign(self, event: Event) -> Sign | None:
        """Return what the event means here; None for what is said twice, or to another save, or by nobody of ours."""
        match event:
            case Written(save, rank, _):
                if save != self.save or rank in self.acks or not 0 <= rank < self.size:
                    return None
                return Sign.ALL_WRITTEN if len(self.acks) + 1 == self.size else Sign.WRITTEN
            case Failed(save, fault):
                return None if save != self.save or fault in self.reasons.failed else Sign.FAILED
            case Died(rank, _):
                if rank in self.acks and rank != COORDINATOR_RANK:
                    return None  # its part is durable
                return Sign.COORDINATOR_DIED if rank == COORDINATOR_RANK else Sign.DIED
            case Decided(commit):
                return Sign.COMMIT if commit else Sign.ABORT
            case Concluded(verdict):
                return Sign[verdict.name]
            case _:
                return _PLAIN[type(event)]

    def _note(self, event: Event) -> None:
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
                self.reasons = self._overdue(seconds)
            case Refused(why, fenced):
                self.reasons = replace(self.reasons, said=why, fenced=fenced)
            case PutFailed(why) | LookFailed(why):
                said = f"{self.reasons.said}; {why}" if self.reasons.said else why
                self.reasons = replace(self.reasons, said=said)
            case Decided(commit=False, reasons=reasons) | Concluded(_, reasons):
                self.reasons = reasons

    def _overdue(self, seconds: float) -> Reasons:
        if self.state is State.COLLECTING:
            dead = {rank for rank, _ in self.reasons.died}
            late = tuple(rank for rank in self.missing if rank not in dead)
            return replace(self.reasons, missing=late, said=f"they gave no sign for {seconds:g} s" if late else "")
        what = "put the manifest" if self.state is State.COMMITTING else "decide"
        return replace(self.reasons, missing=(COORDINATOR_RANK,), said=f"it was to {what} within {seconds:g} s")


_VERDICTS = {State[verdict.name]: verdict for verdict in Verdict}
_PLAIN: dict[type[Event], Sign] = {
    Deadline: Sign.DEADLINE,
    Put: Sign.PUT,
    Refused: Sign.REFUSED,
    PutFailed: Sign.PUT_FAILED,
    Found: Sign.FOUND,
    NotFound: Sign.NOT_FOUND,
    LookFailed: Sign.LOOK_FAILED,
}


def diagram(table: Mapping[State, Row]) -> str:
    """Draw a table as a Mermaid state diagram: one arrow a pair of states and act, labelled ``signs / act``."""
    arrows: dict[tuple[State, Move], list[str]] = {}
    for state, row in table.items():
        for sign, move in row.items():
            if move is not STAY:
                arrows.setdefault((state, move), []).append(sign.value)
    lines = ["stateDiagram-v2", f"    [*] --> {next(iter(table)).name}"]
    for (state, move), signs in arrows.items():
        act = f" / {move.act.value}" if move.act else ""
        lines.append(f"    {state.name} --> {move.to.name}: {', '.join(signs).replace(':', '')}{act}")
    lines += [f"    {state.name} --> [*]" for state in _VERDICTS if state in table]
    return "\n".join(lines)
