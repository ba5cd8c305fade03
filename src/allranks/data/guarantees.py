"""What a way of reading keeps, and what it cannot."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guarantees:
    """``complete``: every sample is read once, by one rank. ``equal_steps``: every rank takes as many samples.

    ``known_length``: how many is known before the first. ``elastic``: the order is that of any number of ranks, and a
    state may go on with another. ``exact_resume``: a state goes on behind the last sample that was taken.
    ``reads_its_part``: a rank reads 1/N of the data. ``but`` says, for a person, why something is not kept.
    """

    complete: bool
    equal_steps: bool
    known_length: bool
    elastic: bool
    exact_resume: bool
    reads_its_part: bool
    but: str = ""
