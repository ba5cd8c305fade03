"""Tell the user, once, if a training draws from a global random generator whose state no checkpoint holds.

A loop that seeds the generator at every step, from the number of the step, loses nothing. So the evidence is a state at
a save, and a later state that follows from it by draws alone: what a resumed run would draw there is then unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from allranks.arrays.base import OpenTree
from allranks.arrays.generators.base import GlobalState
from allranks.arrays.global_generators import count_draws, held_modules, random_state_of, read_global_states
from allranks.gate.log import log

# A DataLoader of torch draws a seed for its workers in every epoch, whether they use it or not.
_FEW_DRAWS = {"torch": 64}


class UnsavedGenerators:
    """Compares the states of the global generators at a save with those at the next steps. Used on rank 0 only."""

    def __init__(self) -> None:
        self._decided: set[str] = set()  # modules that are held, or reported, or set by the program itself
        self._unheld: set[str] = set()  # modules whose states the first save did not hold
        self._saved: dict[str, GlobalState] = {}
        self._saved_step = 0
        self._is_first_step = False  # no step was noted since the save

    def note_save(self, step: int, tree: OpenTree, extra: object) -> None:
        """Compare the states at a save with those at the save before.

        What a save holds is looked up at the first save only, because later ones have the same leaves.
        """
        found = self._compare(step)
        undecided = {module: state for module, state in found.items() if module not in self._decided}
        if new := [state for module, state in undecided.items() if module not in self._unheld]:
            held = held_modules(new, tree, extra)
            self._decided |= held
            self._unheld |= {state.module for state in new} - held
        self._saved = {module: undecided[module] for module in undecided.keys() - self._decided}
        self._saved_step, self._is_first_step = step, True

    def note_step(self, step: int) -> None:
        """Compare the states after the first step that follows a save with those at the save."""
        if self._is_first_step and self._saved:
            self._compare(step)
        self._is_first_step = False

    def _compare(self, step: int) -> dict[str, GlobalState]:
        """Report what was drawn since the last save; return the present states of the generators."""
        found = read_global_states()
        drawn = []
        for module in self._saved.keys() & found.keys():
            before, after = self._saved[module], found[module]
            if (before.position, before.image) == (after.position, after.image):
                continue
            words = count_draws(before, after)
            if words == 0:
                self._decided.add(module)
            elif words > _FEW_DRAWS.get(module, 0):
                drawn.append(module)
        if drawn:
            self._decided |= set(drawn)
            log("%s", describe_unsaved(sorted(drawn), saved_step=self._saved_step, step=step), level=logging.WARNING)
        self._saved = {module: state for module, state in self._saved.items() if module not in self._decided}
        return found


def describe_unsaved(modules: Sequence[str], *, saved_step: int, step: int) -> str:
    """Return the note about generators that were drawn from after a save that does not hold them."""
    return (
        f"allranks: between step {saved_step} and step {step} the program drew from the global generator of "
        f"{' and '.join(modules)}, and the checkpoint of step {saved_step} does not hold its state: a resumed run "
        f"draws other values. Add {random_state_of(modules)} to the state, or seed it at every step from its number."
    )
