"""Which functions of a project can matter."""

from __future__ import annotations

from textwrap import dedent

from allranks.check.engine import summaries_of
from allranks.check.interpret.interest import MANY, Names, interesting
from allranks.check.reading import Memory
from allranks.check.summaries.project import Project
from allranks.check.tables.apis import apis

STEP = "import torch.distributed as dist\nmean_of_all = dist.get_rank()\n"
DRAWS = "def draw():\n    return mean_of_all\n"


def matter(files: dict[str, str]) -> frozenset[str]:
    project = Project(summaries_of({path: dedent(text).encode() for path, text in files.items()}, Memory()))
    return interesting(project, Names(project), apis())


def test_a_variable_is_meant_where_its_module_is_imported() -> None:
    """Nobody means the variable of a program, nor that of another module who has one of the name, or a parameter."""
    reader = f"import step\n{DRAWS}"
    assert "reader.py::draw" in matter({"step.py": STEP, "reader.py": reader})
    assert "reader.py::draw" not in matter({"step.py": STEP, "reader.py": DRAWS})
    assert "reader.py::draw" not in matter({"step.py": STEP, "reader.py": f"mean_of_all = 1\n{reader}"})
    assert "reader.py::draw" not in matter({"step.py": STEP, "reader.py": reader.replace("()", "(mean_of_all)", 1)})


def test_what_tests_define_makes_no_name_common() -> None:
    """A method that few classes of the program have is meant by whoever calls one of its name."""
    gather = "import torch.distributed as dist\nclass Data:\n    def all_batches(self):\n        dist.barrier()\n"
    calls = "".join(f"def fit{at or ''}(data):\n    data.all_batches()\n" for at in range(MANY + 1))
    user = {"data.py": gather, "train.py": calls}
    copies = {f"tests/test_{at}.py": "class Data:\n    def all_batches(self):\n        pass\n" for at in range(5)}
    others = {path.replace("tests/test", "kinds/of"): text for path, text in copies.items()}
    assert "train.py::fit" in matter({**user, **copies})
    assert "train.py::fit" not in matter({**user, **others})
