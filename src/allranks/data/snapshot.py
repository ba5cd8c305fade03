"""Define the state of a loader, which is stored in checkpoints, and parse it when a loader resumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from allranks.data.index import DECODE_ERRORS
from allranks.data.ledger import SampleSum
from allranks.data.plan import IndexLayout, divisors
from allranks.errors import DataError, Mismatch
from allranks.world.base import World
from allranks.world.claims import by_claim, mismatch_of_ranks

_MOST = 1 << 40
_WHAT = "Give what loader.state() returned and a checkpoint brought back."


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Snapshot(Mapping[str, Any]):
    """The state of one rank's loader at a step. It is cheap, and does not change when the loader continues.

    It is a mapping, for inspection. ``gathered()`` joins the states of all ranks for a checkpoint; the Checkpointer
    calls it when it saves.

    - ``depth``: how many samples of each stream were taken.
    - ``counted``: the sum of the samples of this rank in this job.
    - ``seen``: the sum of all ranks before this job.
    - ``carry``: for each of this rank's streams, the state of the packing, as JSON; None without packing.
    """

    world: World
    epoch: int
    depth: int
    facts: Mapping[str, str | int]
    counted: SampleSum
    seen: SampleSum
    carry: Mapping[int, Any] | None = None

    def gathered(self) -> dict[str, Any]:
        """Return the state of all ranks as JSON values, the same on all ranks. **Every rank must call.** One exchange.

        Raises Mismatch on every rank if the ranks are at different positions, or have different carries for one stream.
        """
        carry = None if self.carry is None else sorted(self.carry.items())
        report = [self.epoch, self.depth, dict(self.facts), list(self.seen), list(self.counted), carry]
        document: dict[str, Any] = self.world.exchange("data", "state", report, decide=_merge_states)
        return document

    def alike(self) -> dict[str, Any]:
        """Return, as JSON values, what is equal on all ranks at one position; ``allranks.verify`` compares it."""
        return _state_document(self.epoch, self.depth, self.facts, self.seen, None)

    def _local_state(self) -> dict[str, Any]:
        one = self.world.size == 1
        carry = None if self.carry is None else sorted(self.carry.items())
        document = _state_document(self.epoch, self.depth, self.facts, self.seen.plus(self.counted), carry)
        return document if one else {**document, "part": [self.world.rank, self.world.size]}

    def __getitem__(self, name: str) -> Any:
        return self._local_state()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._local_state())

    def __len__(self) -> int:
        return len(self._local_state())

    def __repr__(self) -> str:
        return f"Snapshot({self._local_state()})"


def _state_document(epoch: int, depth: int, facts: Mapping[str, Any], seen: SampleSum, carry: Any) -> dict[str, Any]:
    of = dict(facts)
    document = {"epoch": epoch, "depth": depth, "plan": of.pop("plan"), "of": of}
    document["seen"] = [seen.samples, f"{seen.mixed:016x}", seen.bad]
    return document if carry is None else {**document, "carry": [[stream, held] for stream, held in carry]}


def _merge_states(values: Sequence[Any]) -> dict[str, Any]:
    places = by_claim(
        (rank, f"epoch {epoch}, depth {depth}, plan {of['plan']}, after {seen[0]} samples ({seen[1]:016x})")
        for rank, (epoch, depth, of, seen, _, _) in enumerate(values)
    )
    epoch, depth, of, seen, _, first = values[0]
    if len(places) > 1:
        remedy = "Did a rank take a batch more, or restore another checkpoint?"
        raise mismatch_of_ranks("the loaders are at different positions of the data", places, remedy=remedy)
    total = SampleSum(*seen)
    carries: dict[int, tuple[int, Any]] = {}
    for rank, (_, _, _, _, taken, carry) in enumerate(values):
        total = total.plus(SampleSum(*taken))
        for stream, held in carry or ():
            other, its = carries.setdefault(stream, (rank, held))
            if its != held:
                raise Mismatch(
                    f"ranks {other} and {rank} read stream {stream} together, but packed its samples differently.",
                    ranks=(other, rank),
                    remedy="Use the same tokenizer and the same map functions on both ranks.",
                )
    streams = None if first is None else [(stream, held) for stream, (_, held) in sorted(carries.items())]
    return _state_document(epoch, depth, of, total, streams)


@dataclass(frozen=True, slots=True)
class ResumePosition:
    """The position at which to resume: ``step`` of ``epoch``, ``depth`` samples into every stream (default: 0).

    ``seen`` and ``carry`` (by stream; empty without packing) are those of all ranks.
    """

    epoch: int = 0
    step: int = 0
    depth: int = 0
    seen: SampleSum = field(default_factory=SampleSum)
    carry: Mapping[int, Any] = field(default_factory=dict)

    @property
    def as_facts(self) -> dict[str, int]:
        """The epoch and depth that ranks compare before they begin."""
        return {"epoch": self.epoch, "depth": self.depth}

    @classmethod
    def from_optional_state(
        cls, state: object | None, facts: Mapping[str, str | int], layout: IndexLayout, *, rank: int
    ) -> ResumePosition:
        """Return the position in a state; without a state, the beginning."""
        return cls() if state is None else cls.from_state(state, facts, layout, rank=rank)

    @classmethod
    def from_state(
        cls, state: object, facts: Mapping[str, str | int], layout: IndexLayout, *, rank: int
    ) -> ResumePosition:
        """Return the position in a state. Any single rank may call it.

        Raises DataError for a value that is not a state, for the state of a single rank, and for a state of other data
        (the message names what differs). Also if the depth is in the middle of a global batch of this layout.
        """
        who = f"rank {rank}: resuming the data"
        epoch, depth, seen, carry = _parse_state(state, who)
        assert isinstance(state, Mapping)
        _refuse_others({"plan": state["plan"], **settings_of_state(state)}, facts, who)
        many = layout.depth_of_step
        if depth % many:
            fits = ", ".join(str(layout.streams * d) for d in divisors(depth)[:40])
            raise DataError(
                f"{who}: {depth} samples of every stream were taken, which is in the middle of a global batch of "
                f"{layout.global_batch} rows: such a batch takes {many} samples of each stream.",
                remedy=f"Continue with a global batch of {fits}.",
            )
        return cls(epoch, depth // many, depth, seen, carry)


def settings_of_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a saved state that decide the order of the data; before 0.1, streams had another name."""
    return {"streams" if name == "lanes" else name: value for name, value in dict(state["of"]).items()}


