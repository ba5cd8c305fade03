"""What is known of a value: the same on every rank, rank-dependent, or different from process to process."""

from __future__ import annotations

from dataclasses import dataclass

RANK, LOCAL_RANK, NODE, GROUP, PROCESS = 1, 2, 4, 8, 16


@dataclass(frozen=True, slots=True)
class Value:
    """``taint``: what it depends on, the sum of RANK, LOCAL_RANK, NODE, GROUP and PROCESS; 0 is uniform.

    ``reference``: the dotted name of what it is (a function, a class, a module), ``instance``: of what class.
    """

    taint: int = 0
    constant: object = None
    reference: str = ""
    instance: str = ""
