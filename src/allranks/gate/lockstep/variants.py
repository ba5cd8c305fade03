"""Which program of a function of JAX runs for given arguments: what tells its variants apart.

A program is compiled for the forms of arguments (shape, dtype, sharding) and the values of static ones; JAX's settings
are an argument more. Which arguments are static is not always known: so values of others count where programs differ
that the forms do not tell apart.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

Form = Hashable
# A positional argument's number, or a keyword's name.
Name = str | int
# The arguments to look at: True where the value counts, False where the form does.
Telling = Mapping[Name, bool]


@dataclass(frozen=True, slots=True)
class Known:
    """Arguments for which ``program`` is known to run: their forms and their values."""

    forms: Mapping[Name, Form]
    values: Mapping[Name, Form]
    program: Hashable

    def key(self, telling: Telling) -> tuple[Form, ...]:
        """Return what these arguments have of what tells variants apart."""
        return tuple((self.values if by_value else self.forms).get(name) for name, by_value in telling.items())


def tell_apart(variants: Sequence[Known], static: Collection[Name] | None, *, sees: bool) -> Telling:
    """Return the arguments that tell the variants apart.

    ``static`` are the static arguments, None where that is not known. ``sees`` says whether a program is seen that runs
    for the first time: if not, every argument must be looked at.
    """
    names = dict.fromkeys(name for known in variants for name in known.forms)
    if not sees:
        by_value = names if static is None else static
        return {name: name in by_value for name in dict.fromkeys((*names, *by_value))}
    telling = {name: False for name in names if len({known.forms.get(name) for known in variants}) > 1}
    telling.update(dict.fromkeys(static or (), True))
    programs: dict[tuple[Form, ...], set[Hashable]] = {}
    for known in variants:
        programs.setdefault(known.key(telling), set()).add(known.program)
    if any(len(alike) > 1 for alike in programs.values()):
        telling.update((name, True) for name in names if len({known.values.get(name) for known in variants}) > 1)
    return telling
