"""The commit protocol: its tables have no hole, and no order of events makes two ranks report different ends."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from allranks.checkpoint.commit_events import (
    DeadlinePassed,
    DecisionSet,
    Event,
    FailureReasons,
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
from allranks.checkpoint.commit_states import (
    COORDINATOR,
    MEMBER,
    STAY,
    CommitAction,
    CommitSide,
    CommitSignal,
    CommitState,
    Row,
    mermaid_diagram,
)

SAVE = SaveId(7, 1200, "a" * 32, "d1")
TABLES = {"coordinator": COORDINATOR, "member": MEMBER}
ENDS = {CommitState.COMMITTED, CommitState.ABORTED, CommitState.UNKNOWN}
PAGE = Path(__file__).parents[2] / "docs" / "checkpoint-protocol.md"


def fault(rank: int, message: str = "disk full") -> RankFault:
    return RankFault(rank, "OSError", message, f"Traceback of rank {rank}")


# An event of each sign, for the rank that the test is about.
SAMPLES: dict[CommitSignal, Event] = {
    CommitSignal.WRITTEN: PartWritten(SAVE, 1, "ack"),
    CommitSignal.FAILED: PartFailed(SAVE, fault(2)),
    CommitSignal.DIED: RankEnded(2, "crashed"),
    CommitSignal.COORDINATOR_DIED: RankEnded(0, "crashed"),
    CommitSignal.DEADLINE: DeadlinePassed(300),
    CommitSignal.COMMIT: DecisionSet(True),
    CommitSignal.ABORT: DecisionSet(False, FailureReasons(missing=(2,))),
    CommitSignal.PUT: ManifestWritten(),
    CommitSignal.REFUSED: ManifestRefused("fenced"),
    CommitSignal.PUT_FAILED: ManifestWriteFailed("no space"),
    CommitSignal.MANIFEST_FOUND: ManifestFound(),
    CommitSignal.MANIFEST_MISSING: ManifestMissing(),
    CommitSignal.MANIFEST_UNKNOWN: ManifestUnknown("no network"),
    CommitSignal.COMMITTED: OutcomeSet(SaveVerdict.COMMITTED),
    CommitSignal.ABORTED: OutcomeSet(SaveVerdict.ABORTED),
    CommitSignal.UNKNOWN: OutcomeSet(SaveVerdict.UNKNOWN),
}


def side(rank: int, state: CommitState | None = None, *, size: int = 3) -> CommitSide:
    one = CommitSide(SAVE, rank, size)
    one.state = state or one.state
    return one


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_state_answers_every_sign(table: dict[CommitState, Row]) -> None:
    """No hole; every state is reached, and only the three ends have no exit."""
    assert {(state, sign) for state, row in table.items() for sign in row} == set(
        itertools.product(table, CommitSignal)
    )
    exits = {state for state, row in table.items() if any(move is not STAY for move in row.values())}
    assert set(table) - exits == ENDS
    reached = {move.to for row in table.values() for move in row.values() if move is not STAY}
    assert set(table) == reached | {next(iter(table))}


@pytest.mark.parametrize(
    ("rank", "state", "sign"),
    [(rank, *pair) for rank, table in enumerate(TABLES.values()) for pair in itertools.product(table, SAMPLES)],
)
def test_a_side_does_what_the_table_says(rank: int, state: CommitState, sign: CommitSignal) -> None:
    """Of every pair of state and event; where it stays, nothing of it changes."""
    one, before = side(rank, state), side(rank, state)
    act = one.apply_event(SAMPLES[sign])
    move = list(TABLES.values())[rank][state][sign]
    if move is STAY:
        assert (act, one) == (None, before)
    else:
        assert (act, one.state) == (move.action, move.to)


def test_acks_are_a_set() -> None:
    """The last missing one, whichever it is, lets the coordinator propose; what is said twice counts once."""
    for order in itertools.permutations([*range(3), *range(3)]):
        one = side(0)
        acts = [one.apply_event(PartWritten(SAVE, rank, f"ack {rank}")) for rank in order]
        assert acts.count(CommitAction.CLAIM_COMMIT) == 1
        assert acts.index(CommitAction.CLAIM_COMMIT) == max(order.index(rank) for rank in range(3))
        assert one.acks == {rank: f"ack {rank}" for rank in range(3)}


@pytest.mark.parametrize(
    "event",
    [
        *(
            PartWritten(replace(SAVE, **{name: value}), 1, "ack")
            for name, value in {"number": 6, "step": 1100, "nonce": "b" * 32, "digest": "d2"}.items()
        ),
        PartWritten(SAVE, 2, "twice"),
        PartWritten(SAVE, 3, "no such rank"),
        PartWritten(SAVE, -1, "no such rank"),
        PartFailed(replace(SAVE, number=6), fault(1)),
        RankEnded(2, "after its ack"),
    ],
    ids=str,
)
def test_stale_double_and_foreign_words_change_nothing(event: Event) -> None:
    one = side(0)
    one.apply_event(PartWritten(SAVE, 2, "ack"))
    before = copy.deepcopy(one)
    assert one.apply_event(event) is None
    assert one == before


def test_an_abort_names_the_missing_the_dead_and_the_failed() -> None:
    """The same words on every rank, and the traceback of who failed below."""
    one = side(0, size=5)
    one.apply_event(PartWritten(SAVE, 0, "ack"))
    assert one.apply_event(PartFailed(SAVE, fault(1))) is CommitAction.CLAIM_ABORT
    assert one.apply_event(PartFailed(SAVE, fault(4))) is CommitAction.CLAIM_ABORT
    assert one.apply_event(RankEnded(3, "killed by SIGKILL")) is CommitAction.CLAIM_ABORT
    for rank in range(5):
        error = save_failed_error(SAVE, SaveVerdict.ABORTED, FailureReasons.from_json(one.reasons.to_json()), rank=rank)
        assert str(error) == (
            f"rank {rank}: save of step 1200 stopped: ranks 1, 4: OSError: disk full; rank 3: dead (killed by SIGKILL)."
            " No checkpoint was published; the training can go on."
        )
        assert (error.ranks, error.step, error.unknown) == ((1, 3, 4), 1200, False)
        assert error.__notes__ == ["On rank 1:\nTraceback of rank 1", "On rank 4:\nTraceback of rank 4"]


def test_at_the_deadline_the_missing_are_named() -> None:
    one = side(0, size=5)
    one.apply_event(PartWritten(SAVE, 2, "ack"))
    assert one.apply_event(DeadlinePassed(300)) is CommitAction.CLAIM_ABORT
    assert "ranks 0-1, 3-4: no report within 300 s" in str(
        save_failed_error(SAVE, SaveVerdict.ABORTED, one.reasons, rank=0)
    )


def test_a_coordinator_that_stands_still_leaves_the_outcome_unknown() -> None:
    """A member does not guess."""
    one = side(2)
    one.apply_event(DecisionSet(True))
    assert one.apply_event(DeadlinePassed(300)) is CommitAction.CLAIM_UNKNOWN
    error = save_failed_error(SAVE, SaveVerdict.UNKNOWN, one.reasons, rank=2)
    assert error.unknown
    assert error.ranks == (0,)
    assert "has an unknown end: rank 0: it did not write the manifest within 300 s" in str(error)


# All orders of events.


@dataclass
class Everything:
    """Three ranks, what the store and the storage hold, and what each rank has still to do."""

    sides: list[CommitSide] = field(default_factory=lambda: [side(rank) for rank in range(3)])
    todo: list[CommitAction | None] = field(default_factory=lambda: [None] * 3)
    spoke: dict[int, str] = field(default_factory=dict)
    dead: frozenset[int] = frozenset()
    decision: DecisionSet | None = None
    outcome: OutcomeSet | None = None
    manifest: bool = False

    def key(self) -> object:
        sides = tuple((one.state, frozenset(one.acks)) for one in self.sides)
        decision = self.decision and self.decision.commit
        outcome = self.outcome and self.outcome.verdict
        return sides, tuple(self.todo), frozenset(self.spoke.items()), self.dead, decision, outcome, self.manifest

    def copy(self) -> Everything:
        """Return a copy; quicker than ``copy.deepcopy``, for the exploration makes very many."""
        sides = [copy.copy(one) for one in self.sides]
        for one in sides:
            one.acks = dict(one.acks)
        return replace(self, sides=sides, todo=list(self.todo), spoke=dict(self.spoke))

    def then(self, rank: int, event: Event) -> Everything:
        after = self.copy()
        after.todo[rank] = after.sides[rank].apply_event(event)
        return after

    def successors(self) -> Iterator[Everything]:
        for rank in set(range(3)) - self.dead:
            yield self.dies(rank)
            if self.todo[rank] is not None:
                yield from self.acts(rank, self.todo[rank])
            elif self.sides[rank].verdict is None:
                yield from self.hears(rank)

    def dies(self, rank: int) -> Everything:
        after = self.copy()
        after.dead |= {rank}
        return after

    def hears(self, rank: int) -> Iterator[Everything]:
        if rank not in self.spoke:
            for word, event in (("written", PartWritten(SAVE, rank, "ack")), ("failed", PartFailed(SAVE, fault(rank)))):
                after = self.then(rank, event)
                after.spoke[rank] = word
                yield after
            return
        if rank == 0:
            yield from (
                self.then(0, PartWritten(SAVE, r, "ack")) for r, detail in self.spoke.items() if detail == "written"
            )
        yield from (self.then(rank, RankEnded(one, "crashed")) for one in self.dead)
        yield self.then(rank, DeadlinePassed(1))
        if self.decision:
            yield self.then(rank, self.decision)
        if self.outcome:
            yield self.then(rank, self.outcome)

    def acts(self, rank: int, act: CommitAction | None) -> Iterator[Everything]:
        match act:
            case CommitAction.CLAIM_COMMIT | CommitAction.CLAIM_ABORT:
                decided = self.decision or DecisionSet(act is CommitAction.CLAIM_COMMIT)
                after = self.then(rank, decided)
                after.decision = decided
                yield after
            case CommitAction.PUT_MANIFEST:
                for event, there in (
                    (ManifestWritten(), True),
                    (ManifestRefused(""), False),
                    (ManifestWriteFailed(""), False),
                    (ManifestWriteFailed(""), True),
                ):
                    after = self.then(rank, event)
                    after.manifest = there
                    yield after
            case CommitAction.CHECK_MANIFEST:
                yield self.then(rank, ManifestFound() if self.manifest else ManifestMissing())
                yield self.then(rank, ManifestUnknown(""))
            case _:
                verdict = {
                    CommitAction.CLAIM_COMMITTED: SaveVerdict.COMMITTED,
                    CommitAction.CLAIM_ABORTED: SaveVerdict.ABORTED,
                    CommitAction.CLAIM_UNKNOWN: SaveVerdict.UNKNOWN,
                }[act]
                concluded = self.outcome or OutcomeSet(verdict)
                after = self.then(rank, concluded)
                after.outcome = concluded
                yield after

    def faults(self) -> list[str]:
        """What must never be."""
        ends = {one.state for one in self.sides} & ENDS
        found = []
        if len(ends) > 1:
            found.append(f"ranks end in {ends}")
        if CommitState.COMMITTED in ends and not self.manifest:
            found.append("committed without a manifest")
        if CommitState.ABORTED in ends and self.manifest:
            found.append("aborted with a manifest")
        if self.manifest and list(self.spoke.values()) != ["written"] * 3:
            found.append("a manifest, though not all had written")
        return found


def explore(start: Everything) -> tuple[int, set[str], set[frozenset[CommitState]]]:
    """Walk all states that can be reached; return how many, what is wrong in them, and the ways in which all end."""
    seen, faults, ends, todo = {start.key()}, set(), set(), [start]
    while todo:
        one = todo.pop()
        faults.update(one.faults())
        living = [one.sides[rank] for rank in set(range(3)) - one.dead]
        if all(side.verdict for side in living):
            ends.add(frozenset(side.state for side in living))
        for after in one.successors():
            if after.key() not in seen:
                seen.add(after.key())
                todo.append(after)
    return len(seen), faults, ends


def test_no_order_of_events_makes_ranks_disagree() -> None:
    """Three ranks that write, fail, die, or stand still at any moment; puts that fail with and without a trace."""
    states, faults, ends = explore(Everything())
    assert faults == set()
    assert states > 5_000
    assert ends == {frozenset(), *(frozenset({end}) for end in ENDS)}


@pytest.mark.parametrize(
    ("state", "sign", "wrong"),
    [
        (CommitState.COMMITTING, CommitSignal.DEADLINE, "aborted with a manifest"),
        (CommitState.WAITING, CommitSignal.COORDINATOR_DIED, "aborted with a manifest"),
    ],
)
def test_the_exploration_finds_a_wrong_entry(
    state: CommitState, sign: CommitSignal, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that guesses, or that gives up without asking for the decision, is seen."""
    guess = replace(
        MEMBER[CommitState.CHECKING][CommitSignal.MANIFEST_MISSING] or pytest.fail("no move"), to=CommitState.CLOSING
    )
    monkeypatch.setitem(MEMBER[state], sign, guess)
    assert wrong in explore(Everything())[1]


def test_the_page_shows_the_tables() -> None:
    """docs/checkpoint-protocol.md is drawn from the code."""
    page = PAGE.read_text()
    for name, table in TABLES.items():
        assert f"```mermaid\n{mermaid_diagram(table)}\n```" in page, (
            f"draw the {name}'s table again: print(commit_states.mermaid_diagram(...))"
        )
