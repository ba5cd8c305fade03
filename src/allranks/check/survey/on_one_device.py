"""Whether Lightning's trainers are given one device for certain: then nothing is split, and nothing need be summed."""

from __future__ import annotations

from collections.abc import Iterable

from allranks.check.program import Event

_TRAINER = ("lightning.pytorch.Trainer", "lightning.pytorch.cli.LightningCLI")


def on_one_device(events: Iterable[Event], path: str) -> bool:
    """Whether each trainer of a file is given one, or of the program where the file has none."""
    trainers = [event for event in events if event.name in _TRAINER]
    here = [event for event in trainers if event.place.path == path]
    return bool(trainers) and all(map(_has_one, here or trainers))


def _has_one(trainer: Event) -> bool:
    """Who leaves it to Lightning gets all that there are."""
    devices, nodes = trainer.argument("devices", "gpus"), trainer.argument("num_nodes")
    return nodes is None and devices is not None and devices.constant in (1, "1")
