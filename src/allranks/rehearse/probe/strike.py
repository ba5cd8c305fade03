"""Hit this rank with a fault after a step: kill it, send it SIGTERM, raise an error in it, or let it hang."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from typing import Any

from allranks.rehearse.probe.record import Recorder


class InjectedFault(RuntimeError):
    """The error that a rehearsal raises in a rank (``--fault raise``). The program is not to blame for it."""


class Striker:
    """Strikes once, after the step in ``settings`` (see ``Fault.settings``)."""

    def __init__(self, recorder: Recorder, settings: Mapping[str, Any]) -> None:
        self._recorder, self._settings, self._is_done = recorder, settings, False

    def __call__(self, step: int) -> None:
        """Strike if this step is the one, or a later one."""
        if self._is_done or step < self._settings["step"]:
            return
        self._is_done = True
        action = self._settings["action"]
        self._recorder.write("fault", action=action, steps=step)
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == "preempt":
            os.kill(os.getpid(), signal.SIGTERM)
        elif action == "raise":
            raise InjectedFault(f"raised by the rehearsal after step {step}")
        else:
            threading.Event().wait()
