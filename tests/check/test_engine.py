"""What the engine does with any project: settings, places, evidence, files that cannot be read or followed."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from allranks.check.config import Config
from allranks.check.engine import Settings, check
from allranks.check.judge import judge
from allranks.check.sources import source
from allranks.findings import Finding

HEAD = """\
import os
import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
"""
START = "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"


def found(files: dict[str, str] | str, **settings: Any) -> list[Finding]:
    """Return what is found in a project, or in a program behind `HEAD`, in order of place."""
    sources = {"train.py": HEAD + textwrap.dedent(files)} if isinstance(files, str) else files
    return list(check({path: text.encode() for path, text in sources.items()}, Settings(**settings)).findings)


def codes(files: dict[str, str] | str, **settings: Any) -> list[str]:
    """Return the codes of the rules about effects and collectives that are found."""
    return [one.code for one in found(files, **settings) if one.code[:3] in ("AR1", "AR2")]


def test_a_single_process_program_is_silent_until_asked() -> None:
    """No evidence of several processes, no finding; ``multi-host`` asks whether it would survive them."""
    script = {"train.py": "import torch\ntorch.save({}, 'm.pt')\n"}
    assert codes(script) == []
    assert codes(script, assume="multi-host") == ["AR101"]


LIBRARY = "import torch\n\nclass Runner:\n    def save(self, path):\n        torch.save(self.state, path)\n"


def test_all_code_runs_as_several_processes_where_the_user_says_so() -> None:
    """A method that nobody calls, too."""
    (one,) = found({"runner.py": LIBRARY}, assume="multi-host", select=("AR101",))
    assert (one.place.line, one.confidence) == (5, "high")


def test_a_finding_has_the_way_to_it() -> None:
    """The calls from the entry are notes, each with its place."""
    files = {
        "train.py": HEAD + "from lib import save\nsave()\n",
        "lib.py": "import torch\n\ndef save():\n    torch.save({}, 'm')\n",
    }
    (finding,) = found(files, select=("AR101",))
    assert (finding.place.path, finding.place.line, finding.symbol) == ("lib.py", 4, "lib.save")
    assert [(note.place.path, note.place.line) for note in finding.notes if note.place] == [("train.py", 8)]


def test_columns_are_counted_in_characters() -> None:
    """The parser counts bytes; a reader counts characters."""
    (finding,) = found("name = 'é'; torch.save({}, 'm')\n", select=("AR101",))
    assert finding.place.column == len("name = 'é'; ") + 1


@pytest.mark.parametrize("text", ["x = " + "(" * 3000 + ")" * 3000, "x = " + "-" * 50_000 + "1", "\0", "match x:\n"])
def test_what_cannot_be_read_is_a_finding(text: str) -> None:
    """Nested without end, null bytes, half a statement: the rest of the project is checked all the same."""
    files = {"odd.py": text, "train.py": HEAD + "torch.save({}, 'm')\n"}
    assert [one.code for one in found(files, select=("AR9", "AR101"))] == ["AR900", "AR101"]


def test_circles_come_to_an_end() -> None:
    """Modules that import each other, functions that call each other, a class that inherits from itself."""
    files = {
        "a.py": "from b import g\n\ndef f(n):\n    return g(n)\n\nclass A(A):\n    pass\n\nf(1)\n",
        "b.py": "from a import f\nimport torch.distributed as dist\n\ndef g(n):\n    dist.barrier()\n    return f(n)\n",
    }
    assert codes(files) == []


def test_a_chain_of_calls_may_be_long() -> None:
    """Of 700 functions that call each other, each is followed: from the entry, or from itself."""
    chain = [f"def f{at}(x):\n    f{at + 1}(x)\n    dist.all_reduce(x)\n" for at in range(700)]
    program = "\n".join([*chain, "def f700(x):\n    torch.save(x, 'x.pt')\n", "f0(torch.ones(1).cuda())\n"])
    assert codes(program)[:1] == ["AR101"]


DEEP = "x = torch" + ".a(1)" * 400


def test_a_function_that_is_nested_too_deeply_is_named() -> None:
    """What was understood of it is found all the same."""
    program = f"{START}import torch\n\ndef f():\n    torch.save({{}}, 'm.pt')\n    {DEEP}\n    dist.barrier()\n\nf()\n"
    findings = found({"train.py": program})
    assert [(one.code, one.severity, one.place.line) for one in findings] == [
        ("AR101", "error", 7),
        ("AR903", "info", 8),
    ]


def test_several_such_functions_are_named_in_one_remark() -> None:
    """A program of which much is too deep drowns no finding in remarks."""
    body = f"    {DEEP}\n    dist.barrier()\n"
    (one,) = found({"train.py": f"{START}import torch\n\ndef f():\n{body}\ndef g():\n{body}\nf()\ng()\n"})
    assert one.message.endswith("; and 1 more")
    assert [note.place.line for note in one.notes if note.place] == [11]


def test_a_main_call_by_a_computed_name_is_said_not_to_be_followed() -> None:
    program = START + "import sys\ndef train():\n    dist.barrier()\ngetattr(sys.modules[__name__], sys.argv[1])()\n"
    (one,) = found({"train.py": program})
    assert (one.code, one.place.line) == ("AR903", 7)


def test_ways_that_reach_too_many_collectives_are_given_up() -> None:
    """Each function doubles the sequence of the one before; the findings of others hold."""
    chain = "".join(f"def f{n}():\n    f{n + 1}()\n    f{n + 1}()\n" for n in range(15))
    program = f"{START}import torch\n{chain}def f15():\n    dist.barrier()\nf0()\ntorch.save({{}}, 'a.pt')\n"
    findings = found({"train.py": program})
    assert [one.code for one in findings] == ["AR903", "AR101"]
    assert "reach more than 20,000 collectives" in findings[0].message


def test_a_rule_that_would_take_too_many_steps_gives_up_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have looked at the file nevertheless."""
    monkeypatch.setattr(source, "MOST_STEPS", 1)
    program = """
        local = int(os.environ["LOCAL_RANK"])
        mine = sorted(os.listdir("data"))[local :: dist.get_world_size()]
        torch.save({}, "last.pt")
        """
    findings = found(program)
    gave_up = [one for one in findings if one.code == "AR903"]
    assert gave_up
    assert all("it takes more than 1 steps from name to name" in one.message for one in gave_up)
    assert {one.severity for one in gave_up} == {"info"}
    assert "AR101" in {one.code for one in findings}


