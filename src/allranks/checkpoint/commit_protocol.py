"""Commit saves on one rank, in its background thread: `commit_states` decides, and this file acts.

Ranks communicate through the key-value store alone, without collectives. The keys below ``ckpt/<number>/<nonce>/``:

    ack/<rank>      the rank has written its part.
    failed/<rank>   the rank could not write its part.
    judge           the first rank that failed. It waits briefly, and reports all failures.
    decision        commit, or abort with the reasons.
    outcome         committed, aborted, unknown.

A rank deletes its keys of earlier saves once all ranks are known to have reached a later save.
"""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

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
    RankFault,
    SaveId,
    SaveVerdict,
    save_failed_error,
)
from allranks.checkpoint.commit_states import COORDINATOR_RANK, CommitAction, CommitSide, CommitState
from allranks.clock import Clock
from allranks.errors import Fenced, KeyTimeout, StoreError
from allranks.failure import message_of, text_of
from allranks.world import departures
from allranks.world.codec import dumps, loads
from allranks.world.store import KeyValueStore

_LOG = logging.getLogger("allranks.checkpoint")
# Seconds between two checks for dead ranks: the coordinator checks all ranks, a member checks the coordinator.
_CHECK_INTERVAL, _MEMBER_CHECK_INTERVAL = 0.5, 2.0
# Seconds that the first rank that failed waits for other failures; seconds that the others wait for its decision.
_SETTLE, _PATIENCE = 0.2, 1.0
# Seconds that a member waits longer for the decision than the coordinator waits for the members.
_GRACE = 10.0
# Seconds in which a coordinator that has failed may still finish its write: a member then checks once more.
_LAST_PUT = 1.0


class CommitProtocol:
    """Runs the commit protocol on one rank, for one save after another. Not thread-safe."""

    def __init__(self, store: KeyValueStore, clock: Clock, *, rank: int, size: int) -> None:
        self.store = store
        self.clock = clock
        self.rank = rank
        self.size = size
        self._mine: list[list[str]] = []

    def run_save(
        self,
        save_id: SaveId,
        *,
        write_part: Callable[[], Json],
        publish_manifest: Callable[[Sequence[Json]], None],
        is_published: Callable[[], bool],
        timeout: float,
        discard_part: Callable[[], None] = lambda: None,
    ) -> None:
        """Write this rank's part, and wait for the save's outcome. **Every rank must call**, with the same ``save_id``.

        ``write_part``: makes this rank's part durable and returns its ack (JSON types).
        ``publish_manifest``: rank 0 calls it with the acks in rank order, when all ranks have written. It writes the
        manifest, or raises Fenced before it writes anything.
        ``is_published``: returns whether the manifest of this save (its nonce) exists; any rank may call it.
        ``timeout``: seconds for all ranks to write, and again for the manifest.
        ``discard_part``: removes what ``write_part`` wrote. It is called only if no rank can publish that any more.

        Returns if the manifest exists. Otherwise raises the same SaveFailed on every rank, or Fenced.
        """
        self._mine.append([])
        one = _CommitRun(self, save_id, publish_manifest, is_published, timeout)
        try:
            verdict, side = one.run_to_verdict(write_part)
        except StoreError as error:
            lost = FailureReasons(detail=f"this rank has lost the connection to the key-value store ({error})")
            raise save_failed_error(save_id, SaveVerdict.UNKNOWN, lost, rank=self.rank) from error
        if one.has_decided_commit:
            self._forget_earlier()
        if one.is_final:
            discard_part()
        if verdict is not SaveVerdict.COMMITTED:
            raise save_failed_error(save_id, verdict, side.reasons, rank=self.rank) from one.cause

    def is_hopeless(self, save_id: SaveId) -> bool:
        """Return whether the save can no longer be committed. ``write_part`` may call this often, and stop early."""
        if (decision := self.store.get(f"{_key_prefix(save_id)}/decision")) is not None:
            return not loads(decision)["commit"]
        dead = departures.read_ended(self.store)
        return any(self.store.get(f"{_key_prefix(save_id)}/ack/{rank}") is None for rank in dead)

    def put_key(self, key: str, document: Json) -> None:
        """Set a key of the current save in the key-value store. The key is deleted after a later save."""
        self._mine[-1].append(key)
        self.store.set(key, dumps(document))

    def claim_key(self, key: str, document: Json) -> Json:
        """Set a key of the current save in the key-value store if it is absent.

        Return the value that the key has now.
        """
        mine = dumps(document)
        there = self.store.claim(key, mine)
        if there == mine:
            self._mine[-1].append(key)
        return loads(there)

    def _forget_earlier(self) -> None:
        for keys in self._mine[:-1]:
            for key in keys:
                self.store.delete(key)
        del self._mine[:-1]


def _key_prefix(save: SaveId) -> str:
    return f"ckpt/{save.number}/{save.nonce}"


