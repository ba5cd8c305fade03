"""Run ``allranks ckpt verify``: read and verify every byte of a checkpoint."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

from allranks.checkpoint import inventory, summary
from allranks.checkpoint.rehash import DamagedRange, verify_checkpoint
from allranks.cli import screen
from allranks.cli.place import Place, add_place, choose_step, parse_checkpoint, parse_place
from allranks.errors import Damaged, NewerFormat, NotThere
from allranks.failure import one_line

DESCRIPTION = """\
Read every byte of a checkpoint and compare its digests with those in the manifest.
Reports which files, bytes and leaves are damaged."""
_MOST_LEAVES = 8


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one step.

    ``manifest_fault`` says why the step's files could not be checked. ``newer``: the step needs a newer allranks.
    """

    at: Place
    step: int | None
    bytes: int
    files: int
    leaves: int
    seconds: float
    faults: tuple[DamagedRange, ...] = ()
    manifest_fault: str = ""
    newer: bool = False

    @property
    def good(self) -> bool:
        return not self.faults and not self.manifest_fault


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser)
    parser.add_argument("--all", action="store_true", help="verify every step of the run")
    parser.add_argument(
        "--threads", type=int, default=4, metavar="N", help="the threads that read and digest (default 4)"
    )


def run(arguments: argparse.Namespace) -> int:
    at = (parse_place if arguments.all else parse_checkpoint)(arguments.run, step=arguments.step, direct=True)
    if arguments.threads < 1:
        raise NotThere("--threads: expected a number of at least 1.")
    verdicts = []
    for one in _steps(at) if arguments.all else [choose_step(at)]:
        verdict = _verify(one, arguments.threads)
        verdicts.append(verdict)
        if not arguments.json:
            _show(verdict)
    if not verdicts:
        choose_step(at)
    good = all(verdict.good for verdict in verdicts)
    if arguments.json:
        document = {"run": at.storage.url, "good": good, "steps": [_document(verdict) for verdict in verdicts]}
        screen.show_json(document)
    return 0 if good else 1


def _steps(at: Place) -> list[Place]:
    """Return the steps of a run that have a manifest, also if it is a pipe, a folder or a link."""
    return [at.at(one.step) for one in inventory.survey_folders(at.storage) if one.state != "unfinished"]


def _verify(at: Place, threads: int) -> Verdict:
    began = time.monotonic()
    try:
        manifest = at.manifest()
    except (Damaged, NewerFormat) as error:
        return Verdict(at, at.step, 0, 0, 0, 0.0, manifest_fault=str(error), newer=isinstance(error, NewerFormat))
    total = summary.checkpoint_bytes(manifest)
    with screen.waiting(f"step {manifest.step}", total) as bar:
        faults = verify_checkpoint(at.storage, manifest, folder=at.folder, threads=threads, report_progress=bar.advance)
    seconds = time.monotonic() - began
    return Verdict(at, manifest.step, total, len(manifest.files), len(manifest.leaves), seconds, faults)


def _document(verdict: Verdict) -> dict[str, Any]:
    return {
        "step": verdict.step,
        "good": verdict.good,
        "bytes": verdict.bytes,
        "seconds": round(verdict.seconds, 3),
        "manifest": verdict.manifest_fault or None,
        "faults": [
            {
                "file": fault.file,
                "kind": fault.kind,
                "begin": fault.where[0],
                "end": fault.where[1],
                "leaves": list(fault.leaves),
                "what": fault.what,
            }
            for fault in verdict.faults
        ],
    }


def _show(verdict: Verdict) -> None:
    if verdict.manifest_fault:
        word = "NOT VERIFIED" if verdict.newer else "DAMAGED"
        screen.show(one_line(f"{verdict.at}: {word}: {verdict.manifest_fault}"), style="bold red")
        return
    speed = f"{screen.size(int(verdict.bytes / max(verdict.seconds, 1e-9)))}/s"
    about = (
        f"{screen.size(verdict.bytes)} in {screen.count(verdict.files, 'file')}, "
        f"{screen.count(verdict.leaves, 'leaf', 'leaves')}"
    )
    if verdict.good:
        screen.show(f"{verdict.at}: good: {about}, every byte as it was saved ({verdict.seconds:.1f} s, {speed}).")
        return
    screen.show(f"{verdict.at}: DAMAGED: {screen.count(len(verdict.faults), 'fault')} in {about}.", style="bold red")
    for fault in verdict.faults:
        screen.show(f"  {one_line(fault.file)}")
        screen.show(f"    bytes {fault.where[0]:,} to {fault.where[1]:,}: {one_line(fault.what)}")
        screen.show(f"    {one_line(_of(fault.leaves))}")


def _of(leaves: tuple[str, ...]) -> str:
    if not leaves:
        return "no leaf is there (it is the header, or after the end)"
    more = f" and {len(leaves) - _MOST_LEAVES} more" if len(leaves) > _MOST_LEAVES else ""
    return f"{'leaf' if len(leaves) == 1 else 'leaves'} {', '.join(leaves[:_MOST_LEAVES])}{more}"
