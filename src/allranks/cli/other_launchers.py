"""Recognise options of other launchers, and name their equivalents in ``allranks run``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

_RANKS = "write -n {value}"
_OUTPUT = "leave it out; --log-dir DIR keeps the output of each rank"
# Options of torchrun that `allranks run` does not know, then of accelerate launch, srun and mpirun. A dash also matches
# an underscore.
ANSWERS = {
    "--nproc-per-node": _RANKS,
    "--rdzv-conf": "write --rendezvous-timeout SECONDS",
    "--module": "write -m, before the name of the module",
    "--no-python": "write -- before the command",
    "--redirects": _OUTPUT,
    "-r": _OUTPUT,
    "--local-addr": "leave it out; the other hosts find host 0 by --coordinator HOST:PORT",
    "--num-processes": _RANKS,
    "--num-machines": "write --hosts {value}",
    "--machine-rank": "write --host-rank {value}",
    "--main-process-ip": "write --coordinator HOST:PORT",
    "--main-process-port": "write --coordinator HOST:PORT",
    "--nproc": _RANKS,
    "--ntasks": _RANKS,
    "-np": _RANKS,
}


def answer(arguments: Sequence[str], takes_value: Mapping[str, bool]) -> str:
    """Return what to write instead of the first option that belongs to another launcher or is misspelled; "" for none.

    ``arguments`` are the arguments of ``allranks run``; ``takes_value`` has its options. Words after the script belong
    to the script.
    """
    skip = False
    for word, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, _, value = word.partition("=")
        if skip:
            skip = False
        elif not name.startswith("-") or name in ("--", "-m"):
            return ""
        elif name in takes_value:
            skip = takes_value[name] and not value
        elif (found := ANSWERS.get(name.replace("_", "-"))) is not None:
            number = value or (following if following.isdecimal() else "N")
            return f"no option {name}: {found.format(value=number)}."
        elif own := [option for option in takes_value if option.startswith(name)]:  # argparse takes a beginning
            skip = takes_value[own[0]] and not value
        elif name.startswith("--"):
            near = get_close_matches(name.replace("_", "-"), takes_value, n=1)
            return f"no option {name}" + (f": did you mean {near[0]}?" if near else ".")
    return ""
