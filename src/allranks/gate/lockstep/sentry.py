"""All groups of one rank, and the thread that answers for the one that trains where that cannot any more.

The thread lives while there is a question that this rank has not come to, or a rank has left.

Keys: ``lockstep/left/<rank>`` how far a rank was in each group when its program ended, if it had not left before with
all others; ``lockstep/any_left`` that there are any.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Sequence

from allranks.errors import StoreError
from allranks.gate.lockstep.lane import Lane
from allranks.gate.lockstep.schedule import leaving, left_early
from allranks.world.base import World
from allranks.world.codec import dumps, loads

# Between two looks at how far the training thread is, in seconds; what is seen twice counts.
_LOOK = 0.05
# How long the rank that asked has to end the job, or the training thread to come free, until this thread raises.
_GRACE = 3.0
# How long an error in a collective waits for its explanation, where one is looked for.
_MOMENT = 0.5
_LEFT, _ANY_LEFT = "lockstep/left/", "lockstep/any_left"


class Sentry:
    """The groups of ranks that this rank makes calls with."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lanes: dict[tuple[int, ...], Lane] = {}
        self._everybody = tuple(range(world.size))
        self._questions: dict[Lane, tuple[int, dict[str, int]]] = {}
        self._gone: dict[int, dict[str, int]] = {}
        self._ended: dict[str, int] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._judged = threading.Event()
        self._seen: set[object] = set()
        self.lane(self._everybody)
        world.lookout.on_ring(self._scan)
        atexit.register(self._abandon)

    def lane(self, members: Sequence[int]) -> Lane:
        """Return the lane of these ranks, of which this is one."""
        key = tuple(members)
        if key not in self.lanes:
            self.lanes[key] = Lane(self.world, self._everybody if len(key) == self.world.size else key)
        return self.lanes[key]

    def leave(self, where: str, timeout: float | None) -> None:
        """Return when all ranks leave, after as many calls in every group; **every rank must leave**."""
        elsewhere = {
            lane.name: (lane.place, lane.members) for key, lane in self.lanes.items() if key != self._everybody
        }
        self.lane(self._everybody).ask(leaving(where), timeout, elsewhere=elsewhere)
        self._ended = self._places()

    def explain(self, error: Exception) -> None:
        """Raise the Mismatch that is the cause of an error in a collective, if that is known or will be in a moment."""
        if self._questions or self._gone:
            self._judged.wait(_MOMENT)
        for lane in self._all():
            if lane.verdict is not None and error is not lane.verdict:
                lane.verdict_is_told = True
                raise lane.verdict from error

    def _abandon(self) -> None:
        """Tell the others that this rank makes no more calls, if it has made any since it last left with them."""
        places = self._places()
        if not any(places.values()) or places == self._ended:
            return
        with contextlib.suppress(StoreError):  # then the others have learnt of worse
            self.world.store.set(f"{_LEFT}{self.world.rank}", dumps(places))
            self.world.store.set(_ANY_LEFT, b"1")
            self.world.lookout.ring()

    def _places(self) -> dict[str, int]:
        return {lane.name: lane.place for lane in self.lanes.values()}

    def _scan(self) -> None:
        """Look for questions to this rank, and for ranks that have left; in the thread that hears the bell."""
        store = self.world.store
        for lane in self._all():
            number = lane.exchanges + 1
            if places := lane.question(number):
                with self._lock:
                    self._questions[lane] = number, places
        if store.get(_ANY_LEFT) is not None:
            for key, text in store.list(_LEFT).items():
                self._gone[int(key.removeprefix(_LEFT))] = loads(text)
        with self._lock:
            if self._thread is None and (self._questions or self._gone):
                self._thread = threading.Thread(target=self._watch, name="allranks-lockstep", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        while True:
            for lane, (number, places) in list(self._questions.items()):
                self._consider(lane, number, places)
            for rank, places in list(self._gone.items()):
                self._consider_gone(rank, places)
            with self._lock:
                if not (self._questions or self._gone):
                    self._thread = None
                    return
            time.sleep(_LOOK)

    def _consider(self, lane: Lane, number: int, places: dict[str, int]) -> None:
        if lane.exchanges < number:
            if not self._twice((lane, number), any(one.is_beyond(places) for one in self._all())):
                return
            lane.answer(number)
            self._see_to(lane)
        with self._lock:
            if self._questions[lane][0] == number:
                del self._questions[lane]

    def _consider_gone(self, rank: int, places: dict[str, int]) -> None:
        for lane in self._all():
            place = places.get(lane.name, 0)
            if rank in lane.members and self._twice((lane, rank), lane.place > place):
                number = place // 2 + 1
                lane.judge(left_early(self.world.rank, gone=rank, number=number, made=lane.forecast.call(number)))
                self._see_to(lane)

    def _see_to(self, lane: Lane) -> None:
        """End the job, which this rank holds up from within its call, unless somebody else does."""
        if lane.verdict is None:
            return
        self._judged.set()
        time.sleep(_GRACE)
        if not lane.verdict_is_told:
            raise lane.verdict

    def _all(self) -> list[Lane]:
        return list(self.lanes.values())

    def _twice(self, what: object, seen: bool) -> bool:
        """Say whether something is seen now, and was seen at the look before."""
        before = what in self._seen
        (self._seen.add if seen else self._seen.discard)(what)
        return seen and before
