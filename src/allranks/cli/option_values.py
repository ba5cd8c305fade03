"""Convert the texts of options, for several commands."""

from __future__ import annotations

import argparse


def takes_value(p: argparse.ArgumentParser) -> dict[str, bool]:
    """Return for each option of a parser whether it takes one value."""
    return {option: one.nargs is None for one in p._actions for option in one.option_strings}


def integer(text: str) -> int:
    """Convert a text to a whole number from 0. Raises ArgumentTypeError for any other text."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}")
    return int(text)


def at_least_one(text: str) -> int:
    """Convert a text to a whole number from 1. Raises ArgumentTypeError for any other text."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text!r}")
    return int(text)


def seconds(text: str) -> float:
    """Convert a text to a number of seconds from 0. Raises ArgumentTypeError for any other text."""
    if (found := _finite(text)) < 0:
        raise argparse.ArgumentTypeError(f"expected a number of seconds, found {text!r}")
    return found


def seconds_above_0(text: str) -> float:
    """Convert a text to a number of seconds above 0. Raises ArgumentTypeError for any other text."""
    if (found := _finite(text)) <= 0:
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, found {text!r}")
    return found


def _finite(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return -1.0
    return found if found < float("inf") else -1.0
