"""How the project's shell scripts start its programs: by a launcher, or as one process. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping

_SHELL = (".sh", ".bash")
_LAUNCHER = re.compile(
    r"torchrun|torch\.distributed|torch_xla|\baccelerate\b|deepspeed|\bsrun\b|\bmpirun\b|\bmpiexec\b|horovodrun|jsrun|aprun"
    r"|#SBATCH|#PBS|#BSUB|\bsbatch\b|\bray\b|composer|fabric run|lightning run|colossalai|allranks run|nproc|dist_train"
    r"|MASTER_ADDR|WORLD_SIZE|\bRANK=|xargs|parallel|gcloud|kubectl"
)
_PLAIN = re.compile(r"\bpython[\d.]*\s+(?:-[uBOE]+\s+)*(?P<path>[\w./-]+\.py)\b")
_ANY = re.compile(r"(?P<path>[\w./-]+\.py)\b")
_JOINED = re.compile(r"\\\r?\n")


def started_alone(sources: Mapping[str, bytes]) -> frozenset[str]:
    """Return the programs that shell scripts start, and always as ``python train.py``.

    A script that names a launcher, or the variables of one, anywhere says nothing of being alone: whatever it starts
    may be one of several. Of a program that no script starts nothing is known.
    """
    programs = frozenset(path for path in sources if path.endswith(".py"))
    alone: set[str] = set()
    several: set[str] = set()
    for path, raw in sources.items():
        if not path.endswith(_SHELL):
            continue
        text = _JOINED.sub(" ", raw.decode("utf-8", "replace"))
        launches = _LAUNCHER.search(text) is not None
        for line in text.splitlines():
            code = line.partition("#")[0]
            if not launches and (match := _PLAIN.search(code)) is not None:
                alone |= _meant(match["path"], path, programs)
            else:
                several |= {found for match in _ANY.finditer(code) for found in _meant(match["path"], path, programs)}
    return frozenset(alone - several)


def _meant(name: str, script: str, programs: Collection[str]) -> set[str]:
    """Return the programs that a path in a script may be: from its own folder, from the root, or from elsewhere."""
    plain = posixpath.normpath(name)
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(script), name))
    for path in (beside, plain):
        if path in programs:
            return {path}
    tail = "/" + plain.lstrip("./")
    return {path for path in programs if path.endswith(tail)}
