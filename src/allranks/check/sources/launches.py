"""How the project's scripts start its programs: by a launcher or as one process, on how many nodes. Pure.

The text is that of strangers: each pattern looks at a character a bounded number of times, however often its words are
repeated. A pattern that has ``*`` in its middle ends at the next place where it could begin.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from allranks.check.sources.scripts import is_page, is_text
from allranks.check.sources.source import is_test

_LAUNCHER = re.compile(
    r"torchrun|torch\.distributed|torch_xla|\baccelerate\b|deepspeed|\bsrun\b|\bmpirun\b|\bmpiexec\b|horovodrun|jsrun|aprun"
    r"|#SBATCH|#PBS|#BSUB|\bsbatch\b|\bray\b|composer|fabric run|lightning run|colossalai|allranks run|nproc|dist_train"
    r"|(?:spawn|launch)(?:(?!spawn|launch)\w)*\.py|MASTER_ADDR|WORLD_SIZE|\bRANK=|xargs|parallel|gcloud|kubectl"
)
_PLAIN = re.compile(r"\bpython[\d.]*\s+(?:-[uBOE]+\s+)*(?:(?P<path>[\w./-]+\.py)\b|-m\s+(?P<module>[\w.]+))")
_PATH = r"(?<![\w./-])(?P<path>[\w./-]+\.py)\b"
_ANY = re.compile(_PATH)
# What starts several processes of the program that comes next, unless it is told that one is enough.
_TOGETHER = re.compile(
    r"(?:\btorchrun|-m\s+torch\.distributed\.(?:launch|run)|\baccelerate\s+launch|\bdeepspeed|\bhorovodrun|\bmpirun|\bmpiexec"
    r"|\bcomposer|\bcolossalai\s+run|\bpython\d?\s+\S*(?<!\w)(?=\w*(?:spawn|launch))\w+\.py)\s"
)
# Where its options end: at the program, or with the command.
_AFTER_OPTIONS = re.compile(rf"(?<=\s)-m\s+(?P<module>[\w.]+)|{_PATH}|[;&|`]")
_BUT_ONE = re.compile(
    r"--?(?:nproc[-_]per[-_]node|num[-_]processes|np|n|num[-_]gpus|nproc|world[-_]size|num[-_]proc)[=\s]+[\"']?1(?![\d.])"
)
_MORE_NODES = re.compile(r"--?(?:nnodes|num[-_]machines|num[-_]nodes|N)[=\s]+(?![\"']?1(?![\d.:]))")
_ONE_NODE = re.compile(r"--?(?:nnodes|num[-_]machines|num[-_]nodes)[=\s]+[\"']?1(?![\d.:])")
_NUMBERED = re.compile(r"--?(?:node|machine)[-_]rank[=\s]+(?![\"']?0(?![\d.]))")
# A job of SLURM, or a step of one, on several nodes.
_JOB = re.compile(r"#SBATCH\s+(?:-N|--nodes)[=\s]*(?!1(?![\d-]))")
_STEP = re.compile(r"\bsrun\b(?:(?!\bsrun\b)[^\n|;&])*?\s(?:-N|--nodes)[=\s]*(?!1(?![\d-]))")
_CALLED = re.compile(r"(?i)multi[-_]?node")
# Whoever writes one of these thinks of several machines, unless he says that there is one, or that this is the first.
_NODES = re.compile(
    rb"(?i)(?:nnodes|num_nodes|num_machines|SLURM_JOB_NUM_NODES)(?!(?:\s*[=:]|[ \t])\s*[\"']?1(?![\d.:]))"
    rb"|(?:node_rank|machine_rank)(?!(?:\s*[=:]|[ \t])\s*[\"']?0(?![\d.]))"
    rb"|(?:#SBATCH|\bsrun\b(?:(?!\bsrun\b)[^\n|;&])*?)\s(?:(?-i:-N)|--nodes)(?![=\s]*1(?![\d-]))"
    rb"|SLURM_NODEID|SLURM_(?:JOB_)?NODELIST|hostfile|multi-?_?nodes?\b|submitit"
)
# What joins processes, starts them on this host, and has them meet there; and what lets them be on others too.
_JOINS, _SPAWNS = re.compile(rb"init_process_group\("), re.compile(rb"\b(?:spawn|start_processes)\(")
_LOOPBACK = re.compile(rb"127\.0\.0\.1|localhost")
_ELSEWHERE = re.compile(rb"(?i)\bnodes?\b|node_|_node|env://|(?:\.get\(|getenv\()\s*[\"']MASTER_ADDR|argparse")
_SETS_HERE = re.compile(rb"environ\[[\"']MASTER_ADDR[\"']\]\s*=\s*[\"'](?:127\.0\.0\.1|localhost)[\"']")
_JOINS_HERE = re.compile(rb"init_process_group\((?:[^()]|\([^()]*\))*\btcp://(?:127\.0\.0\.1|localhost)\b")
# What a program says that gives commands to a shell: it starts others as a script does.
_SHELLS, _COMMAND = (b"os.system(", b"subprocess."), re.compile(rb"\b(?:os\.system|subprocess\.\w+)\(")
# What stands in each command of a launcher.
_STARTERS = re.compile(
    rb"torchrun|torch\.distributed\.(?:launch|run)|accelerate|deepspeed|horovodrun|mpirun|mpiexec|composer|colossalai"
    rb"|(?:spawn|launch)(?:(?!spawn|launch)\w)*\.py"
)
_JOINED = re.compile(r"\\\r?\n")
_SET = re.compile(r"(?<![\w$-])(\w+)=[\"']?")
_VALUE, _WORD = re.compile(r"[^\s\"';]*\.py\b"), re.compile(r"[^\s\"';]+")
_USED = re.compile(r"[\"']?\$\{?(?P<name>\w+)\}?[\"']?")
_NUMBER = re.compile(r"^[ \t]*(?:export[ \t]+)?(\w+)=[\"']?(\d+)[\"']?[ \t]*(?:#.*)?$", re.MULTILINE)
_KNOWN_START = re.compile(r"^(?:\$\{?\w+\}?/)+")
_OPTION = re.compile(r"(?<![\w-])--?([A-Za-z][\w-]*)")


# Of a variable that a script sets to more programs, the others are not put in its place.
MOST_PROGRAMS = 30


class _Command(NamedTuple):
    """What a launcher is told to start, with which options of its own; the options of the program come at ``end``."""

    program: str
    options: str
    end: int


class Options(NamedTuple):
    """What options scripts give a program: ``alone``, where they start one process, and nobody who starts several;
    ``several``, whoever starts several."""

    alone: frozenset[str] = frozenset()
    several: frozenset[str] = frozenset()


class Launches:
    """How the scripts and pages of a project start its programs: each answer is found out once, when it is asked for.

    Of a program that nobody starts nothing is known.
    """

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._sources = sources
        self._programs = frozenset(path for path in sources if path.endswith(".py"))

    @property
    def alone(self) -> frozenset[str]:
        """The programs that scripts start, always as ``python train.py``, or by a launcher once
        (``--nproc_per_node 1``), and of which no page starts several; a Python file that gives such a command to a
        shell is a script too. Of what it starts plainly, a script that names a launcher, or the variables of one,
        anywhere says nothing: it may be one of several."""
        return self._started[0]

    @property
    def together(self) -> frozenset[str]:
        """The programs of which a script or a page starts several processes, by a launcher."""
        return self._started[1]

    @cached_property
    def modes_alone(self) -> Mapping[str, Options]:
        """The options of each program that scripts start both as one process and as several: ``python train.py --eval``
        beside ``torchrun train.py``."""
        given: dict[bool, dict[str, set[str]]] = {True: {}, False: {}}
        for text in self._texts:
            for name, options, by_itself in text.commands():
                for program in self._meant(name, text.path):
                    given[by_itself].setdefault(program, set()).update(options)
        both = given[True].keys() & given[False].keys()
        sides = ((program, given[True][program], given[False][program]) for program in both)
        return {program: Options(frozenset(one - several), frozenset(several)) for program, one, several in sides}

    @cached_property
    def across_nodes(self) -> frozenset[str]:
        """The programs that a script or a page starts on several nodes, or that are called so."""
        found = {path for path in self._programs if _CALLED.search(posixpath.basename(path))}
        for text in self._texts:
            for name in text.on_several_nodes():
                found |= self._meant(name, text.path)
        return frozenset(found)

    @cached_property
    def on_one_node(self) -> frozenset[str]:
        """The programs that scripts and pages start, and say each time that there is one node (``--nnodes=1``)."""
        said: dict[bool, set[str]] = {True: set(), False: set()}
        for text in self._texts:
            for command in text.launches():
                one = _ONE_NODE.search(command.options) and not _NUMBERED.search(command.options)
                said[bool(one)] |= self._meant(command.program, text.path)
        return frozenset(said[True] - said[False])

    @cached_property
    def _started(self) -> tuple[frozenset[str], frozenset[str]]:
        alone, several, together = set[str](), set[str](), set[str]()
        for text in self._texts:
            for name, by_itself in text.named():
                (alone if by_itself else several).update(self._meant(name, text.path))
            for name in text.together():
                together |= self._meant(name, text.path)
        for path in self._programs:
            for name, once in _launched(_joined(self._sources[path])) if self._gives_commands(path) else ():
                for found in (alone,) if once else (several, together):
                    found |= self._meant(name, path)
        return frozenset(alone - several - together), frozenset(together)

    def _gives_commands(self, path: str) -> bool:
        """Whether a program may give a shell the command of a launcher."""
        raw = self._sources[path]
        calls = any(word in raw for word in _SHELLS) and _COMMAND.search(raw) is not None
        return calls and _STARTERS.search(raw) is not None and not is_test(path)

    @cached_property
    def _texts(self) -> tuple[_Text, ...]:
        """The scripts and pages that may name a program."""
        texts = {path: raw for path, raw in self._sources.items() if is_text(path) and (b".py" in raw or b"-m" in raw)}
        return tuple(_Text(path, _joined(raw)) for path, raw in texts.items())

    def _meant(self, name: str, script: str) -> set[str]:
        """Return the programs that a path in a script may be: from its own folder, from the root, or from elsewhere."""
        plain = posixpath.normpath(name)
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(script), name))
        for path in (beside, plain):
            if path in self._programs:
                return {path}
        tail = "/" + plain.lstrip("./")
        return {path for path in self._by_name.get(posixpath.basename(plain), ()) if path.endswith(tail)}

    @cached_property
    def _by_name(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self._programs:
            found.setdefault(posixpath.basename(path), []).append(path)
        return found


class _Text:
    """A script or a page, continued lines in one."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self._text, self._page = path, text, is_page(path)

    def named(self) -> Iterator[tuple[str, bool]]:
        """Yield the programs that are named, and whether each is started there as one process. What a page starts
        plainly may be its short example: there, what stands in one line with a launcher counts alone."""
        if self._page:
            for line in filter(_LAUNCHER.search, (line for line in self._text.splitlines() if ".py" in line)):
                program = _by_itself(line)
                yield from [(program, True)] if program else ((found["path"], False) for found in _ANY.finditer(line))
            return
        for line in self._counted:
            command = line.partition("#")[0]
            if not self._tells and (match := _PLAIN.search(command)) is not None:
                yield _program(match), True
            elif program := _by_itself(command):
                yield program, True
            elif not any(_set_to_programs(command)):
                yield from ((found["path"], False) for found in _ANY.finditer(command))

    def together(self) -> Iterator[str]:
        """Yield the programs behind a launcher that starts several."""
        for line in filter(_LAUNCHER.search, self._counted) if self._tells else ():
            yield from (program for program, once in _launched(line) if not once)

    def commands(self) -> Iterator[tuple[str, list[str], bool]]:
        """Yield the programs that are started, the options that they are given, and whether each is one process; what
        is started plainly only in a script without launchers."""
        plain = not self._page and not self._tells
        for command in (part for line in self._counted for part in re.split(r"[;&|`]", line)):
            for started in _commands(command):
                yield started.program, _options(command[started.end :]), _is_once(started.options)
            by_hand = _PLAIN.search(command.partition("#")[0]) if plain else None
            if by_hand is not None:
                yield _program(by_hand), _options(command[by_hand.end() :]), True

    def on_several_nodes(self) -> Iterator[str]:
        """Yield the programs that are started on several nodes."""
        job = not self._page and _JOB.search(self._text) is not None
        if job or _STEP.search(self._text) or _MORE_NODES.search(self._text):
            for line in self._lines:
                yield from _on_nodes(line if self._page else line.partition("#")[0], job=job)

    def launches(self) -> Iterator[_Command]:
        """Yield the commands of launchers."""
        if self._tells:
            yield from (command for line in self._lines for command in _commands(line))

    @cached_property
    def _tells(self) -> bool:
        """Whether a launcher is named anywhere."""
        return _LAUNCHER.search(self._text) is not None

    @cached_property
    def _counted(self) -> list[str]:
        """The lines, with the numbers in the place of variables that are set to one."""
        return _filled(_counted(self._text))

    @cached_property
    def _lines(self) -> list[str]:
        return _filled(self._text)


