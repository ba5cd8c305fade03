"""What numbers count: devices of all processes, of this one, processes; followed through a file."""

from __future__ import annotations

import ast
import textwrap

import pytest

from allranks.check.engine import Settings, check
from allranks.check.sources.source import File
from allranks.check.tree.counts import device_of, devices_of, scale

HEAD = "import jax\nimport numpy as np\nfrom jax import local_device_count as here\n\n"
# What `probe` is given -> own devices, processes, pure.
NUMBERS = {
    "probe(jax.device_count())": (1, 1, True),
    "probe(len(jax.devices()))": (1, 1, True),
    "probe(here() * jax.process_count())": (1, 1, True),
    "probe(jax.device_count() // jax.process_count())": (1, 0, True),
    "n = len(jax.local_devices())\nprobe(int(n))": (1, 0, True),
    "probe(batch // jax.device_count() * here())": (0, -1, False),
    "size = 32\nsize *= jax.device_count()\nprobe(size)": (1, 1, False),
    "def f(n=None):\n    n = n or jax.device_count()\n    probe(n)": (1, 1, True),
    "def f(n=None):\n    if not n:\n        n = jax.device_count()\n    probe(n)": (1, 1, True),
    "def f(size):\n    size //= jax.process_count()\n    probe(size)": (0, -1, False),
    "def f(n):\n    probe(n)\n\nf(jax.device_count())": (1, 1, True),
    "def all_of_them():\n    return jax.device_count()\n\nprobe(all_of_them())": (1, 1, True),
    "class A:\n    def __init__(self):\n        self.n = jax.device_count()\n    def f(self):\n        probe(self.n)": (
        1,
        1,
        True,
    ),
    # What nobody can know, or what counts nothing.
    "probe(8)": None,
    "probe(jax.device_count() + 1)": None,
    "def f(n):\n    probe(n)\n\nf(jax.device_count())\nf(here())": None,
    "def f(n):\n    probe(n)\n\nf(jax.device_count())\nf(config.n)": None,
    "n = here() if pmap else jax.device_count()\nprobe(n)": None,
    "def f():\n    if pmap:\n        n = here()\n    else:\n        n = jax.device_count()\n    probe(n)": None,
    "def f():\n    n = jax.device_count()\n    n = 4\n    probe(n)": None,
    "for n in jax.devices():\n    probe(n)": None,
    "ns = []\nns.append(jax.device_count())\nprobe(ns)": None,
    "n, m = f(jax.device_count())\nprobe(n)": None,
}


def probed(text: str) -> tuple[ast.expr, File]:
    file = File("a.py", HEAD + text, ast.parse(HEAD + text))
    calls = [n for n in ast.walk(file.tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    return next(call.args[0] for call in calls if call.func.id == "probe"), file  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_is_followed_to_what_it_counts(text: str) -> None:
    """Through names, parameters, attributes, helpers and arithmetic; where ways differ, nothing is said."""
    found = scale(*probed(text))
    assert (None if found is None else (found.own, found.processes, found.pure)) == NUMBERS[text]


DEVICES = {
    "probe(jax.devices())": "all",
    "def f():\n    found = list(jax.devices())[:4]\n    probe(found)": "all",
    "probe(jax.local_devices())": "own",
    "probe(jax.devices('cpu'))": "all",
    "probe(mesh.devices)": None,
}


@pytest.mark.parametrize("text", DEVICES)
def test_whose_devices_a_list_holds(text: str) -> None:
    """Those of a named backend, as the CPU, are this host's own, or nobody knows."""
    assert devices_of(*probed(text)) == DEVICES[text]


@pytest.mark.parametrize(
    ("text", "whose"),
    [
        ("probe(jax.devices()[0])", "all"),
        ("first = jax.devices()[0]\nprobe(first)", "all"),
        ("for device in jax.local_devices():\n    probe(device)", "own"),
        ("probe(jax.devices()[jax.process_index()])", None),
        ("probe(jax.devices())", None),
    ],
)
def test_whose_one_device_is(text: str, whose: str | None) -> None:
    """By a constant index, or in a loop."""
    assert device_of(*probed(text)) == whose


KEYS = """
import jax

draw = jax.pmap(lambda key: jax.random.normal(key, ()))


def sample(key):
    return draw(jax.random.split(key, jax.device_count()))
"""
ENTRY = "import jax\nimport {}\n\nprint({}.sample(jax.random.PRNGKey(0)))\n"
ASKING = "import jax\n\ndef first():\n    return jax.process_index() == 0\n"


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ({}, 0),  # nobody asks which process this is
        ({"main.py": ENTRY.format("keys", "keys") + "print(jax.process_index())\n"}, 1),
        ({"where.py": ASKING, "keys.py": "import where\n" + KEYS}, 1),
        ({"where.py": ASKING, "main.py": "import keys\nimport where\n"}, 1),
        ({"where.py": ASKING}, 0),  # another program
        ({"test_keys.py": "import jax\nimport keys\n\nassert jax.process_index() == 0\n"}, 0),
    ],
)
def test_evidence_comes_from_the_files_of_the_same_program(others: dict[str, str], found: int) -> None:
    """What a file imports, or what imports it, asks which of several processes this is; tests bear no witness."""
    sources = {"keys.py": KEYS, **others}
    outcome = check({path: textwrap.dedent(text).encode() for path, text in sources.items()}, Settings(("AR608",)))
    assert len(outcome.findings) == found


def test_under_multi_host_no_evidence_is_needed() -> None:
    """Would it survive several hosts?"""
    assert len(check({"keys.py": KEYS.encode()}, Settings(("AR608",), assume="multi-host")).findings) == 1
