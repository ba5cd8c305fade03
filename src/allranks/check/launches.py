"""How the project's scripts start its programs: by a launcher or as one process, on how many nodes. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping

from allranks.check.scripts import is_page, is_script

_LAUNCHER = re.compile(
    r"torchrun|torch\.distributed|torch_xla|\baccelerate\b|deepspeed|\bsrun\b|\bmpirun\b|\bmpiexec\b|horovodrun|jsrun|aprun"
    r"|#SBATCH|#PBS|#BSUB|\bsbatch\b|\bray\b|composer|fabric run|lightning run|colossalai|allranks run|nproc|dist_train"
    r"|MASTER_ADDR|WORLD_SIZE|\bRANK=|xargs|parallel|gcloud|kubectl"
)
_PLAIN = re.compile(r"\bpython[\d.]*\s+(?:-[uBOE]+\s+)*(?:(?P<path>[\w./-]+\.py)\b|-m\s+(?P<module>[\w.]+))")
_ANY = re.compile(r"(?P<path>[\w./-]+\.py)\b")
# Whoever writes one of these thinks of several machines.
_NODES = re.compile(
    rb"(?i)nnodes|num_nodes|node_rank|SLURM_NODEID|SLURM_NNODES|SLURM_JOB_NUM_NODES|SLURM_(?:JOB_)?NODELIST|hostfile"
    rb"|multi-?_?nodes?\b|#SBATCH\s+(?:-N|--nodes)|num_machines|machine_rank|submitit"
)
_JOINED = re.compile(r"\\\r?\n")
_SET = re.compile(r"(?<![\w$-])(?P<name>\w+)=[\"']?(?P<value>[^\s\"';]*\.py)\b")
_USED = re.compile(r"[\"']?\$\{?(?P<name>\w+)\}?[\"']?")
_KNOWN_START = re.compile(r"^(?:\$\{?\w+\}?/)+")


def started_alone(sources: Mapping[str, bytes]) -> frozenset[str]:
    """Return the programs that scripts start, and always as ``python train.py``, and no page by a launcher.

    A script that names a launcher, or the variables of one, anywhere says nothing of being alone: whatever it starts
    may be one of several. Of a program that no script starts nothing is known.
    """
    programs = frozenset(path for path in sources if path.endswith(".py"))
    alone: set[str] = set()
    several: set[str] = set()
    for path, raw in sources.items():
        if is_script(path) or is_page(path):
            commands = _of_page if is_page(path) else _of_script
            for name, by_itself in commands(_JOINED.sub(" ", raw.decode("utf-8", "replace"))):
                (alone if by_itself else several).update(_meant(name, path, programs))
    return frozenset(alone - several)


def on_several_nodes(sources: Mapping[str, bytes]) -> bool:
    """Return whether anything in a project speaks of several nodes. Where nothing does, the local rank is the rank."""
    return any(map(_NODES.search, sources.values()))


def _of_script(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the programs that a script names, and whether each is started there as one process."""
    launches = _LAUNCHER.search(text) is not None
    values: dict[str, list[str]] = {}
    for named in _SET.finditer(text):
        values.setdefault(named["name"], []).append(_KNOWN_START.sub("", named["value"]))
    for line in text.splitlines():
        for command in _filled(line.partition("#")[0], values):
            if not launches and (match := _PLAIN.search(command)) is not None:
                yield _program(match), True
            elif _SET.search(command) is None:
                yield from ((found["path"], False) for found in _ANY.finditer(command))


def _filled(line: str, values: Mapping[str, list[str]]) -> list[str]:
    """Return a line as often as a variable in it may stand for a program, each time with another one."""
    for match in _USED.finditer(line):
        if programs := values.get(match["name"]):
            return [line[: match.start()] + program + line[match.end() :] for program in programs]
    return [line]


def _of_page(text: str) -> Iterator[tuple[str, bool]]:
    """Yield what stands in one line with a launcher. What a page starts plainly may be its short example."""
    for line in filter(_LAUNCHER.search, text.splitlines()):
        yield from ((found["path"], False) for found in _ANY.finditer(line))


def _program(match: re.Match[str]) -> str:
    return match["path"] or match["module"].replace(".", "/") + ".py"


def _meant(name: str, script: str, programs: Collection[str]) -> set[str]:
    """Return the programs that a path in a script may be: from its own folder, from the root, or from elsewhere."""
    plain = posixpath.normpath(name)
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(script), name))
    for path in (beside, plain):
        if path in programs:
            return {path}
    tail = "/" + plain.lstrip("./")
    return {path for path in programs if path.endswith(tail)}