def on_several_nodes(sources: Mapping[str, bytes]) -> bool:
    """Return whether anything in a project speaks of several nodes. Where nothing does, the local rank is the rank."""
    return any(map(_NODES.search, sources.values()))


def _on_nodes(command: str, *, job: bool) -> Iterator[str]:
    """Yield the programs that a command starts on several nodes; all of them, in a ``job`` that has several."""
    for part in re.split(r"[;&|]", command):
        if job or _STEP.search(part):
            yield from (match["path"] for match in _ANY.finditer(part))
        yield from (started.program for started in _commands(part) if _MORE_NODES.search(started.options))


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
    for started in _commands(command):
        yield started.program, _is_once(started.options)


def _commands(text: str) -> Iterator[_Command]:
    """Yield the commands of launchers, each character looked at once: a launcher before the end of the last command is
    a part of it, and where no program follows one, none follows the others up to the end of that command."""
    end = without = 0
    for launcher in _TOGETHER.finditer(text):
        start = launcher.end()
        if launcher.start() < end or start <= without:
            continue
        found = _AFTER_OPTIONS.search(text, start)
        if found is None:
            return
        if found.lastgroup is None:
            without = found.start()
        else:
            end = found.end()
            yield _Command(_program(found), text[start : found.start()], end)


def _is_once(options: str) -> bool:
    """Whether a launcher that is given these options starts one process, on one node."""
    return _BUT_ONE.search(options) is not None and _MORE_NODES.search(options) is None


