"""Variables of the environment that shell scripts, batch files, Dockerfiles and YAML files set. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from allranks.findings import Place
from allranks.names.variables import NAMES

SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".yaml", ".yml", "Dockerfile")
PAGES = (".md", ".rst")
_NAME = rf"(?P<name>(?:{'|'.join(NAMES)})[A-Z0-9_]+)"
_FLAG = re.compile(r"--(?P<name>xla_[a-z0-9_]+)")
# Before a name that is given to a process: `export`, `env`, `docker run -e`, `mpirun -x`, `srun --export=ALL,`.
_GIVEN = re.compile(
    rf"(?:\b(?:export|setenv|ENV|env)\s(?:(?:(?!\b(?:export|setenv|ENV|env)\s)[^#;&|])*\s)?"
    rf"|(?:-e|-x|--env)[\s=]\s*|--export=(?:(?:(?!--export=)[^\s#])*,)?)[\"']?{_NAME}\s?(?:=|(?<=\s))"
)
_BEFORE = re.compile(rf"^\s*(?:\w+=\S*\s+)*{_NAME}=(?:\"[^\"]*\"|'[^']*'|\S*)\s+(?:\w+=\S*\s+)*[\w./$\"{{(\\]")
_ALONE = re.compile(rf"^\s*(?:-\s+)?{_NAME}=")
_KEY = re.compile(rf"^\s*(?:-\s+)?[\"']?{_NAME}[\"']?\s*:(?:\s|$)")
_NAMED = re.compile(rf"^\s*(?:-\s+)?name:\s*[\"']?{_NAME}[\"']?\s*$")
_LISTED = re.compile(rf"^\s*-\s+[\"']?{_NAME}=")
_COMMENT = re.compile(r"(?:^|\s)#(?!\s*allranks:).*")
_LEFT = re.compile(r"#\s*allranks:\s*ignore\[[^\[\]]*\bAR604\b")


class Setting(NamedTuple):
    """A variable that is set, or (``flag``) a flag of XLA that is given, at ``place``."""

    name: str
    place: Place
    flag: bool = False


def is_script(path: str) -> bool:
    """Whether a file is one of those that are read for the variables they set."""
    return path.endswith(SUFFIXES)


def is_text(path: str) -> bool:
    """Whether a file is read for what it says of the programs, and is none itself."""
    return path.endswith((*SUFFIXES, *PAGES))


def is_page(path: str) -> bool:
    """Whether a file is one of those that tell people how the programs are started."""
    return path.endswith(PAGES)


def settings(path: str, raw: bytes) -> Iterator[Setting]:
    """Yield what a script gives to the processes it starts. Lines with ``# allranks: ignore[AR604]`` are left out."""
    if not any(prefix.encode() in raw for prefix in NAMES) and b"--xla_" not in raw:
        return
    text = raw.decode("utf-8", "replace")
    forms = [_GIVEN, _BEFORE]
    if path.endswith((".yaml", ".yml")):
        forms += [_KEY, _NAMED, _LISTED]
    elif re.search(r"^\s*set\s+-(?:a|o allexport)\b", text, re.MULTILINE):
        forms.append(_ALONE)
    for number, line in enumerate(text.splitlines(), start=1):
        if _LEFT.search(line):
            continue
        code = _COMMENT.sub("", line)
        seen: set[int] = set()
        for form in forms:
            for match in form.finditer(code):
                if match.start("name") not in seen:
                    seen.add(match.start("name"))
                    yield Setting(match["name"], _place(path, number, match))
        for match in _FLAG.finditer(code):
            yield Setting(match["name"], _place(path, number, match), flag=True)


def asked(name: str, text: str) -> bool:
    """Whether a script uses a variable itself: ``$NAME`` or ``${NAME...}``."""
    return re.search(rf"\$\{{?{name}\b", text) is not None


def _place(path: str, line: int, match: re.Match[str]) -> Place:
    return Place(path, line, match.start("name") + 1, line, match.end("name") + 1)
