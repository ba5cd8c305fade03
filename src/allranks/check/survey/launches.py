"""How the project's scripts start its programs: by a launcher or as one process, on how many nodes. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from allranks.check.sources.scripts import is_page, is_script, is_text
from allranks.check.sources.source import is_test

_LAUNCHER = re.compile(
    r"torchrun|torch\.distributed|torch_xla|\baccelerate\b|deepspeed|\bsrun\b|\bmpirun\b|\bmpiexec\b|horovodrun|jsrun|aprun"
    r"|#SBATCH|#PBS|#BSUB|\bsbatch\b|\bray\b|composer|fabric run|lightning run|colossalai|allranks run|nproc|dist_train"
    r"|(?:spawn|launch)\w*\.py|MASTER_ADDR|WORLD_SIZE|\bRANK=|xargs|parallel|gcloud|kubectl"
)
_PLAIN = re.compile(r"\bpython[\d.]*\s+(?:-[uBOE]+\s+)*(?:(?P<path>[\w./-]+\.py)\b|-m\s+(?P<module>[\w.]+))")
_ANY = re.compile(r"(?P<path>[\w./-]+\.py)\b")
# What starts several processes of the program that comes next, unless it is told that one is enough.
_TOGETHER = re.compile(
    r"(?:\btorchrun|-m\s+torch\.distributed\.(?:launch|run)|\baccelerate\s+launch|\bdeepspeed|\bhorovodrun|\bmpirun|\bmpiexec"
    r"|\bcomposer|\bcolossalai\s+run|\bpython\d?\s+\S*(?:spawn|launch)\w*\.py)\s"
    r"(?P<options>[^;&|`]*?)(?:(?<=\s)-m\s+(?P<module>[\w.]+)|(?P<path>[\w./-]+\.py)\b)"
)
_BUT_ONE = re.compile(
    r"--?(?:nproc[-_]per[-_]node|num[-_]processes|np|n|num[-_]gpus|nproc|world[-_]size|num[-_]proc)[=\s]+[\"']?1(?![\d.])"
)
_MORE_NODES = re.compile(r"--?(?:nnodes|num[-_]machines|num[-_]nodes|N)[=\s]+(?![\"']?1(?![\d.:]))")
_ONE_NODE = re.compile(r"--?(?:nnodes|num[-_]machines|num[-_]nodes)[=\s]+[\"']?1(?![\d.:])")
_NUMBERED = re.compile(r"--?(?:node|machine)[-_]rank[=\s]+(?![\"']?0(?![\d.]))")
# A job of SLURM, or a step of one, on several nodes.
_JOB = re.compile(r"#SBATCH\s+(?:-N|--nodes)[=\s]*(?!1(?![\d-]))")
_STEP = re.compile(r"\bsrun\b[^\n|;&]*?\s(?:-N|--nodes)[=\s]*(?!1(?![\d-]))")
_CALLED = re.compile(r"(?i)multi[-_]?node")
# Whoever writes one of these thinks of several machines, unless he says that there is one, or that this is the first.
_NODES = re.compile(
    rb"(?i)(?:nnodes|num_nodes|num_machines|SLURM_JOB_NUM_NODES)(?!(?:\s*[=:]|[ \t])\s*[\"']?1(?![\d.:]))"
    rb"|(?:node_rank|machine_rank)(?!(?:\s*[=:]|[ \t])\s*[\"']?0(?![\d.]))"
    rb"|(?:#SBATCH|\bsrun\b[^\n|;&]*?)\s(?:(?-i:-N)|--nodes)(?![=\s]*1(?![\d-]))"
    rb"|SLURM_NODEID|SLURM_(?:JOB_)?NODELIST|hostfile|multi-?_?nodes?\b|submitit"
)
# Whoever writes one of these in a script or on a page starts processes himself. What SLURM or PBS runs as a job is one.
_OUTSIDE = re.compile(
    rb"torchrun|torch\.distributed|\bsrun\b|#BSUB|\bmpirun\b|\bmpiexec\b|horovodrun|\bjsrun\b"
    rb"|accelerate launch|\bdeepspeed\s+(?:--|\w+\.py)|MASTER_ADDR|WORLD_SIZE"
)
# What joins processes, starts them on this host, and has them meet there; and what lets them be on others too.
_JOINS, _SPAWNS = re.compile(rb"init_process_group\("), re.compile(rb"\b(?:spawn|start_processes)\(")
_LOOPBACK = re.compile(rb"127\.0\.0\.1|localhost")
_ELSEWHERE = re.compile(rb"(?i)\bnodes?\b|node_|_node|env://|(?:\.get\(|getenv\()\s*[\"']MASTER_ADDR|argparse")
_SETS_HERE = re.compile(rb"environ\[[\"']MASTER_ADDR[\"']\]\s*=\s*[\"'](?:127\.0\.0\.1|localhost)[\"']")
_JOINS_HERE = re.compile(rb"init_process_group\((?:[^()]|\([^()]*\))*\btcp://(?:127\.0\.0\.1|localhost)\b")
# A program that gives commands to a shell starts others as a script does.
_COMMANDS = re.compile(rb"\bos\.system\(|\bsubprocess\.\w+\(")
_JOINED = re.compile(r"\\\r?\n")
_SET = re.compile(r"(?<![\w$-])(?P<name>\w+)=[\"']?(?P<value>[^\s\"';]*\.py)\b")
_USED = re.compile(r"[\"']?\$\{?(?P<name>\w+)\}?[\"']?")
_NUMBER = re.compile(r"^[ \t]*(?:export[ \t]+)?(\w+)=[\"']?(\d+)[\"']?[ \t]*(?:#.*)?$", re.MULTILINE)
_KNOWN_START = re.compile(r"^(?:\$\{?\w+\}?/)+")
_OPTION = re.compile(r"(?<![\w-])--?([A-Za-z][\w-]*)")


class Started(NamedTuple):
    """The programs of a project by how its scripts and pages start them.

    ``alone``: scripts start them, always as ``python train.py``, or by a launcher once (``--nproc_per_node 1``), and no
    page starts several; a Python file that gives such a command to a shell is a script too. Of what it starts plainly,
    a script that names a launcher, or the variables of one, anywhere says nothing: it may be one of several.
    ``together``: a script or a page starts several processes of them, by a launcher. Of a program that no script starts
    nothing is known.
    """

    alone: frozenset[str]
    together: frozenset[str]


def started(sources: Mapping[str, bytes]) -> Started:
    """Return what the scripts and pages of a project say of its programs."""
    programs = frozenset(path for path in sources if path.endswith(".py"))
    alone, several, together = set[str](), set[str](), set[str]()
    for path, raw in sources.items():
        if is_script(path) or is_page(path):
            text = _JOINED.sub(" ", raw.decode("utf-8", "replace"))
            for name, by_itself in (_of_page if is_page(path) else _of_script)(text):
                (alone if by_itself else several).update(_meant(name, path, programs))
            for name in _together(text):
                together |= _meant(name, path, programs)
        elif path.endswith(".py") and _COMMANDS.search(raw) and not is_test(path):
            for name, once in _launched(_JOINED.sub(" ", raw.decode("utf-8", "replace"))):
                for found in (alone,) if once else (several, together):
                    found |= _meant(name, path, programs)
    return Started(frozenset(alone - several - together), frozenset(together))


def modes_alone(sources: Mapping[str, bytes]) -> Mapping[str, frozenset[str]]:
    """Return the options, by program, that scripts give where they start it as one process, and that nobody gives who
    starts several: ``python train.py --eval`` beside ``torchrun train.py``. Of one that nobody starts so, nothing."""
    programs = frozenset(path for path in sources if path.endswith(".py"))
    given: dict[bool, dict[str, set[str]]] = {True: {}, False: {}}
    for path, raw in sources.items():
        if is_script(path) or is_page(path):
            text = _counted(_JOINED.sub(" ", raw.decode("utf-8", "replace")))
            for name, options, by_itself in _commands(text, plain=is_script(path) and not _LAUNCHER.search(text)):
                for program in _meant(name, path, programs):
                    given[by_itself].setdefault(program, set()).update(options)
    both = given[True].keys() & given[False].keys()
    return {program: frozenset(given[True][program] - given[False][program]) for program in both}


def _commands(text: str, *, plain: bool) -> Iterator[tuple[str, list[str], bool]]:
    """Yield the programs that a script or a page starts, the options that they are given, and whether each is one
    process; what is started plainly only if that is asked for."""
    values = _values(text)
    for line in text.splitlines():
        for command in (part for filled in _filled(line, values) for part in re.split(r"[;&|`]", filled)):
            for match in _TOGETHER.finditer(command):
                yield _program(match), _options(command[match.end() :]), _is_once(match["options"])
            by_hand = _PLAIN.search(command.partition("#")[0]) if plain else None
            if by_hand is not None:
                yield _program(by_hand), _options(command[by_hand.end() :]), True


def _options(text: str) -> list[str]:
    return [name.replace("-", "_") for name in _OPTION.findall(text)]


def on_several_nodes(sources: Mapping[str, bytes]) -> bool:
    """Return whether anything in a project speaks of several nodes. Where nothing does, the local rank is the rank."""
    return any(map(_NODES.search, sources.values()))


def across_nodes(sources: Mapping[str, bytes]) -> frozenset[str]:
    """Return the programs that a script or a page of a project starts on several nodes, or that are called so."""
    programs = frozenset(path for path in sources if path.endswith(".py"))
    found = {path for path in programs if _CALLED.search(posixpath.basename(path))}
    for path, raw in sources.items():
        text = _JOINED.sub(" ", raw.decode("utf-8", "replace")) if is_text(path) else ""
        job = is_script(path) and _JOB.search(text) is not None
        if job or _STEP.search(text) or _MORE_NODES.search(text):
            values = _values(text)
            for line in text.splitlines():
                for command in _filled(line if is_page(path) else line.partition("#")[0], values):
                    found.update(*(_meant(name, path, programs) for name in _on_nodes(command, job=job)))
    return frozenset(found)


def on_one_node(sources: Mapping[str, bytes]) -> frozenset[str]:
    """Return the programs that scripts and pages start, and say each time that there is one node (``--nnodes=1``)."""
    programs = frozenset(path for path in sources if path.endswith(".py"))
    said: dict[bool, set[str]] = {True: set(), False: set()}
    for path, raw in sources.items():
        text = _JOINED.sub(" ", raw.decode("utf-8", "replace")) if is_text(path) else ""
        values = _values(text) if _ONE_NODE.search(text) or _TOGETHER.search(text) else {}
        for line in filter(_TOGETHER.search, text.splitlines()):
            for match in (match for command in _filled(line, values) for match in _TOGETHER.finditer(command)):
                one = _ONE_NODE.search(match["options"]) and not _NUMBERED.search(match["options"])
                said[bool(one)] |= _meant(_program(match), path, programs)
    return frozenset(said[True] - said[False])


def _on_nodes(command: str, *, job: bool) -> Iterator[str]:
    """Yield the programs that a command starts on several nodes; all of them, in a ``job`` that has several."""
    for part in re.split(r"[;&|]", command):
        if job or _STEP.search(part):
            yield from (match["path"] for match in _ANY.finditer(part))
        for match in _TOGETHER.finditer(part):
            if _MORE_NODES.search(match["options"]):
                yield _program(match)


def by_launchers(sources: Mapping[str, bytes]) -> bool:
    """Return whether a script or a page of a project tells of a launcher that starts several processes."""
    return any(_OUTSIDE.search(raw) for path, raw in sources.items() if is_text(path))


def on_one_host(sources: Mapping[str, bytes]) -> bool:
    """Return whether each file that joins processes has them meet on this host and on no other: it says so where it
    does, or starts them too."""
    code = [raw for path, raw in sources.items() if path.endswith(".py")]
    joining, spawned = [raw for raw in code if _JOINS.search(raw)], any(map(_SPAWNS.search, code))
    return bool(joining) and all(_joins_here(raw) or (spawned and _meets_here(raw)) for raw in joining)


def _joins_here(raw: bytes) -> bool:
    if len(_JOINS_HERE.findall(raw)) == len(_JOINS.findall(raw)):
        return True
    return bool(_SPAWNS.search(raw) and _LOOPBACK.search(raw) and not _ELSEWHERE.search(raw))


def _meets_here(raw: bytes) -> bool:
    """It says that this host is where they meet, and asks nobody."""
    said = len(_SETS_HERE.findall(raw))
    return said > 0 and said == raw.count(b"MASTER_ADDR") and not _ELSEWHERE.search(raw)


def _launched(command: str) -> Iterator[tuple[str, bool]]:
    """Yield the programs behind the launchers of a command, and whether each is started once, on one node."""
    for match in _TOGETHER.finditer(command):
        yield _program(match), _is_once(match["options"])


def _is_once(options: str) -> bool:
    """Whether a launcher that is given these options starts one process, on one node."""
    return _BUT_ONE.search(options) is not None and _MORE_NODES.search(options) is None


def _by_itself(command: str) -> str:
    """Return the program that a launcher starts once, on one node; '' if there is none."""
    return next((program for program, once in _launched(command) if once), "")


def _of_script(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the programs that a script names, and whether each is started there as one process."""
    launches = _LAUNCHER.search(text) is not None
    text = _counted(text)
    values = _values(text)
    for line in text.splitlines():
        for command in _filled(line.partition("#")[0], values):
            if not launches and (match := _PLAIN.search(command)) is not None:
                yield _program(match), True
            elif program := _by_itself(command):
                yield program, True
            elif _SET.search(command) is None:
                yield from ((found["path"], False) for found in _ANY.finditer(command))