def _by_itself(command: str) -> str:
    """Return the program that a launcher starts once, on one node; '' if there is none."""
    return next((program for program, once in _launched(command) if once), "")


def _counted(text: str) -> str:
    """Return a script with the numbers in the place of the variables that are set to one, and nowhere else."""
    found = dict(_NUMBER.findall(text))
    times = Counter(re.findall(r"(?<![\w$-])(\w+)=", text))
    sure = {name for name in found if times[name] == 1}
    return _USED.sub(lambda used: found[used["name"]] if used["name"] in sure else used[0], text)


def _filled(text: str) -> list[str]:
    """Return the lines of a text that may name a program; one that has a variable which is set to programs there, once
    with each of these."""
    values: dict[str, dict[str, None]] = {}
    for name, value in _set_to_programs(text):
        programs = values.setdefault(name, {})
        if len(programs) < MOST_PROGRAMS:
            programs[_KNOWN_START.sub("", value)] = None
    lines = (filled for line in text.splitlines() for filled in _with_programs(line, values))
    return [line for line in lines if ".py" in line or "-m" in line]


def _set_to_programs(text: str) -> Iterator[tuple[str, str]]:
    """Yield each variable that a text sets to a program, and that program, each character looked at once: a word that
    names none names none from a later variable on (``a=b=c``)."""
    end = without = 0
    for variable in _SET.finditer(text):
        start = variable.end()
        if variable.start() < end or start <= without:
            continue
        if found := _VALUE.match(text, start):
            end = found.end()
            yield variable[1], found[0]
        else:
            without = word.end() if (word := _WORD.match(text, start)) else start


def _with_programs(line: str, values: Mapping[str, Collection[str]]) -> list[str]:
    for match in _USED.finditer(line):
        if programs := values.get(match["name"]):
            return [line[: match.start()] + program + line[match.end() :] for program in programs]
    return [line]


def _joined(raw: bytes) -> str:
    """Return a text with continued lines in one."""
    return _JOINED.sub(" ", raw.decode("utf-8", "replace"))


def _options(text: str) -> list[str]:
    return [name.replace("-", "_") for name in _OPTION.findall(text)]


def _program(match: re.Match[str]) -> str:
    return match["path"] or match["module"].replace(".", "/") + ".py"
