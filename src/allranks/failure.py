"""Define the record of a rank's failure, which the rank makes and the launcher shows when the job ends."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, dataclass

from allranks import agent

_errors = agent.load("allranks_agent_failure")
_frames = agent.load("allranks_agent_frames")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why and where one rank failed.

    - ``what``: one line ("ValueError: bad row", "killed by SIGKILL", "left early with exit code 0").
    - ``when``: Unix time in seconds on the rank's own host.
    - ``where``: the innermost line of the user's code, e.g. "train.py:88", or "".
    - ``thread``: the name of the thread, if it was not the main thread.
    - ``exit_code``: the exit code with which the job should end.
    - ``before``: the exceptions that led to this one, or were being handled when it was raised, one on each line.
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
        """Return the failure as one line: ``rank 2 (host a) failed at train.py:88: ValueError: bad row``."""
        place = f" at {self.where}" if self.where else ""
        thread = f" in thread {self.thread!r}" if self.thread else ""
        return one_line(f"rank {self.rank} (host {self.host}) failed{place}{thread}: {self.what}")


def shell_exit_code(wait_code: int) -> int:
    """Convert a code of ``os.waitstatus_to_exitcode`` (-9) to the exit code that a shell shows (137)."""
    return 128 - wait_code if wait_code < 0 else wait_code


def describe_exit(wait_code: int) -> str:
    """Return a text that says how a process ended. ``wait_code`` is from ``os.waitstatus_to_exitcode``."""
    if wait_code >= 0:
        return f"exit code {wait_code}"
    try:
        return f"killed by {signal.Signals(-wait_code).name}"
    except ValueError:
        return f"killed by signal {-wait_code}"


def failure_of(error: BaseException, *, rank: int = 0, host: str = "") -> Failure:
    """Return the failure that describes an exception. Never raises, whatever the exception's ``__str__`` does."""
    return Failure(**{**_errors.of(error), "rank": rank, "host": host})


def text_of(error: BaseException) -> str:
    """Return an exception as one printable line of bounded length: ``ValueError: bad row``. Never raises."""
    text: str = _errors.text_of(error)
    return text


def message_of(error: BaseException) -> str:
    """Return the message of an exception as printable text of bounded length. Never raises."""
    message: str = _errors.message_of(error)
    return message


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception as printable text of bounded length. Never raises."""
    trace: str = _errors.traceback_of(error)
    return trace


def visible(text: str) -> str:
    """Escape characters that a terminal would hide or act on, e.g. as ``\\x1b``. Tabs and line ends are kept.

    All output of allranks passes through this function or ``one_line``.
    """
    shown: str = _errors.visible(text)
    return shown


def one_line(text: str) -> str:
    """Return a text as one line: like ``visible``, and tabs and line ends are escaped, too."""
    shown: str = _errors.one_line(text)
    return shown


def remote_note(rank: int, traceback: str) -> str:
    """Return a note for an exception that another rank raised. It is hidden if that rank's own output is shown."""
    note: str = _frames.RemoteTraceback(f"On rank {rank}:\n{traceback.rstrip()}")
    return note
