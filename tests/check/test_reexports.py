"""A package that exports a function of a module with the same name: the trainer is entered."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = (
    "import pickle\n\ndef train(state):\n    with open('last.pkl', 'wb') as file:\n        pickle.dump(state, file)\n"
)
MAINS = {
    "a name of the package": "from pkg import train\nimport jax\njax.distributed.initialize()\ntrain({})\n",
    "an attribute of the package": "import pkg\nimport jax\njax.distributed.initialize()\npkg.train({})\n",
    "the module itself": "from pkg.train import train\nimport jax\njax.distributed.initialize()\ntrain({})\n",
}


@pytest.mark.parametrize("main", MAINS)
@pytest.mark.parametrize("export", ["from .train import train\n", "from pkg.train import train\n"])
def test_a_function_with_the_name_of_its_module_is_entered(main: str, export: str) -> None:
    files = {"main.py": MAINS[main], "pkg/__init__.py": export, "pkg/train.py": TRAIN}
    found = check({path: text.encode() for path, text in files.items()}, Settings()).findings
    assert [(f.code, f.place.path, f.place.line) for f in found] == [("AR101", "pkg/train.py", 5)]


def test_a_module_stays_a_module_where_nothing_else_has_its_name() -> None:
    files = {"main.py": MAINS["a name of the package"], "pkg/__init__.py": "", "pkg/train.py": TRAIN}
    found = check({path: text.encode() for path, text in files.items()}, Settings()).findings
    assert [f.code for f in found if f.confidence == "high"] == []
