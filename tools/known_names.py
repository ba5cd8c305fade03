"""Write src/allranks/names/xla_flags.txt: which flags of XLA_FLAGS each version of jaxlib accepts.

    python tools/known_names.py 0.4.13=/tmp/jaxlib-0.4.13? 0.6.2=/tmp/jaxlib-0.6.2 0.10.2=/path/to/site-packages

A folder is what `pip download --no-deps jaxlib==V` unpacks to. The names are taken out of the binaries and given to
that jaxlib in a child process, which says what it does not know: the words of a binary alone would be guesses. A
question mark asks for the words alone: a jaxlib before 0.4.26 does not say what it does not know.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src" / "allranks" / "names" / "xla_flags.txt"
WORD = re.compile(rb"(?<![a-z0-9_])xla_[a-z0-9_]{3,79}(?![a-zA-Z0-9_./])")
UNKNOWN = re.compile(r"Unknown flags? in XLA_FLAGS: (.*)")
REFUSED = "Flag parsing failed"
PROGRAM = "from jaxlib import xla_client; xla_client.CompileOptions().SerializeAsString()"
# XLA's message is cut at 15,000 characters.
AT_ONCE = 100
HEAD = """\
# Flags of XLA that jaxlib accepts, written by tools/known_names.py. After a name: one digit a version, 1 = accepted.
"""


def candidates(folder: Path) -> list[str]:
    """Return the words of the binaries that could be flags."""
    found: set[bytes] = set()
    for path in (folder / "jaxlib").rglob("*.so"):
        found.update(WORD.findall(path.read_bytes()))
    return sorted(word.decode() for word in found)


def accepted(names: list[str], folder: Path) -> set[str]:
    """Return those of the names that the jaxlib in ``folder`` accepts; what it refuses the value of, it knows."""
    if not names:
        return set()
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "XLA_FLAGS": " ".join(f"--{name}=1" for name in names), "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if said.returncode == 0:
        return set(names)
    if unknown := UNKNOWN.search(said.stderr):
        out = {word.removeprefix("--").partition("=")[0] for word in unknown[1].split()}
        return accepted([name for name in names if name not in out], folder) if out & set(names) else set()
    if REFUSED not in said.stderr:
        raise SystemExit(f"jaxlib in {folder} ends with {said.returncode}: {said.stderr[-2000:]}")
    if len(names) == 1:
        return set(names)
    half = len(names) // 2
    return accepted(names[:half], folder) | accepted(names[half:], folder)


def flags_of(names: list[str], folder: Path) -> set[str]:
    """Return those of the names that the jaxlib in ``folder`` accepts, asked in parts."""
    found = set[str]()
    while names:
        parts = [names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)]
        new = set[str]().union(*(accepted(part, folder) for part in parts))
        found |= new
        # After a flag whose value it refuses, XLA calls known flags unknown: ask for the rest again.
        names = [name for name in names if name not in found] if new else []
    return found


def main(arguments: list[str]) -> None:
    """Write the list for the versions given, oldest first."""
    folders = {version: Path(folder.rstrip("?")) for version, _, folder in (a.partition("=") for a in arguments)}
    mute = {a.partition("=")[0] for a in arguments if a.endswith("?")}
    # A name may be built of parts in one binary and stand whole in another.
    words = sorted(set().union(*(candidates(folder) for folder in folders.values())))
    by_version = {v: set(candidates(f)) if v in mute else flags_of(words, f) for v, f in folders.items()}
    names = sorted(set().union(*by_version.values()))
    lines = [f"{name} {''.join(str(int(name in known)) for known in by_version.values())}" for name in names]
    TARGET.write_text(f"{HEAD}versions {' '.join(by_version)}\n" + "\n".join(lines) + "\n")
    print(f"{len(names)} flags in {TARGET}: " + ", ".join(f"{v} {len(known)}" for v, known in by_version.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