def test_handlers_of_exception_groups_are_read() -> None:
    """As other handlers are."""
    program = "try:\n    torch.ones(1).backward()\nexcept* ValueError:\n    torch.save({}, 'm.pt')\n"
    assert codes(program) == ["AR101"]


EACH_NODE = """
def save(folder):
    torch.save({}, os.path.join(folder, 'm.pt'))

if int(os.environ['LOCAL_RANK']) == 0:
    save(FOLDER)
"""


@pytest.mark.parametrize(
    ("folder", "settings", "is_shared"),
    [
        ("'/data/run'", {}, True),
        ("'/data/run'", {"node_local_paths": ("/data/**",)}, False),
        ("f'/data/{1}'", {"node_local_paths": ("/data",)}, False),
        ("'/tmp/run'", {}, False),
        ("'/tmp/run'", {"shared_paths": ("/tmp/**",)}, True),
    ],
)
def test_a_disk_of_the_node_is_written_by_one_process_of_the_node(
    folder: str, settings: dict[str, Any], is_shared: bool
) -> None:
    """What is declared wins over what a path looks like."""
    codes_found = codes(EACH_NODE.replace("FOLDER", folder), select=("AR105",), **settings)
    assert codes_found == ["AR105"] * is_shared


def test_declared_functions_are_guards_and_collectives() -> None:
    """By their qualified names."""
    files = {"train.py": f"{HEAD}import elsewhere\nif elsewhere.leads():\n    elsewhere.share_all()\n"}
    assert codes(files) == []
    declared = {"rank_zero_predicates": ("elsewhere.leads",), "collectives": ("elsewhere.share_all",)}
    assert codes(files, **declared) == ["AR201"]


TEST_MODE = f"{HEAD}def run_test():\n    torch.save({{}}, 'a.pt')\n\nrun_test()\n"


def test_a_finding_of_low_confidence_is_counted_and_shown_when_asked_for() -> None:
    """Its row of the readiness report says nothing of it either; a comment about it is used all the same."""
    hidden = judge({"train.py": TEST_MODE.encode()}, Config())
    shown = judge({"train.py": TEST_MODE.encode()}, Config(confidence="low"))
    assert (hidden.findings, hidden.withheld) == ((), 1)
    assert ([one.code for one in shown.findings], shown.withheld) == (["AR101"], 0)
    verdicts = [{row.topic: row.verdict for row in judged.rows}["checkpoint save"] for judged in (hidden, shown)]
    assert verdicts == ["not seen", "error"]
    left = TEST_MODE.replace("'a.pt')", "'a.pt')  # allranks: ignore[AR101] a test")
    assert judge({"train.py": left.encode()}, Config()).findings == ()


def test_the_rule_that_knows_most_of_a_place_speaks_of_it() -> None:
    """Without that rule the other one does."""
    program = """
        import lightning as L
        from torchvision.datasets import MNIST
        class Data(L.LightningDataModule):
            def setup(self, stage=None):
                dist.barrier()
                self.train = MNIST("data", download=True)
        """
    assert [one.code for one in found(program, ignore=("AR605",))] == ["AR611"]
    assert [one.code for one in found(program, ignore=("AR605", "AR611"))] == ["AR106"]
