"""Run a probe in a separate process with a deadline: a broken driver or a dead file server would block the caller.

The probe prints JSON objects on stdout, one a line. ``{"doing": ...}`` says what it will do next, so that a missing
answer can be explained.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What a launcher has set is for the program, not for who looks at the machine: it would join the others.
_LAUNCHED = ("ALLRANKS_", "JAX_COORDINATOR", "JAX_PROCESS_", "JAX_NUM_PROCESSES")
_KILL_SECONDS = 0.5
# Those that have not ended: who forgets one is warned of it.
_abandoned: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class ProbeOutput:
    """The output of a probe until it ended, or until the deadline.

    ``code`` is its exit code; None at the deadline. ``doing`` is the last step that it began. ``trouble`` is the last
    line of its stderr.
    """

    lines: tuple[dict[str, Any], ...]
    code: int | None
    doing: str
    trouble: str
    seconds: float

    def last_value(self, key: str) -> Any:
        """Return the last value of ``key`` in the output; None if there is none."""
        return next((line[key] for line in reversed(self.lines) if key in line), None)


def run_probe(
    script: str, *arguments: str, timeout_seconds: float, environ: Mapping[str, str] | None = None
) -> ProbeOutput:
    """Run a script of this folder with this Python, for at most ``timeout_seconds`` seconds, and return its output."""
    # -P: the script's own folder has a jax.py, and the current one may hang.
    command = [sys.executable, "-P", str(Path(__file__).with_name(script)), *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHED)}
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        env={**inherited, **(environ or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired as late:
        return _probe_output(late.stdout or b"", late.stderr or b"", None, timeout_seconds)
    finally:
        if process.poll() is None:
            abandon_process(process)
    return _probe_output(out, err, process.returncode, time.monotonic() - began)


def _probe_output(out: bytes, err: bytes, code: int | None, seconds: float) -> ProbeOutput:
    lines = tuple(json.loads(line) for line in out.splitlines() if line.startswith(b"{") and line.endswith(b"}"))
    doing = next((line["doing"] for line in reversed(lines) if "doing" in line), "python")
    return ProbeOutput(lines, code, doing, _last_line(err), seconds)


def abandon_process(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, and wait only a moment for its end: a process that hangs in the kernel does not end."""
    process.kill()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        _abandoned.append(process)


def _last_line(err: bytes) -> str:
    lines = [line.strip() for line in err.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""
