"""Which framework's optimizers change a state in place: that which is imported by then."""

from __future__ import annotations

import sys


def optimizer_steps() -> int:
    """Return how many steps optimizers have begun since this was first asked; 0 where none changes a state in place."""
    if "torch" not in sys.modules:
        return 0
    import allranks.checkpoint.torch as edge

    return edge.optimizer_steps()
