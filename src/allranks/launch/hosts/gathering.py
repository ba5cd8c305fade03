"""Decide when all hosts of a job are there, and which ranks each of them gets. Does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from allranks.launch.hosts.limits import DEFAULT, HostLimits
from allranks.launch.hosts.messages import VERSION, Hello
from allranks.launch.placement import Placement


@dataclass(frozen=True, slots=True)
class Crew:
    """The hosts of one start: ``links`` are their connections in the order of the placement; None is host 0 itself."""

    placement: Placement
    links: tuple[int | None, ...]


@dataclass(slots=True)
class Gathering:
    """The hosts that are there for one start of a job, on host 0.

    - ``leader``: what host 0 would run. ``fewest``, ``most``: how many hosts are needed and possible, host 0 included.
    - ``since``: when the wait began, on the caller's clock in seconds.
    - ``names``: the names of the hosts, if the engine has said them.
    """

    leader: Hello
    fewest: int
    most: int
    since: float
    limits: HostLimits = DEFAULT
    names: Sequence[str] = ()
    present: dict[int, Hello] = field(default_factory=dict)
    changed: float = 0.0

    def add(self, link: int, hello: Hello, now: float) -> tuple[str, str]:
        """Add a host. Return two texts: why only this host cannot take part, and why no host can; "" if they can."""
        refusal, obstacle = "", self._obstacle(hello)
        if not obstacle and 1 + len(self.present) >= self.most:
            refusal = f"host {hello.name}: all {self.most} hosts are there already."
        if not refusal and not obstacle:
            self.present[link] = hello
            self.changed = now
        return refusal, obstacle

    def remove(self, link: int) -> None:
        """Remove a host whose connection has ended."""
        self.present.pop(link, None)

    def is_complete(self, now: float) -> bool:
        """Return whether the job can start: all hosts are there, or enough and no other came for a while."""
        count = 1 + len(self.present)
        waited = now >= max(self.since, self.changed) + self.limits.last_call
        return count == self.most or (count >= self.fewest and waited)

    @property
    def due(self) -> float:
        """The time at which ``is_complete`` or ``is_over`` can change without another host."""
        over = self.since + self.limits.joining
        if 1 + len(self.present) < self.fewest:
            return over
        return min(over, max(self.since, self.changed) + self.limits.last_call)

    def is_over(self, now: float) -> bool:
        """Return whether the wait for other hosts has taken too long."""
        return now >= self.since + self.limits.joining

    def missing(self) -> str:
        """Return a text that says which hosts are not there."""
        numbers = {hello.number for hello in self.present.values()} | {0}
        if -1 in numbers:
            return f"{1 + len(self.present)} of {self.fewest} hosts are there"
        absent = [number for number in range(self.most) if number not in numbers]
        named = [f"{number} ({self.names[number]})" if number < len(self.names) else str(number) for number in absent]
        return f"{1 + len(self.present)} of {self.most} hosts are there; missing: host {', '.join(named)}"

    def crew(self) -> Crew:
        """Return the placement: host 0 first, then by number. Those without a number get free ones as they arrive."""
        numbers = {link: hello.number for link, hello in self.present.items() if hello.number >= 0}
        free = sorted(set(range(1, self.most)) - set(numbers.values()))
        unnumbered = [link for link in self.present if link not in numbers]
        numbers |= dict(zip(unnumbered, free, strict=False))
        links = sorted(numbers, key=numbers.__getitem__)
        hellos = [self.leader, *(self.present[link] for link in links)]
        placement = Placement(tuple(one.name for one in hellos), tuple(one.ranks for one in hellos))
        return Crew(placement, (None, *links))

    def different_targets(self) -> list[str]:
        """Return a line for each host that would run another command than host 0."""
        return [
            f"host {one.name} runs `{one.target}`, and host {self.leader.name} runs `{self.leader.target}`"
            for one in self.present.values()
            if one.target != self.leader.target
        ]

    def _obstacle(self, hello: Hello) -> str:
        """Return why a host that belongs to this job cannot take part, or ""."""
        who, ours = f"host {hello.name}", f"host {self.leader.name}"
        if hello.version != VERSION:
            return (
                f"{who}: the launchers' protocol differs: expected version {VERSION} (as on {ours}), found "
                f"{hello.version}. Install the same allranks on all hosts."
            )
        for name in sorted(self.leader.facts.keys() | hello.facts.keys()):
            expected, found = self.leader.facts.get(name, "none"), hello.facts.get(name, "none")
            if expected != found:
                return (
                    f"{who}: {name} differs: expected {expected} (as on {ours}), found {found}. Give all hosts the "
                    "same options, code and packages."
                )
        taken = {other.number: other.name for other in self.present.values()} | {0: self.leader.name}
        if hello.number >= 0 and hello.number in taken:
            return (
                f"{who} says that it is host {hello.number}, and so does host {taken[hello.number]}. Give each host "
                "its own --host-rank."
            )
        if hello.number >= self.most:
            return f"{who} says that it is host {hello.number}: expected a number from 1 to {self.most - 1}."
        return ""
