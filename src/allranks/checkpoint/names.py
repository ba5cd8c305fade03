"""Rename the leaves of a file to the names that a template uses.

``.`` and ``/`` are the same separator here: flat formats write ``model.layers.0.weight`` for ``model/layers/0/weight``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from allranks.errors import AllranksError
from allranks.failure import text_of

Rename = Mapping[str, str] | Callable[[str], str]

# The keys of the weights in files that hold more: Lightning, torch's recipes, Flax, DeepSpeed.
_LISTED = 12
KNOWN_KEYS = ("state_dict", "model_state_dict", "model", "params", "module", "state")


def canonical_path(path: str) -> str:
    """Return the path with ``.`` as its separator, in which paths are compared."""
    return path.replace("/", ".")


def first_matching_glob(path: str, globs: Iterable[str]) -> str:
    """Return the first of the globs that the path matches; "" if none does."""
    return next((glob for glob in globs if fnmatchcase(canonical_path(path), canonical_path(glob))), "")


def make_renamer(rename: Rename | None) -> Callable[[str], str]:
    """Return a function from a name in the file to the name in the template.

    In a mapping, names without ``*`` are looked up first, and exactly. Then the patterns are applied in their order,
    each to the result of the one before: ``{"model.*": "*", "*.fc1.*": "*.0.*"}``. Raises AllranksError if a pattern
    and its result do not have the same number of ``*``.
    """
    return canonical_path if rename is None else _CheckedRename(rename)


class _CheckedRename:
    """Renames names by a validated mapping. ``unused_renames``: its keys that have not matched any name yet."""

    def __init__(self, rename: Rename) -> None:
        self._change = None if isinstance(rename, Mapping) else rename
        steps = rename if isinstance(rename, Mapping) else {}
        texts = all(isinstance(text, str) for step in steps.items() for text in step)
        if not texts or not (self._change is None or callable(self._change)):
            raise AllranksError(
                f"rename={rename!r:.200}: expected a mapping of names, or a function.",
                remedy="Write rename={'old': 'new'}. To leave out leaves of the file, use allow_unexpected=.",
            )
        self._exact = {canonical_path(old): (old, canonical_path(new)) for old, new in steps.items() if "*" not in old}
        self._patterns = [(old, *_compile_rename(old, new)) for old, new in steps.items() if "*" in old]
        self.unused_renames = dict.fromkeys(steps)

    def __call__(self, name: str) -> str:
        if self._change is not None:
            try:
                new = self._change(name)
            except Exception as error:
                raise AllranksError(f"rename({name!r}) failed: {text_of(error)}") from error
            if not isinstance(new, str):
                raise AllranksError(f"rename({name!r}) returned {new!r:.80}: expected a name (str).")
            return canonical_path(new)
        name = canonical_path(name)
        if name in self._exact:
            old, new = self._exact[name]
            self.unused_renames.pop(old, None)
            return new
        for old, pattern, becomes in self._patterns:
            if found := pattern.fullmatch(name):
                self.unused_renames.pop(old, None)
                name = "".join(_join_alternately(becomes, found.groups()))
        return name


def unused_renames(names: Iterable[str], rename: Rename | None) -> list[str]:
    """Return the keys of a mapping that match none of these names; they may be misspelt."""
    if not isinstance(rename, Mapping):
        return []
    change = _CheckedRename(rename)
    for name in names:
        change(name)
    return list(change.unused_renames)


def _compile_rename(old: str, new: str) -> tuple[re.Pattern[str], Sequence[str]]:
    if old.count("*") != new.count("*"):
        raise AllranksError(
            f"rename={{{old!r}: {new!r}}}: the pattern has {old.count('*')} '*', and its result has "
            f"{new.count('*')}: expected the same number.",
            remedy="Each '*' stands for the same text on both sides.",
        )
    text = "(.*?)".join(map(re.escape, canonical_path(old).split("*")))
    return re.compile(text, re.DOTALL), canonical_path(new).split("*")


def _join_alternately(between: Sequence[str], texts: Sequence[str]) -> Iterable[str]:
    yield between[0]
    for text, rest in zip(texts, between[1:], strict=True):
        yield text
        yield rest


def map_names(names: Iterable[str], rename: Rename | None) -> dict[str, str]:
    """Return the file's name of each leaf, by its name in the template.

    Raises AllranksError if two leaves get the same name.
    """
    change = make_renamer(rename)
    found: dict[str, str] = {}
    for name in names:
        new = change(name)
        if (other := found.setdefault(new, name)) != name:
            raise AllranksError(
                f"{other!r} and {name!r} of the file both become {new!r} in the template.",
                remedy="Make the pattern of rename= match fewer names."
                if rename is not None
                else "Give one of them another name with rename=.",
            )
    return found


def choose_key(names: Iterable[str], template: Iterable[str], key: str | None) -> str:
    """Return the key of the file below which the wanted leaves are; "" for the top.

    If ``key`` is given, it is returned (AllranksError if nothing is below it). Otherwise it is the known key, or the
    top, below which most names of the template are. If no name matches, it is the first known key that the file has,
    provided that all arrays of the file are below some key.
    """
    names = list(names)
    if key is not None:
        if key and not names_below_key(names, key):
            tops = list(dict.fromkeys(name.partition("/")[0] for name in names)) or ["nothing"]
            told = ", ".join(tops[:_LISTED]) + (f" and {len(tops) - _LISTED} more" if len(tops) > _LISTED else "")
            raise AllranksError(f"no array of the file is below key={key!r}: expected one of the keys {told}.")
        return key
    wanted = set(map(canonical_path, template))
    found = {known: [n for n in names if n.startswith(f"{known}/")] for known in KNOWN_KEYS}
    scores = {
        known: sum(canonical_path(name.removeprefix(f"{known}/")) in wanted for name in names_below)
        for known, names_below in found.items()
        if names_below
    }
    at_top = sum(canonical_path(name) in wanted for name in names)
    best = max(scores, key=lambda known: scores[known], default="")
    if not best or at_top > scores[best]:
        return ""
    return best if scores[best] > at_top or all("/" in name for name in names) else ""


def names_below_key(names: Iterable[str], key: str) -> dict[str, str]:
    """Return the file's names below a key, by the part of the name after the key."""
    prefix = f"{canonical_path(key)}." if key else ""
    return {name[len(prefix) :]: name for name in names if canonical_path(name).startswith(prefix)}
