"""Programs that a shell runs: what they do to files that all processes see."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import dropwhile

from allranks.check.tables.effects import Kind

_BUCKETS = ("s3://", "gs://", "hdfs://", "oss://", "obs://", "azure://")
# Program -> what it does, whatever it is told.
_ALWAYS: Mapping[str, Kind] = {
    **dict.fromkeys(("wget", "aria2c", "axel", "gdown", "unzip", "gunzip", "unrar", "rsync", "scp"), "download"),
    **dict.fromkeys(("make", "ninja"), "file"),
    **dict.fromkeys(("rm", "mv", "rmdir"), "delete"),
    "cp": "file",
}
# They can write to their standard output instead.
_PIPING = ("wget", "curl", "aws", "gsutil", "gunzip")
# Who gives a program one of these only asks it something.
_ASKING = frozenset(["--version", "-version", "-V", "--help", "-help", "-dumpversion", "-dumpmachine"])
# Program and words that follow it -> what it does. Not here: what takes a lock for each file and renames it when it is
# whole (`hf download`).
_TOLD: tuple[tuple[str, str, Kind], ...] = (
    ("curl", r"(^|\s)(-\w*[oO]\b|--output|--remote-name)|>", "download"),
    ("tar", r"^-?-?\w*x|\s-\w*x|--extract", "download"),
    ("7z|7za", r"^[xe]\b", "download"),
    ("git", r"^(clone|lfs (pull|fetch|clone))\b", "download"),
    ("aws", r"^(\S+ )*s3 (cp|sync|mv)\b", "download"),
    ("gsutil", r"^(-\w+ )*(cp|rsync)\b", "download"),
    ("gcloud", r"^storage (cp|rsync)\b", "download"),
    ("modelscope|kaggle", r"(^|\s)download\b", "download"),
    ("pip|pip3|conda|uv", r"^(pip )?install\b", "download"),
    (r"python\d?(\.\d+)?", r"^(-m pip install\b|\S*setup\.py (build_ext|install|develop))", "file"),
    (r"nvcc|gcc|g\+\+|cythonize", r".", "file"),
    ("mkdir", r"^(?!.*(^|\s)(-\w*p|--parents))", "mkdir"),
    ("ln", r"^(?!.*(^|\s)-\w*f)", "delete"),
)


def doing(command: str) -> Kind | None:
    """Return what the first of the programs in ``command`` that does something to files does; None if none does.

    What is not known of the command stands in it as a word of its own (``{url}``).
    """
    return next((kind for part in re.split(r"&&|\|\||;|\||\n", command) if (kind := _one(part)) is not None), None)


def _one(command: str) -> Kind | None:
    words = list(dropwhile(lambda word: word in ("sudo", "env", "exec") or "=" in word, command.split()))
    if not words or not _ASKING.isdisjoint(words):
        return None
    program, told = words[0].rpartition("/")[2], " ".join(words[1:])
    kinds: Iterator[Kind] = (
        kind for name, asked, kind in _TOLD if re.fullmatch(name, program) and re.search(asked, told)
    )
    if program in _PIPING and {"-", "-O-", "-o-", "/dev/stdout", "--spider"} & set(words):
        return None
    kind = _ALWAYS.get(program) or next(kinds, None)
    return "publish" if kind == "download" and words[-1].startswith(_BUCKETS) else kind
