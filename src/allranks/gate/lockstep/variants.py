"""Find which compiled program of a JAX function runs for given arguments.

A program is compiled for the signatures of the arguments (shape, dtype, sharding) and the values of static arguments.
JAX's settings count as one more argument. Which arguments are static is not always known. So values of other arguments
count if programs differ although the signatures are equal.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

Signature = Hashable
# A positional argument's number, or a keyword's name.
Name = str | int
# The arguments that distinguish variants: True where the value counts, False where the signature does.
KeyArguments = Mapping[Name, bool]


@dataclass(frozen=True, slots=True)
class KnownCall:
    """Arguments for which ``program`` is known to run: their signatures and their values, by name."""

    forms: Mapping[Name, Signature]
    values: Mapping[Name, Signature]
    program: Hashable

    def signature_key(self, key_arguments: KeyArguments) -> tuple[Signature, ...]:
        """Return the signatures or values of the key arguments."""
        return tuple((self.values if by_value else self.forms).get(name) for name, by_value in key_arguments.items())


def find_key_arguments(
    variants: Sequence[KnownCall], static: Collection[Name] | None, *, sees_programs: bool
) -> KeyArguments:
    """Return the arguments that distinguish the variants, each with whether its value counts or only its signature.

    ``static`` are the static arguments; None if they are unknown. ``sees_programs``: the first run of a program is
    seen. If it is not, every argument counts.
    """
    names = dict.fromkeys(name for known in variants for name in known.forms)
    if not sees_programs:
        by_value = names if static is None else static
        return {name: name in by_value for name in dict.fromkeys((*names, *by_value))}
    key_arguments = {name: False for name in names if len({known.forms.get(name) for known in variants}) > 1}
    key_arguments.update(dict.fromkeys(static or (), True))
    programs: dict[tuple[Signature, ...], set[Hashable]] = {}
    for known in variants:
        programs.setdefault(known.signature_key(key_arguments), set()).add(known.program)
    if any(len(alike) > 1 for alike in programs.values()):
        key_arguments.update((name, True) for name in names if len({known.values.get(name) for known in variants}) > 1)
    return key_arguments
