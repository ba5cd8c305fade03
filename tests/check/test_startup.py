"""What a program does first, in all its files: the backend starts before the processes join, a variable is set late."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

JOINS = """\
import jax
{imports}

def join():
    jax.distributed.initialize()

def main():
{first}
    join()

main()
"""
LAYERS = {
    "layers.py": "import jax.numpy as jnp\n\nROPE = jnp.arange(8)\n",
    "config.py": "import dataclasses\nimport jax\n\n@dataclasses.dataclass\nclass Config:\n"
    "    rows: int = 4\n    data: int = dataclasses.field(default_factory=lambda: jax.device_count() // 2)\n",
    "report.py": "import jax\n\ndef show(loud=True):\n    if not loud:\n        return\n    print(jax.devices())\n\n"
    "def count():\n    print('devices')\n    return jax.device_count()\n",
    "keys.py": "import jax\n\ndef draw(key=jax.random.PRNGKey(0)):\n    return key\n",
    "package/__init__.py": "from package.tools import make\n",
    "package/tools.py": "import jax\n\ndef make():\n    with open('log') as file:\n        return jax.devices()\n",
    "run.py": "import jax\n\nif __name__ == '__main__':\n    print(jax.devices(), 'XLA_FLAGS')\n",
}
STARTED = {
    "a constant of a module": ("import layers", "    pass"),
    "a field of an object": ("from config import Config", "    cfg = Config(8)"),
    "a function": ("import report", "    n = report.count()"),
    "a default value": ("from keys import draw", "    pass"),
    "what a package passes on": ("import package", "    package.make()"),
    "a function that is run": ("from absl import app\nfrom package.tools import make", "    app.run(make)"),
}
NOT_STARTED = {
    "a field that is given": ("from config import Config", "    cfg = Config(8, data=2)"),
    "perhaps": ("import report", "    report.show()"),
    "under a condition": ("import report", "    if debug:\n        report.count()"),
    "in a choice": ("import report", "    n = report.count() if alone else 0"),
    "later": ("import report", "    later = report.count"),
    "what another program does": ("import run", "    pass"),
    "a parameter of the same name": ("import report", "    def inner(report):\n        report.count()\n    inner(1)"),
}


@pytest.mark.parametrize(
    ("imports", "first", "expected"),
    [
        *(pytest.param(*case, ["AR602"], id=name) for name, case in STARTED.items()),
        *(pytest.param(*case, [], id=name) for name, case in NOT_STARTED.items()),
    ],
)
def test_what_another_file_does_before_the_processes_join(imports: str, first: str, expected: list[str]) -> None:
    sources = {"train.py": JOINS.format(imports=imports, first=first), **LAYERS}
    found = check({p: text.encode() for p, text in sources.items()}, Settings(select=("AR602",))).findings
    assert [finding.code for finding in found] == expected


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        ("start.flags()", "start.devices()", []),
        ("start.devices()", "start.flags()", [9]),
        ("start.devices()", "start.platform()", [13]),
    ],
)
def test_a_variable_that_another_file_sets_late(first: str, then: str, expected: list[int]) -> None:
    start = (
        "import os\n\n\ndef devices():\n    import jax\n    return jax.devices()\n\ndef flags():\n"
        "    os.environ['XLA_FLAGS'] = '--xla_dump_to=dump'  # a comment\n\n\ndef platform():\n"
        "    os.environ.setdefault(\n        'JAX_PLATFORMS',\n        'cpu',\n    )\n"
    )
    main = f"import start\n\nif __name__ == '__main__':\n    {first}\n    {then}\n"
    sources = {"main.py": main.encode(), "start.py": start.encode()}
    found = check(sources, Settings(select=("AR603",))).findings
    assert [finding.place.line for finding in found] == expected
