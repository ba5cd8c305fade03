"""What a rank that failed leaves behind: one record, made where it happened, shown where the job ends."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, dataclass

from allranks import agent

_errors = agent.load("allranks_agent_failure")
_frames = agent.load("allranks_agent_frames")


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of one rank.

    ``what`` is one line ("ValueError: bad row", "killed by SIGKILL", "left early with exit code 0"); ``when`` is Unix
    time in seconds on the rank's own host; ``where`` is "train.py:88" (the innermost line of the user's code) or "";
    ``thread`` names the thread where it was not the main one; ``exit_code`` is what the job should end with;
    ``before`` are the exceptions because of which, or while handling which, the rank failed, one a line.
    """

    rank: int
    host: str
    what: str
    when: float
    where: str = ""
    traceback: str = ""
    thread: str = ""
    exit_code: int = 1
    before: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Failure:
        return cls(**json.loads(text))

    def headline(self) -> str:
        """One line: ``rank 2 (host a) failed at train.py:88: ValueError: bad row``."""
        place = f" at {self.where}" if self.where else ""
        thread = f" in thread {self.thread!r}" if self.thread else ""
        return f"rank {self.rank} (host {self.host}) failed{place}{thread}: {self.what}"


def shell_exit_code(wait_code: int) -> int:
    """Return a process's exit code as a shell shows it: ``os.waitstatus_to_exitcode`` gives -9, a shell 137."""
    return 128 - wait_code if wait_code < 0 else wait_code


def describe_exit(wait_code: int) -> str:
    """Return how a process ended, in words, from ``os.waitstatus_to_exitcode``."""
    if wait_code >= 0:
        return f"exit code {wait_code}"
    try:
        return f"killed by {signal.Signals(-wait_code).name}"
    except ValueError:
        return f"killed by signal {-wait_code}"


def failure_of(error: BaseException, *, rank: int = 0, host: str = "") -> Failure:
    """Return the failure that an exception is. Never raises, whatever its ``__str__`` does."""
    return Failure(**{**_errors.of(error), "rank": rank, "host": host})


def text_of(error: BaseException) -> str:
    """Return an exception as one printable line of bounded length: ``ValueError: bad row``. Never raises."""
    text: str = _errors.text_of(error)
    return text


def message_of(error: BaseException) -> str:
    """Return what an exception says, as printable text of bounded length. Never raises."""
    message: str = _errors.message_of(error)
    return message


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception as printable text of bounded length. Never raises."""
    trace: str = _errors.traceback_of(error)
    return trace


def remote_note(rank: int, traceback: str) -> str:
    """Return a note for an exception that another rank raised; not shown where that rank's output is."""
    note: str = _frames.RemoteTraceback(f"On rank {rank}:\n{traceback.rstrip()}")
    return note
