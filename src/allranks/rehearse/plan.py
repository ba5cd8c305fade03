"""Define what a user wants to rehearse, and how."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from allranks.launch.job import Call, Command, Module, Script, Target
from allranks.rehearse.fault import USUAL, Fault
from allranks.rehearse.scenario import DEFAULT, Name, Scenario
from allranks.secret_values import mask_arguments
from allranks.settings import ConfigWrong


@dataclass(frozen=True, slots=True)
class Plan:
    """What to rehearse, and how.

    - ``budget``: seconds for all runs. No run starts that would probably exceed it.
    - ``resume_arguments``: are added to the program's arguments when it starts again after a kill.
    - ``local``: folders of which each pretended host has its own copy. ``shared``: folders in the temporary folder that
      all pretended hosts share.
    - ``lines``: record every line that the quiet run reaches.
    - ``accelerator``: ``"cpu"`` lets programs that ask for CUDA run on the CPU, ``"none"`` does not.
    """

    target: Target
    ranks: int
    devices: int | None = None
    hosts: int = 2
    steps: int = 20
    names: Sequence[Name] = DEFAULT
    seeds: int = 3
    seed: int = 1
    budget: float = 120.0
    resume_arguments: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    lines: bool = False
    faults: Sequence[Fault] = USUAL
    accelerator: str = "cpu"
    batch_option: str = ""


def with_batch(target: Target, option: str, factor: int) -> Target:
    """Return a target whose option ``option`` has ``factor`` times its value. Raises ConfigWrong if it has none."""
    if isinstance(target, Call):
        raise ConfigWrong("--global-batch-arg: a function has no command line.")
    words = list(target.arguments)
    for number, word in enumerate(words):
        name, _, value = word.partition("=")
        place = number if value else number + 1
        if name != option or place >= len(words):
            continue
        old = value or words[place]
        if not old.isdecimal():
            raise ConfigWrong(f"--global-batch-arg: {option} is {old!r}, and a whole number is needed.")
        words[place] = f"{name}={int(old) * factor}" if value else str(int(old) * factor)
        return replace(target, arguments=tuple(words))
    raise ConfigWrong(f"--global-batch-arg: the program's arguments have no {option} with a value.")


def replay_command(plan: Plan, scenario: Scenario) -> str:
    """Return the command line that makes one run of a plan again."""
    default = Plan(plan.target, plan.ranks)
    words = ["allranks", "rehearse", "-n", str(plan.ranks), "--only", scenario.name]
    if scenario.seed:
        words += ["--seed", str(scenario.seed)]
    if scenario.fault:
        words += ["--fault", str(scenario.fault)]
    for option, value, usual in (
        ("-d", plan.devices, default.devices),
        ("--steps", plan.steps, default.steps),
        ("--hosts", plan.hosts, default.hosts),
        ("--accelerator", plan.accelerator, default.accelerator),
    ):
        if value != usual:
            words += [option, str(value)]
    if plan.resume_arguments:
        words.append(f"--resume-args={shlex.join(plan.resume_arguments)}")
    if plan.batch_option and scenario.name == "worlds":
        words.append(f"--global-batch-arg={plan.batch_option}")
    for option, paths in (("--local", plan.local), ("--shared", plan.shared)):
        words += [word for path in paths for word in (option, path)]
    return shlex.join(mask_arguments([*words, *_command(plan.target)]))


def command_line(target: Target) -> str:
    """Return the words for a target after the options of ``allranks rehearse``."""
    return shlex.join(mask_arguments(_command(target)))


def _command(target: Target) -> tuple[str, ...]:
    if isinstance(target, Script):
        return (target.path, *target.arguments)
    if isinstance(target, Module):
        return ("-m", target.name, *target.arguments)
    return ("--", *(target.arguments if isinstance(target, Command) else target.argv("python")))
