"""Render the shell scripts that start a launcher on one host, and find it again: for hosts that are reached by SSH.

A job has one folder per host, ``JOBS/NAME/HOSTNAME`` (a home may be shared): ``reference`` of the job, ``pid`` of the
launcher with the time of its start, ``log``, and ``exit``, its exit code. This is all the state there is. The scripts
need a POSIX shell, Linux and GNU tail.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from allranks.engines.base import JobRow

USER_JOBS = '"${XDG_CACHE_HOME:-$HOME/.cache}/allranks/jobs"'
# Of the host: also a job that root has started is seen by its user.
HOST_JOBS = "/var/tmp/allranks-jobs"  # noqa: S108 - no secret is written there; the folder of a job is made new
_LOST = 1

_FOLDER = """\
cd {jobs}/{name}/"$(hostname)" 2>/dev/null || {{ echo "$(hostname): no job {name}" >&2; exit 2; }}
ticks() {{ sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }}
read -r p t < pid
runs() {{ [ ! -s exit ] && [ -n "$t" ] && [ "$(ticks "$p")" = "$t" ]; }}
"""
_START = """\
j={jobs}/{name}/"$(hostname)"
mkdir -p "$j" && echo {reference} > "$j/reference" && rm -f "$j/exit" && : >> "$j/log" || exit 2
cd {folder} || exit 2
{lines}
ticks() {{ sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 20; }}
started() {{ echo "$1 $(ticks "$1")" > "$j/pid"; }}
"""
_ATTACHED = """\
exec 3<&0
{command} <&3 >> "$j/log" 2>&1 &
p=$!
exec 3<&- < /dev/null
started $p
tail -n +1 -s 0.1 -f --pid=$p "$j/log"
wait $p
code=$?
echo $code > "$j/exit"
exit $code
"""
_DETACHED = """\
export j
setsid sh -c {inner} < /dev/null > /dev/null 2>&1 &
while [ ! -s "$j/pid" ] && [ ! -s "$j/exit" ]; do sleep 0.1; done
"""
_INNER = """\
ticks() {{ sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 20; }}
{command} >> "$j/log" 2>&1 &
echo "$! $(ticks $!)" > "$j/pid"
wait $!
echo $? > "$j/exit"
"""


@dataclass(frozen=True, slots=True)
class HostJob:
    """A job on hosts that are reached by SSH.

    ``jobs`` is the folder of all jobs, in the words of a shell. ``reference`` is what a client finds the job by.
    """

    name: str
    reference: str
    jobs: str

    def start(self, command: Sequence[str], *, folder: str, lines: Iterable[str], attached: bool) -> str:
        """Return the script that starts ``command`` in ``folder``, after the shell ``lines``.

        ``attached``: show its output, with the connection's standard input as its own, and exit as it does. Otherwise
        it goes on when the connection has ended.
        """
        head = _START.format(
            jobs=self.jobs,
            name=self.name,
            reference=shlex.quote(self.reference),
            folder=shlex.quote(folder),
            lines="\n".join(lines),
        )
        text = shlex.join(command)
        if attached:
            return head + _ATTACHED.format(command=text)
        return head + 'rm -f "$j/pid"\n' + _DETACHED.format(inner=shlex.quote(_INNER.format(command=text)))

    def logs(self, *, follow: bool, label: bool = False) -> str:
        """Return the script that prints the output; with ``label``, each line after the name of its host."""
        tail = 'if runs; then tail -n +1 -s 0.2 -f --pid="$p" log; else cat log; fi' if follow else "cat log"
        return self._in_folder(f'{{ {tail}; }} | sed -u "s/^/$(hostname): /"' if label else tail)

    def wait(self) -> str:
        """Return the script that waits for the end, and prints ``exit CODE``."""
        # The exit code is written just after the launcher has ended.
        waits = "while runs; do sleep 0.5; done\nfor _ in 1 2 3 4 5 6 7 8 9; do [ -s exit ] || sleep 0.5; done\n"
        return self._in_folder(waits + f'echo "exit $(cat exit 2>/dev/null || echo {_LOST})"')

    def cancel(self) -> str:
        """Return the script that sends SIGTERM to the launcher."""
        return self._in_folder('if runs; then kill -TERM "$p" 2>/dev/null || sudo -n kill -TERM "$p"; fi')

    def _in_folder(self, text: str) -> str:
        return _FOLDER.format(jobs=self.jobs, name=self.name) + text + "\n"


def list_jobs(jobs: str) -> str:
    """Return the script that prints a line ``STATE REFERENCE`` for each job of a host."""
    return f"""\
cd {jobs} 2>/dev/null || exit 0
for d in */"$(hostname)"; do
  [ -f "$d/reference" ] || continue
  state="exit $(cat "$d/exit" 2>/dev/null)"
  if [ ! -s "$d/exit" ]; then
    state=lost; read -r p t < "$d/pid"
    [ "$(sed 's/.*) //' "/proc/$p/stat" 2>/dev/null | cut -d ' ' -f 20)" = "$t" ] && state=running
  fi
  echo "$state|$(cat "$d/reference")"
done
"""


def rows(kind: str, text: str) -> list[JobRow]:
    """Return the jobs in what ``list_jobs`` has printed on any number of hosts; the first state of a job counts."""
    found: dict[str, JobRow] = {}
    for line in text.splitlines():
        state, separator, reference = line.partition("|")
        if separator and "@" in reference and " " not in reference:  # not what a login shell has printed
            name, _, hosts = reference.partition("@")
            found.setdefault(reference, JobRow(f"{kind}:{reference}", name, state, str(hosts.count(",") + 1)))
    return list(found.values())


def exit_codes(text: str) -> list[int]:
    """Return the exit codes in what ``HostJob.wait`` has printed on any number of hosts."""
    words = [line.split() for line in text.splitlines()]
    return [int(pair[1]) for pair in words if len(pair) == 2 and pair[0] == "exit" and pair[1].isdecimal()]


def common_exit_code(codes: Iterable[int]) -> int:
    """Return the exit code of a job from those of its hosts, in the order in which they ended: the first failure."""
    return next((code for code in codes if code), 0)