def single_rank_error(rank: int) -> DataError:
    """Return the error for a rank without a world from which a state is requested."""
    return DataError(
        f"rank {rank} reads alone, and knows nothing of what the others take.",
        remedy="Give the loader a world instead of a rank and a size.",
    )


def _parse_state(state: object, who: str) -> tuple[int, int, SampleSum, dict[int, Any]]:
    if not isinstance(state, Mapping):
        raise DataError(f"{who}: expected the state of a loader, found a {type(state).__name__}.", remedy=_WHAT)
    try:
        if "part" in state:
            rank, size = state["part"]
            raise DataError(
                f"{who}: expected the state of all ranks, found that of rank {rank} of {size}.",
                remedy="Save state.gathered(), which every rank must call, or let allranks.Checkpointer do it.",
            )
        samples, mixed, bad = state["seen"]
        seen = SampleSum(int(samples), int(mixed, 16), int(bad))
        carry = {int(stream): held for stream, held in state.get("carry", ())}
        epoch, depth = int(state["epoch"]), int(state["depth"])
        _, _ = state["plan"], settings_of_state(state)
    except DECODE_ERRORS as error:
        raise DataError(
            f"{who}: the value is not the state of a loader ({type(error).__name__}: {error}).", remedy=_WHAT
        ) from error
    if not (0 <= epoch < _MOST and 0 <= depth < _MOST):
        raise DataError(
            f"{who}: epoch {epoch}, depth {depth}: expected numbers of at least 0, and below {_MOST:,}.", remedy=_WHAT
        )
    if min(seen.samples, seen.bad, seen.mixed) < 0 or max(seen) >> 64:
        raise DataError(f"{who}: seen {state['seen']!r:.80}: expected the sum of samples.", remedy=_WHAT)
    return epoch, depth, seen, carry


def _refuse_others(saved: Mapping[str, Any], here: Mapping[str, Any], who: str) -> None:
    names = [name for name in dict.fromkeys([*here, *saved]) if repr(saved.get(name)) != repr(here.get(name))]
    if not names:
        return
    differences = "; ".join(f"{name}: {saved.get(name)} in the state, {here.get(name)} here" for name in names)
    raise DataError(
        f"{who}: the state belongs to other data, or to another order: {differences}.",
        remedy="Build the data set as before, from the same files; or begin without the state.",
    )
