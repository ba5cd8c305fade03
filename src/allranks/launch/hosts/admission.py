"""Let the launchers of other hosts in, on host 0: who connects must prove that it knows the job's key."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Sequence

from allranks.launch.hosts.limits import HostLimits
from allranks.launch.hosts.links import LinkEnd, Links
from allranks.launch.hosts.messages import Admitted, Challenge, Hello, Message, Ping, Plan, Refusal

# Lines about hosts that do not know the key, of one job.
MOST_STRANGERS = 8


def proof_of(key: str, nonce: str) -> str:
    """Return what shows that somebody knows the key, without telling it."""
    return hmac.new(key.encode(), nonce.encode(), "sha256").hexdigest()


def store_key_of(key: str, plan: Plan) -> str:
    """Return the secret of the ranks of one start.

    No message contains it if the launchers share a key. Otherwise it is in the plan.
    """
    return proof_of(key, f"store of {plan.job_id}") if key else plan.store_key


class Admission:
    """The hosts that are connected and belong to the job, by link: ``hellos``.

    ``wall`` returns Unix time; ``note`` prints a line. ``wait`` is why a host that comes now has to wait, and
    ``closed`` why it is refused; "" if it is not.
    """

    def __init__(
        self,
        links: Links,
        *,
        job: str,
        key: str,
        limits: HostLimits,
        wall: Callable[[], float],
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.hellos: dict[int, Hello] = {}
        self.wait = self.closed = ""
        self._links, self._job, self._key, self._limits, self._wall = links, job, key, limits, wall
        self._note, self._noted = note, set[str]()
        self._nonces: dict[int, str] = {}
        self._heard: dict[int, float] = {}

    def receive(self, link: int, message: Message | LinkEnd | None, now: float) -> None:
        """Process a message of a host that is not in a running start, or the beginning or end of a connection."""
        if link not in self._nonces:  # a stranger has to say hello in time, whatever else it sends
            self._heard[link] = now
        if message is None:
            self._drop_silent([*self._nonces], now)
            self._nonces[link] = secrets.token_hex(16)
            self._links.send(link, Challenge(self._nonces[link]))
        elif isinstance(message, LinkEnd):
            self.forget(link)
        elif isinstance(message, Hello) and link in self._nonces:
            self._greet(link, message)
        elif isinstance(message, Ping) and link in self.hellos:
            self._links.send(link, Ping(self._wall(), echo=message.sent))

    def _greet(self, link: int, hello: Hello) -> None:
        expected = proof_of(self._key, self._nonces.pop(link))
        if not hmac.compare_digest(hello.proof.encode(errors="replace"), expected.encode()):
            why = f"host {hello.name} does not have the key of this job (ALLRANKS_JOB_KEY)"
            self._note_once(f"{why}, and is refused")
            self.refuse(link, why, is_wrong_key=hello.job == self._job)
        elif hello.job != self._job:
            self.refuse(link, f"host {hello.name} belongs to job {hello.job!r}, and this launcher to {self._job!r}")
        elif self.closed:
            self.refuse(link, self.closed, is_final=True)
        else:
            self.hellos[link] = hello
            self._links.send(link, Admitted(self.wait))

    def keep(self, link: int, now: float) -> None:
        """Note that a host has been heard of elsewhere: in a start that has ended."""
        self._heard[link] = now

    def drop_silent(self, now: float) -> None:
        """Close the connections of hosts that are silent."""
        self._drop_silent([*self._heard], now)

    def _drop_silent(self, links: Sequence[int], now: float) -> None:
        for link in links:
            if now >= self._heard[link] + self._limits.silence:
                self.forget(link)

    def _note_once(self, text: str) -> None:
        """Print a line about a stranger, unless there were many."""
        if text not in self._noted and len(self._noted) < MOST_STRANGERS:
            self._noted.add(text)
            self._note(text)

    def refuse(self, link: int, why: str, *, is_final: bool = False, is_wrong_key: bool = False) -> None:
        """Tell a host why it cannot take part, and close its connection. The options are as in `Refusal`."""
        self._links.send(link, Refusal(why, is_final=is_final, is_wrong_key=is_wrong_key))
        self.forget(link)

    def forget(self, link: int) -> None:
        """Close a connection."""
        self._links.close_link(link)
        for table in (self.hellos, self._nonces, self._heard):
            table.pop(link, None)
