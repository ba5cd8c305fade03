"""Start to record what this rank does, before its program runs. In a rehearsal, the agent calls `begin`."""

from __future__ import annotations

import array
import json
import os
import socket
import threading
from typing import Any

from allranks.rehearse.accelerator import start as accelerator
from allranks.rehearse.probe import detect, files, hosts, lines, output, perturb, trackers
from allranks.rehearse.probe.branches import BranchRecorder
from allranks.rehearse.probe.exits import ExitRecorder
from allranks.rehearse.probe.page import SIGNAL_THREAD, Page
from allranks.rehearse.probe.record import Recorder
from allranks.rehearse.probe.strike import Striker
from allranks.rehearse.watch import listener

_kept: list[Any] = []
# Seconds: how long a rank that is to be late waits after each of its first synchronisations.
_LATE = (1.0,) * 6


def begin() -> None:
    """Read the rehearsal's settings from the environment, and attach all probes to this process."""
    settings = json.loads(os.environ["ALLRANKS_PROBE"])
    rank = int(os.environ["ALLRANKS_RANK"])
    page = Page.new()
    if settings.get("seed"):
        perturb.perturb(settings["seed"], rank)
    why = hosts.pretend(settings, rank, int(os.environ["ALLRANKS_SIZE"])) if settings.get("hosts") else ""
    recorder = Recorder(settings["folder"], rank, page)
    if settings.get("late") == rank:
        recorder.waits += _LATE
    fault = settings.get("fault")
    if fault and rank in fault["ranks"]:
        recorder.on_step.append(Striker(recorder, fault))
    _kept.append(recorder)
    accelerator.attach()
    accelerator.record(recorder.write)
    if why:
        recorder.write("shared-folders", place=0, why=why)
    _wait_for_signals(page)
    is_watched = bool(settings["socket"]) and _be_watched(settings["socket"], rank, page, recorder)
    files.attach(recorder, is_watched=is_watched)
    detect.attach(recorder, steps=settings["steps"], with_norms=settings.get("norms", False))
    trackers.attach(recorder)
    if settings.get("lines"):
        lines.attach(recorder)
    output.attach(recorder)
    BranchRecorder(recorder).attach()
    ExitRecorder(recorder).attach()


def _wait_for_signals(page: Page) -> None:
    """Start a thread that only waits.

    The watcher sends its signals to this thread, so they interrupt no call of the program.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    _kept.extend([reading, writing])
    ready = threading.Event()

    def wait() -> None:
        page.set(SIGNAL_THREAD, threading.get_native_id())
        ready.set()
        os.read(reading, 1)

    threading.Thread(target=wait, name="allranks-signals", daemon=True).start()
    ready.wait()


def _be_watched(path: str, rank: int, page: Page, recorder: Recorder) -> bool:
    """Let the launcher see the file calls of this process; return whether the kernel allows that."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.connect(path)
        message = json.dumps({"rank": rank, "process": os.getpid()}).encode()
        try:
            descriptor = listener.install()
        except OSError as error:
            recorder.write("unwatched", place=0, why=str(error))
            return False
        # From here on, until the launcher has answered, this thread must open no file.
        rights = array.array("i", [page.descriptor, descriptor])
        channel.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        channel.recv(16)
        os.close(descriptor)
    return True
