"""Whether the processes of a program draw an order each by itself, and deal out what they have ordered."""

from __future__ import annotations

from allranks.check.interpret.values import CLOCK, IDENTITY, PROCESS, RANKS
from allranks.check.program import Event, Program
from allranks.check.tables.seeds import SEEDERS, STATES
from allranks.findings import Place

_TRAINER = "lightning.pytorch.Trainer"


def drawn_apart(program: Program, place: Place) -> bool:
    """Whether the programs that come to ``place`` deal data out by number, and set no seed that all processes share."""
    here = [event for event in program.events if event.active and event.place.path == place.path]
    at = [event for event in here if event.place == place] or here
    packages, names = program.around.get(place, (program.packages, program.names))
    if not all(event.everyone for event in at) or not _deals(program, packages, names):
        return False
    roots = {event.start.place.path for event in at}
    every = [e for e in program.events if e.active and e.name in SEEDERS | STATES]
    seeds = [event for event in every if event.start.place.path in roots]
    if not at:  # nobody was seen to come here: each program that might has a seed of its own
        return bool(every) and all(map(_is_own, every))
    if place.path in roots:
        seeds = seeds or every
    return all(map(_is_own, seeds)) if seeds else not any(_seeds(name.lower()) for name in names)


def _deals(program: Program, packages: frozenset[str], names: frozenset[str]) -> bool:
    """Whether samplers, or trainers that put them in, deal out whatever data set they are given, or a data set of
    Hugging Face is dealt out by rank."""
    if trains_alone(program):
        return False
    if "split_dataset_by_node" in names:
        return True
    trained = "Trainer" in names and "lightning" in packages
    return trained or "DistributedSampler" in names or "transformers" in packages or "Accelerator" in names


def trains_alone(program: Program) -> bool:
    """Whether Lightning is given one device wherever it is told of them."""
    trainers = [event for event in program.events if event.name == _TRAINER]
    return bool(trainers) and all(map(_is_alone, trainers))


def _is_own(seeder: Event) -> bool:
    seed, apart = seeder.argument(0, "seed"), seeder.argument("device_specific")
    own = seed is not None and seed.taint & (RANKS | CLOCK | PROCESS | IDENTITY)
    return bool(own) or (apart is not None and apart.constant is True)


def _is_alone(trainer: Event) -> bool:
    """One device for certain: who leaves it to Lightning gets all that there are."""
    devices = trainer.argument("devices", "gpus")
    return devices is not None and devices.constant in (1, "1")


def _seeds(name: str) -> bool:
    """Whether a name may be that of what sets a seed where nobody looks."""
    return "seed" in name and name not in ("seed", "use_seed", "random_seed")
