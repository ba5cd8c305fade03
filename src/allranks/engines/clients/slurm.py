"""Start and follow jobs of Slurm by its own programs: sbatch, squeue, scontrol, sacct and scancel."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from allranks.engines.base import EngineFailed, JobRow, Submission
from allranks.engines.clients import programs, tail
from allranks.engines.kinds import slurm

_POLL = 1.0
_INSTALL = "Run this on a login node of the cluster, where Slurm's commands are installed."


class Client:
    """The client of one Slurm cluster. ``launcher`` starts allranks on its hosts."""

    def __init__(self, profile: slurm.Profile, launcher: tuple[str, ...]) -> None:
        self._profile, self._launcher = profile, launcher

    def preview(self, job: Submission) -> str:
        return "sbatch --parsable <<'END'\n" + slurm.script(job, self._profile, launcher=self._launcher) + "END"

    def submit(self, job: Submission, report: Callable[[str], None]) -> None:
        folder = Path(job.folder, self._profile.output).parent
        if "%" not in str(folder):
            folder.mkdir(parents=True, exist_ok=True)  # without it, Slurm ends the job without a word
        text = slurm.script(job, self._profile, launcher=self._launcher)
        try:
            printed = _output(["sbatch", "--parsable"], given=text)
        except EngineFailed as error:
            raise EngineFailed(str(error), remedy=self._partitions()) from error
        report(printed.strip().partition(";")[0])

    def _partitions(self) -> str:
        """Return which partitions there are, if Slurm names them."""
        try:
            found = ", ".join(sorted(set(_output(["sinfo", "--noheader", "--format=%R"]).split())))
        except EngineFailed:
            return ""
        return f"There are the partitions {found}; the profile has {self._profile.partition!r}."

    def jobs(self) -> list[JobRow]:
        argv = ["squeue", "--me", "--states=all", "--noheader", f"--format={slurm.JOB_FORMAT}"]
        return slurm.rows(_output(argv))

    def logs(self, reference: str, *, follow: bool) -> Iterator[str]:
        path = Path(self._fields(reference).get("StdOut", ""))
        yield from tail.lines(path, follow=follow, has_ended=lambda: self._exit_code(reference) is not None)

    def wait(self, reference: str) -> int:
        while (code := self._exit_code(reference)) is None:
            time.sleep(_POLL)
        return code

    def cancel(self, reference: str) -> None:
        self._fields(reference)  # scancel says nothing of a job that does not exist
        _output(["scancel", reference])

    def _exit_code(self, reference: str) -> int | None:
        return slurm.exit_code(self._fields(reference))

    def _fields(self, reference: str) -> dict[str, str]:
        """Return the fields of a job: from the controller, or from the accounting if the controller has forgotten."""
        if not reference.isdecimal():
            raise EngineFailed(f"slurm: {reference!r} is no job: expected a number, as in slurm:4711.")
        try:
            return slurm.fields(_output(["scontrol", "show", "job", reference]))
        except EngineFailed as error:
            if accounted := _accounted(reference):
                return accounted
            raise EngineFailed(
                str(error),
                remedy="If Slurm answers here (scontrol ping), it has forgotten the job, some minutes after its end "
                f"(MinJobAge), and its accounting (sacct) has no job {reference}.",
            ) from error


def _accounted(reference: str) -> dict[str, str] | None:
    """Return the state and the exit code of a job in Slurm's accounting; None without accounting."""
    argv = ["sacct", "-X", "-n", "-P", "--format=State,ExitCode", f"--jobs={reference}"]
    try:
        state, _, code = _output(argv).partition("\n")[0].partition("|")
    except EngineFailed:
        return None
    return {"JobState": state.split()[0], "ExitCode": code} if state else None


def _output(argv: list[str], given: str = "") -> str:
    return programs.output(argv, kind="slurm", install=_INSTALL, given=given)