def _together(text: str) -> Iterator[str]:
    """Yield the programs that a script or a page names behind a launcher."""
    if _LAUNCHER.search(text) is None:
        return
    text = _counted(text)
    values = _values(text)
    for line in filter(_LAUNCHER.search, text.splitlines()):
        for command in _filled(line, values):
            yield from (program for program, once in _launched(command) if not once)


def _counted(text: str) -> str:
    """Return a script with the numbers in the place of the variables that are set to one, and nowhere else."""
    found = dict(_NUMBER.findall(text))
    sure = {name for name in found if len(re.findall(rf"(?<![\w$-]){name}=", text)) == 1}
    return _USED.sub(lambda used: found[used["name"]] if used["name"] in sure else used[0], text)


def _values(text: str) -> dict[str, list[str]]:
    """Return the programs that variables of a script stand for."""
    values: dict[str, list[str]] = {}
    for named in _SET.finditer(text):
        values.setdefault(named["name"], []).append(_KNOWN_START.sub("", named["value"]))
    return values


def _filled(line: str, values: Mapping[str, list[str]]) -> list[str]:
    """Return a line as often as a variable in it may stand for a program, each time with another one."""
    for match in _USED.finditer(line):
        if programs := values.get(match["name"]):
            return [line[: match.start()] + program + line[match.end() :] for program in programs]
    return [line]


def _of_page(text: str) -> Iterator[tuple[str, bool]]:
    """Yield what stands in one line with a launcher. What a page starts plainly may be its short example."""
    if ".py" not in text:
        return
    for line in filter(_LAUNCHER.search, (line for line in text.splitlines() if ".py" in line)):
        if program := _by_itself(line):
            yield program, True
        else:
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
