"""Read the kernel's data on a thread and a process. On other systems than Linux the functions return "" or 0."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

# The calls in which a thread may stand for long. Which of their arguments is a descriptor or a path: "fd", "path" (the
# first), "at" (a path, the second), or nothing that tells more.
_X86 = {
    0: ("read", "fd"), 1: ("write", "fd"), 2: ("open", "path"), 3: ("close", "fd"), 4: ("stat", "path"),
    7: ("poll", ""), 23: ("select", ""), 34: ("pause", ""), 35: ("nanosleep", ""), 42: ("connect", "fd"),
    43: ("accept", "fd"), 44: ("sendto", "fd"), 45: ("recvfrom", "fd"), 46: ("sendmsg", "fd"), 47: ("recvmsg", "fd"),
    61: ("wait4", ""), 72: ("fcntl", "fd"), 73: ("flock", "fd"), 74: ("fsync", "fd"), 75: ("fdatasync", "fd"),
    202: ("futex", ""), 230: ("clock_nanosleep", ""), 232: ("epoll_wait", ""), 247: ("waitid", ""),
    257: ("openat", "at"), 262: ("stat", "at"), 270: ("select", ""), 271: ("poll", ""), 281: ("epoll_wait", ""),
}  # fmt: skip
_ARM = {
    22: ("epoll_wait", ""), 25: ("fcntl", "fd"), 32: ("flock", "fd"), 56: ("openat", "at"), 57: ("close", "fd"),
    63: ("read", "fd"), 64: ("write", "fd"), 72: ("select", ""), 73: ("poll", ""), 79: ("stat", "at"),
    82: ("fsync", "fd"), 83: ("fdatasync", "fd"), 95: ("waitid", ""), 98: ("futex", ""), 101: ("nanosleep", ""),
    115: ("clock_nanosleep", ""), 202: ("accept", "fd"), 203: ("connect", "fd"), 206: ("sendto", "fd"),
    207: ("recvfrom", "fd"), 211: ("sendmsg", "fd"), 212: ("recvmsg", "fd"), 260: ("wait4", ""),
}  # fmt: skip
_CALLS: Mapping[int, tuple[str, str]] = {"x86_64": _X86, "aarch64": _ARM}.get(platform.machine(), {})
_LONGEST_PATH = 256


def system_call(thread: int) -> str:
    """Return the system call of a thread of this process (native id), e.g. ``openat('/data/0')``; "" for none."""
    try:
        words = Path(f"/proc/self/task/{thread}/syscall").read_text().split()
    except OSError:
        return ""
    if not words or not words[0].isdigit():  # running, or stopped
        return ""
    name, kind = _CALLS.get(int(words[0]), (f"system call {words[0]}", ""))
    argument = _describe_argument(kind, [int(word, 16) for word in words[1:3]])
    return f"{name}({argument!r})" if argument else name


def _describe_argument(kind: str, words: list[int]) -> str:
    try:
        if kind == "fd":
            return os.readlink(f"/proc/self/fd/{words[0]}")
        if kind:
            return _text_at(words[kind == "at"])
    except OSError:
        return ""
    return ""


def _text_at(address: int) -> str:
    """Return the string at an address of this process; the kernel reads it, and refuses an invalid address."""
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        return os.pread(memory, _LONGEST_PATH, address).partition(b"\0")[0].decode(errors="replace")
    finally:
        os.close(memory)


def count_context_switches(thread: int) -> int:
    """Return how often a thread of this process has begun to wait. The number is constant during one wait."""
    try:
        status = Path(f"/proc/self/task/{thread}/status").read_text()
    except OSError:
        return 0
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0] or 0)


def bytes_transferred() -> int:
    """Return how many bytes this process has read and written since it started."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "wchar:")))


def process_state(pid: int) -> str:
    """Return the letter that proc(5) gives for the state of a process of this machine; ``X`` if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