@dataclass(slots=True)
class _CommitRun:
    """The commit of one save on one rank."""

    of: CommitProtocol
    save: SaveId
    publish: Callable[[Sequence[Json]], None]
    is_published: Callable[[], bool]
    timeout: float
    has_decided_commit: bool = False
    cause: Exception | None = None  # why this rank itself failed
    _side: CommitSide = field(init=False)
    _awaited: deque[int] = field(init=False)
    _deadline: float = field(init=False)
    _next_check: float = field(init=False)

    def __post_init__(self) -> None:
        now = self.of.clock.now()
        self._side = CommitSide(self.save, self.of.rank, self.of.size)
        coordinates = self.of.rank == COORDINATOR_RANK
        self._awaited = deque(range(1, self.of.size) if coordinates else ())
        self._deadline = now + self.timeout + (0.0 if coordinates else _GRACE)
        self._next_check = now + _CHECK_INTERVAL

    def run_to_verdict(self, write: Callable[[], Json]) -> tuple[SaveVerdict, CommitSide]:
        """Write this rank's part, then wait and act until the save has a verdict. Return it, and the final state."""
        action = self._handle_events(self._write_part(write))
        while (verdict := self._side.verdict) is None:
            action = self._handle_events(self._next_events() if action is None else [self._perform_action(action)])
        return verdict, self._side

    @property
    def is_final(self) -> bool:
        """Whether the save was aborted, and no rank can still publish its manifest.

        False if rank 0 is only reported dead, because it may live for a moment longer.
        """
        decided = self.has_decided_commit and COORDINATOR_RANK in dict(self._side.reasons.died)
        return self._side.verdict is SaveVerdict.ABORTED and not decided

    def _handle_events(self, events: Iterable[Event]) -> CommitAction | None:
        """Apply events that arrived together to the save's state. Return the last action that this requires, if any."""
        action = None
        for event in events:
            before = self._side.state
            action = self._side.apply_event(event) or action
            self._log_phase(before, event)
            if event == DecisionSet(commit=True):
                self.has_decided_commit = True
                self._deadline = self.of.clock.now() + self.timeout + _GRACE
        return action

    def _log_phase(self, before: CommitState, event: Event) -> None:
        if before is not self._side.state:
            values = self.save.step, self.of.rank, before.value, self._side.state.value, type(event).__name__
            _LOG.debug("save of step %d on rank %d: %s -> %s (%s)", *values)

    def _key_of(self, name: str) -> str:
        return f"{_key_prefix(self.save)}/{name}"

    # Writing.

    def _write_part(self, write: Callable[[], Json]) -> Iterator[Event]:
        me = self.of.rank
        try:
            ack = write()
            document = {"save": _to_json(self.save), "ack": ack}
            dumps(document)
        except Exception as error:
            self.cause = error
            trace = "".join(traceback.format_exception(error))
            yield from self._report_failure(RankFault(me, type(error).__qualname__, message_of(error), trace))
            return
        if me == COORDINATOR_RANK:
            yield PartWritten(self.save, me, ack)
        else:
            self.of.put_key(self._key_of(f"ack/{me}"), document)

    def _report_failure(self, fault: RankFault) -> Iterator[Event]:
        """Report this rank's failure, and yield the events that follow from it.

        The first rank that fails waits for other failures, so that the error names all of them.
        """
        me = self.of
        if me.size > 1:
            me.put_key(self._key_of(f"failed/{me.rank}"), _fault_to_json(fault))
            first = me.claim_key(self._key_of("judge"), me.rank) == me.rank
            try:
                yield _decision_event(loads(me.store.wait(self._key_of("decision"), _SETTLE if first else _PATIENCE)))
            except KeyTimeout:
                told = me.store.list(self._key_of("failed/")) if first else {}
                yield from (PartFailed(self.save, RankFault(**loads(document))) for document in told.values())
        yield PartFailed(self.save, fault)

    # Waiting.

    def _next_events(self) -> Iterator[Event]:
        match self._side.state:
            case CommitState.COLLECTING:
                yield from self._collect_ack()
            case CommitState.WAITING:
                yield from self._wait_for_key("decision", _decision_event)
            case _:
                yield from self._wait_for_key("outcome", _outcome_event)

    def _collect_ack(self) -> Iterator[Event]:
        """Wait for the ack of one rank. If it does not arrive soon, the rank is waited for again after all others."""
        me, awaited = self.of, self._awaited
        while awaited and awaited[0] in self._side.acks:
            awaited.popleft()
        key = f"ack/{awaited[0]}" if awaited else "decision"  # all have answered, one of them with a foreign ack
        try:
            document = loads(me.store.wait(self._key_of(key), self._seconds_left(_CHECK_INTERVAL)))
            yield self._written_event(awaited.popleft(), document) if awaited else _decision_event(document)
        except KeyTimeout:
            awaited.rotate(-1)
        if me.clock.now() >= self._next_check:
            yield from self._check_ranks()
            self._next_check = me.clock.now() + _CHECK_INTERVAL

    def _check_ranks(self) -> Iterator[Event]:
        """Yield events for dead ranks, for an abort by another rank, and for a deadline that has passed."""
        me = self.of
        for rank, why in departures.read_ended(me.store).items():
            if rank not in self._side.acks:
                yield from self._late_ack(rank)
            yield RankEnded(rank, why)
        if (decision := me.store.get(self._key_of("decision"))) is not None:
            yield _decision_event(loads(decision))
        if me.clock.now() >= self._deadline:
            for rank in self._side.ranks_without_ack:
                yield from self._late_ack(rank)
            yield DeadlinePassed(self.timeout)

    def _late_ack(self, rank: int) -> Iterator[Event]:
        if (document := self.of.store.get(self._key_of(f"ack/{rank}"))) is not None:
            yield self._written_event(rank, loads(document))

    def _written_event(self, rank: int, document: Json) -> PartWritten:
        return PartWritten(SaveId(**document["save"]), rank, document["ack"])

    def _wait_for_key(self, name: str, read: Callable[[Json], Event]) -> Iterator[Event]:
        """Wait for a key that the coordinator sets. Yield its event, or events for a dead coordinator or a deadline."""
        me = self.of
        try:
            yield read(loads(me.store.wait(self._key_of(name), self._seconds_left(_MEMBER_CHECK_INTERVAL))))
            return
        except KeyTimeout:
            dead = departures.read_ended(me.store)
        if COORDINATOR_RANK in dead:
            yield RankEnded(COORDINATOR_RANK, dead[COORDINATOR_RANK])
        if me.clock.now() >= self._deadline:
            yield DeadlinePassed(self.timeout)

    def _seconds_left(self, max_seconds: float) -> float:
        return max(0.0, min(max_seconds, self._deadline - self.of.clock.now()))

    # Acting.

    def _perform_action(self, action: CommitAction) -> Event:
        match action:
            case CommitAction.CLAIM_COMMIT:
                return self._claim_decision(commit=True)
            case CommitAction.CLAIM_ABORT:
                return self._claim_decision(commit=False)
            case CommitAction.PUT_MANIFEST:
                return self._put_manifest()
            case CommitAction.CHECK_MANIFEST:
                return self._check_manifest()
            case CommitAction.CLAIM_COMMITTED:
                return self._claim_outcome(SaveVerdict.COMMITTED)
            case CommitAction.CLAIM_ABORTED:
                return self._claim_outcome(SaveVerdict.ABORTED)
            case CommitAction.CLAIM_UNKNOWN:
                return self._claim_outcome(SaveVerdict.UNKNOWN)

    def _claim_decision(self, *, commit: bool) -> Event:
        reasons = FailureReasons() if commit else self._side.reasons
        there = self.of.claim_key(self._key_of("decision"), {"commit": commit, "reasons": reasons.to_json()})
        return _decision_event(there)

    def _claim_outcome(self, verdict: SaveVerdict) -> Event:
        document = {"verdict": verdict.value, "reasons": self._side.reasons.to_json()}
        return _outcome_event(self.of.claim_key(self._key_of("outcome"), document))

    def _put_manifest(self) -> Event:
        if COORDINATOR_RANK in (dead := departures.read_ended(self.of.store)):
            return ManifestRefused(f"rank 0 was about to write the manifest, but {dead[COORDINATOR_RANK]}")
        try:
            self.publish([self._side.acks[rank] for rank in range(self.of.size)])
        except Fenced as error:
            self.cause = error
            return ManifestRefused(str(error), fenced=True)
        except Exception as error:
            self.cause = error
            return ManifestWriteFailed(f"rank 0 could not write the manifest: {text_of(error)}")
        return ManifestWritten()

    def _check_manifest(self) -> Event:
        me = self.of
        try:
            if self.is_published():
                return ManifestFound()
            if me.rank != COORDINATOR_RANK:
                try:
                    return _outcome_event(loads(me.store.wait(self._key_of("outcome"), _LAST_PUT)))
                except KeyTimeout:
                    return ManifestFound() if self.is_published() else ManifestMissing()
            return ManifestMissing()
        except Exception as error:
            return ManifestUnknown(f"rank {me.rank} cannot tell whether the manifest exists: {text_of(error)}")


def _to_json(save: SaveId) -> Json:
    return {"number": save.number, "step": save.step, "nonce": save.nonce, "digest": save.digest}


def _fault_to_json(fault: RankFault) -> Json:
    return {"rank": fault.rank, "type": fault.type, "message": fault.message, "traceback": fault.traceback}


def _decision_event(document: Json) -> DecisionSet:
    return DecisionSet(document["commit"], FailureReasons.from_json(document["reasons"]))


def _outcome_event(document: Json) -> OutcomeSet:
    return OutcomeSet(SaveVerdict(document["verdict"]), FailureReasons.from_json(document["reasons"]))
