"""Find the profile of an engine, in pyproject.toml or in the user's own engines.toml."""

from __future__ import annotations

import os
import shlex
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.cli.pyproject import closest
from allranks.settings import ConfigWrong

if TYPE_CHECKING:
    from allranks.engines.base import Engine
    from allranks.engines.kind import Kind


@dataclass(frozen=True, slots=True)
class NamedProfile:
    """A profile: its name, the kind of its engine, its options (of ``kind.profile``), and where it is written."""

    name: str
    kind: Kind
    options: Any
    where: str

    def client(self) -> Engine:
        """Return a client of this engine."""
        from allranks.engines.detect import client_of

        given = shlex.split(getattr(self.options, "launcher", ""))
        return client_of(self.kind, self.options, tuple(given) or (sys.executable, "-m", "allranks"))


def user_file() -> Path:
    """Return the path of the user's profiles."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "allranks" / "engines.toml"


def tables(folder: Path) -> dict[str, tuple[str, Any]]:
    """Return all tables of profiles: name to (file, table). Those of the closest pyproject.toml win."""
    found: dict[str, tuple[str, Any]] = {}
    user = user_file()
    try:
        found = {name: (str(user), table) for name, table in tomllib.loads(user.read_text("utf-8")).items()}
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigWrong(f"{user} cannot be read: {error}") from error
    project = closest(folder, "engines")
    if project is not None:
        file, engines = project
        if not isinstance(engines, Mapping):
            raise ConfigWrong(f"{file}: [tool.allranks.engines] is not a table")
        found |= {name: (str(file), table) for name, table in engines.items()}
    return found


def profile_of(name: str, folder: Path, *, complete: bool = True) -> NamedProfile:
    """Return the profile with this name. Only ``submit`` needs it to be ``complete``.

    The name of a kind (``slurm``) is also the name of a profile without options. Raises ConfigWrong for any other name.
    """
    from allranks.engines import profile
    from allranks.engines.kind import KINDS

    known = tables(folder)
    where, table = known.get(name, ("", {"kind": name}))
    if name not in known and name not in KINDS:
        near = get_close_matches(name, [*known, *KINDS], n=1)
        raise ConfigWrong(
            f"no engine {name!r}: there is no table [tool.allranks.engines.{name}] in pyproject.toml, and no table "
            f"[{name}] in {user_file()}.",
            remedy=f"Did you mean {near[0]!r}?" if near else _names(known, KINDS),
        )
    if not isinstance(table, Mapping):
        raise ConfigWrong(f"{where}: profile {name!r} is not a table: found {table!r}.")
    kind = table.get("kind", name)
    if kind not in KINDS:
        raise ConfigWrong(
            f"{where}: profile {name!r}: kind: expected one of {', '.join(KINDS)}, found {kind!r}.",
            remedy='Add kind = "slurm", for example.' if "kind" not in table else "",
        )
    options = profile.read(KINDS[kind].profile, name, table, where or name, complete=complete)
    return NamedProfile(name, KINDS[kind], options, where)


def _names(known: Mapping[str, object], kinds: Mapping[str, object]) -> str:
    profiles = f"Profiles: {', '.join(sorted(known))}. " if known else ""
    return f"{profiles}Kinds: {', '.join(sorted(kinds))}."
