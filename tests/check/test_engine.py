"""What the engine must see and what it must not: roles, traces, values, across files and in disguise."""

from __future__ import annotations

import textwrap

import pytest
from pairs import HEAD

from allranks.check.engine import Settings, check


def codes(files: dict[str, str] | str, **settings: str) -> list[str]:
    """Return the codes found, in order of place."""
    sources = {"train.py": HEAD + textwrap.dedent(files)} if isinstance(files, str) else files
    assume = "multi-host" if settings.get("assume") == "multi-host" else "auto"
    outcome = check({path: text.encode() for path, text in sources.items()}, Settings(assume=assume))
    return [finding.code for finding in outcome.findings if finding.code[:3] in ("AR1", "AR2")]


SILENT = {
    "a guard by comparison": "if rank == 0:\n    torch.save({}, 'm.pt')",
    "a guard by truth": "if not rank:\n    torch.save({}, 'm.pt')",
    "an early return": """
        def save():
            if rank != 0:
                return
            torch.save({}, 'm.pt')
        save()
        """,
    "a predicate of the project": """
        def is_main():
            return not dist.is_available() or not dist.is_initialized() or dist.get_rank() == 0
        if is_main():
            torch.save({}, 'm.pt')
        """,
    "a predicate in a variable": "main = rank == 0\nif main and os.environ.get('SAVE'):\n    torch.save({}, 'm.pt')",
    "a predicate in an attribute": """
        class Trainer:
            def __init__(self):
                self.is_boss = dist.get_rank() == 0
            def save(self):
                if self.is_boss:
                    torch.save({}, 'm.pt')
        Trainer().save()
        """,
    "a flag that one process sets alone": """
        ddp = int(os.environ.get('RANK', -1)) != -1
        if ddp:
            boss = int(os.environ['RANK']) == 0
        else:
            boss = True
        if boss:
            torch.save({}, 'm.pt')
        """,
    "a decorator": """
        def on_main(f):
            def wrapper(*args, **kwargs):
                if dist.get_rank() == 0:
                    return f(*args, **kwargs)
            return wrapper
        @on_main
        def save():
            torch.save({}, 'm.pt')
        save()
        """,
    "a function that is only called under a guard": """
        def save():
            torch.save({}, 'm.pt')
        if rank == 0:
            save()
        """,
    "an object that exists on rank 0 alone": """
        log = open('log.txt', 'w') if rank == 0 else None
        if log is not None:
            open('again.txt', 'w')
        """,
    "the rank in the path": "torch.save({}, os.path.join('out', f'{rank}.pt'))",
    "a file in memory": "import io\nbuffer = io.BytesIO()\ntorch.save({}, buffer)",
    "rank 0 first, then the others": """
        if rank != 0:
            dist.barrier()
        print('reads')
        if rank == 0:
            dist.barrier()
        """,
    "a context that lets rank 0 go first": """
        from contextlib import contextmanager
        @contextmanager
        def first():
            if rank != 0:
                dist.barrier()
            yield
            if rank == 0:
                dist.barrier()
        with first():
            open('cache.bin', 'wb')
        """,
    "both sides meet": """
        x = torch.zeros(1)
        if rank == 0:
            dist.broadcast(x, 0)
        else:
            dist.broadcast(x, 0)
        """,
    "many processes is no rank": "if dist.get_world_size() > 1 and rank != -1:\n    dist.barrier()",
    "a constant that switches it off": """
        def log(x, sync=True):
            if sync:
                dist.all_reduce(x)
        if rank == 0:
            log(torch.zeros(1), sync=False)
        """,
    "a decision that was broadcast": """
        found = [os.path.exists('last.pt')]
        dist.broadcast_object_list(found, 0)
        if found[0]:
            dist.barrier()
        """,
    "a sub-group": "group = dist.new_group([0, 1])\nif rank in (0, 1):\n    dist.all_reduce(1, group=group)",
    "an attribute read by its name": """
        def save(*, is_main):
            if is_main:
                torch.save({}, 'm.pt')
        def hook(accelerator):
            save(is_main=getattr(accelerator, 'is_main_process', True))
        hook(1)
        """,
    "a query chosen by its name": """
        def ask(variable, default, query=None):
            if dist.is_initialized() and query is not None:
                return int(getattr(dist, query)())
            if variable in os.environ:
                return int(os.environ[variable])
            return default
        if ask('RANK', 0, query='get_rank') == 0:
            torch.save({}, 'm.pt')
        if ask('RANK', 0) == 0:
            torch.save({}, 'm.pt')
        """,
    "a variable of the environment, or what stands in for it": """
        def first():
            return int(os.environ.get('RANK') or 0)
        def asked():
            return int(os.environ.get('MY_RANK') or first())
        if asked() == 0:
            torch.save({}, 'm.pt')
        """,
    "waits switched off by the rank that is given": """
        from contextlib import contextmanager
        @contextmanager
        def first(rank):
            if rank not in [-1, 0]:
                dist.barrier()
            yield
            if rank == 0:
                dist.barrier()
        def load(rank):
            with first(rank):
                return 1
        if rank in [-1, 0]:
            load(-1)
        """,
    "a starred rank": """
        class Options:
            pass
        opt = Options()
        ranks = opt.global_rank, opt.local_rank
        opt.resume, opt.global_rank, opt.local_rank = True, *ranks
        if opt.local_rank != -1:
            dist.barrier()
        """,
    "an error on one rank": "if rank == 0 and not os.path.exists('data'):\n    raise SystemExit(1)\ndist.barrier()",
}
FOUND = {
    "a gate on the rank": ("if rank == 0:\n    dist.barrier()", ["AR201"]),
    "a ternary": ("x = dist.all_reduce(torch.zeros(1)) if rank == 0 else None", ["AR201"]),
    "an and": ("rank == 0 and dist.barrier()", ["AR201"]),
    "one rank of many": ("if rank == 3:\n    dist.barrier()", ["AR201"]),
    "with a step": ("for step in range(9):\n    if rank == 0 and step % 3 == 0:\n        dist.barrier()", ["AR201"]),
    "leaves the loop": ("for x in range(9):\n    if rank == 0:\n        break\n    dist.barrier()", ["AR209"]),
    "a group of all made by one": ("if rank == 0:\n    dist.new_group([0])", ["AR201"]),
    "a file decides": ("if not os.path.exists('x'):\n    dist.barrier()", ["AR203"]),
    "order": (
        "if rank == 0:\n    dist.all_reduce(1)\n    dist.barrier()\nelse:\n    dist.barrier()\n    dist.all_reduce(1)",
        ["AR211"],
    ),
    "deletes": ("import shutil\nshutil.rmtree('out')", ["AR109"]),
    "in a branch that all take": ("if os.environ.get('SAVE'):\n    torch.save({}, 'm.pt')", ["AR101"]),
    "pickle in a file": ("import pickle\nwith open('m', 'wb') as f:\n    pickle.dump({}, f)", ["AR101"]),
}


@pytest.mark.parametrize("case", SILENT)
def test_right_code_is_silent(case: str) -> None:
    """Each was seen as a false alarm of a naive matcher in good public code."""
    assert codes(SILENT[case]) == []


@pytest.mark.parametrize("case", FOUND)
def test_a_fault_is_found(case: str) -> None:
    """One fault, one finding, of the right kind."""
    text, expected = FOUND[case]
    assert codes(text) == expected


DISGUISES = {
    "plain": {"train.py": HEAD + "if rank == 0:\n    dist.all_reduce(torch.zeros(1))\n"},
    "another alias": {"train.py": "from torch import distributed as d\nif d.get_rank() == 0:\n    d.all_reduce(1)\n"},
    "names of their own": {
        "train.py": "from torch.distributed import all_reduce as join, get_rank as who\nif who() == 0:\n    join(1)\n"
    },
    "in another file": {
        "train.py": "from lib.sync import mean\nfrom lib.ranks import boss\nif boss():\n    mean(1)\n",
        "lib/sync.py": "import torch.distributed as dist\n\ndef mean(x):\n    dist.all_reduce(x)\n    return x\n",
        "lib/ranks.py": "import torch.distributed as dist\n\ndef boss():\n    return dist.get_rank() == 0\n",
    },
    "re-exported": {
        "train.py": "import lib\nif lib.boss():\n    lib.mean(1)\n",
        "lib/__init__.py": "from .sync import mean\nfrom .ranks import boss\n",
        "lib/sync.py": "import torch.distributed as dist\n\ndef mean(x):\n    dist.all_reduce(x)\n",
        "lib/ranks.py": "import torch.distributed as d\nRANK = d.get_rank()\n\ndef boss():\n    return RANK == 0\n",
    },
    "a method, inherited": {
        "train.py": "from base import Base\n\nclass Run(Base):\n    def go(self):\n        if self.boss:\n"
        "            self.mean(1)\n\nRun().go()\n",
        "base.py": "import torch.distributed as dist\n\nclass Base:\n    @property\n    def boss(self):\n"
        "        return dist.get_rank() == 0\n\n    def mean(self, x):\n        dist.all_reduce(x)\n",
    },
    "a decorator gates it": {
        "train.py": "import torch.distributed as dist\nfrom lightning.pytorch.utilities import rank_zero_only\n\n"
        "@rank_zero_only\ndef log(x):\n    dist.all_reduce(x)\n\nlog(1)\n"
    },
    "a partial": {
        "train.py": "import functools\n"
        + HEAD
        + "mean = functools.partial(dist.all_reduce, 1)\n\ndef f(g):\n    g()\n\n"
        "def m():\n    dist.all_reduce(1)\n\nif rank == 0:\n    f(m)\n"
    },
}


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_disguise_does_not_hide_a_fault(disguise: str) -> None:
    """Renamed, moved, inherited, decorated: the same collective under the same guard."""
    assert codes(DISGUISES[disguise]) == ["AR201"]


def test_a_single_process_program_is_silent_until_asked() -> None:
    """No evidence of several processes, no finding; ``multi-host`` asks whether it would survive them."""
    script = {"train.py": "import torch\ntorch.save({}, 'm.pt')\n"}
    assert codes(script) == []
    assert codes(script, assume="multi-host") == ["AR101"]


def test_a_finding_tells_the_way_to_it() -> None:
    """The calls from the entry are notes, each with its place."""
    files = {
        "train.py": HEAD + "from lib import save\nsave()\n",
        "lib.py": "import torch\n\ndef save():\n    torch.save({}, 'm')\n",
    }
    (finding,) = check({path: text.encode() for path, text in files.items()}, Settings(select=("AR101",))).findings
    assert (finding.place.path, finding.place.line, finding.symbol) == ("lib.py", 4, "lib.save")
    assert [(note.place.path, note.place.line) for note in finding.notes if note.place] == [("train.py", 8)]


def test_columns_are_counted_in_characters() -> None:
    """The parser counts bytes; a reader counts characters."""
    text = HEAD + "name = 'é'; torch.save({}, 'm')\n"
    (finding,) = check({"train.py": text.encode()}, Settings(select=("AR101",))).findings
    assert finding.place.column == len("name = 'é'; ") + 1


@pytest.mark.parametrize("text", ["x = " + "(" * 3000 + ")" * 3000, "x = " + "-" * 50_000 + "1", "\0", "match x:\n"])
def test_what_cannot_be_read_is_a_finding(text: str) -> None:
    """Nested without end, null bytes, half a statement: the rest of the project is checked all the same."""
    sources = {"odd.py": text.encode(), "train.py": (HEAD + "torch.save({}, 'm')\n").encode()}
    assert [f.code for f in check(sources, Settings(select=("AR9", "AR101"))).findings] == ["AR900", "AR101"]


def test_the_rank_given_counts_in_a_call_too_many() -> None:
    """A function that is called in more ways than are looked at: a rank of -1 still switches its waits off."""
    text = """
        def load(kind, rank):
            if rank not in [-1, 0]:
                dist.barrier()
            if rank == 0:
                dist.barrier()
        for kind in (load(1, rank), load(2, rank), load(3, rank), load(4, rank)):
            pass
        if rank == 0:
            load(5, -1)
        """
    assert codes(text) == []


def test_circles_come_to_an_end() -> None:
    """Modules that import each other, functions that call each other, a class that inherits from itself."""
    files = {
        "a.py": "from b import g\n\ndef f(n):\n    return g(n)\n\nclass A(A):\n    pass\n\nf(1)\n",
        "b.py": "from a import f\nimport torch.distributed as dist\n\ndef g(n):\n    dist.barrier()\n    return f(n)\n",
    }
    assert codes(files) == []


def test_the_report_has_a_place_for_every_tick() -> None:
    """Nine rows; findings decide; what speaks for a row is shown; where nothing was seen, that is said."""
    text = HEAD + "if rank == 0:\n    torch.save({}, 'm')\nimport shutil\nshutil.rmtree('out')\n"
    outcome = check({"train.py": text.encode()}, Settings())
    verdicts = {row.topic: row.verdict for row in outcome.rows}
    assert verdicts["initialisation"] == verdicts["checkpoint save"] == verdicts["collectives"] == "ok"
    assert verdicts["gating"] == "error"
    assert verdicts["data"] == verdicts["randomness"] == "not seen"
    assert all(note.place for row in outcome.rows for note in row.evidence)
    assert all(row.evidence for row in outcome.rows if row.verdict != "not seen")


def test_calls_may_be_nested_however_deep() -> None:
    """Each function of a chain of 700 is followed from itself: what lies below is asked of without recursion."""
    chain = [f"def f{at}(x):\n    f{at + 1}(x)\n    dist.all_reduce(x)\n" for at in range(700)]
    program = "\n".join([*chain, "def f700(x):\n    torch.save(x, 'x.pt')\n", "f0(torch.ones(1).cuda())\n"])
    assert codes(program)[:1] == ["AR101"]


def test_handlers_of_groups_are_read_like_others() -> None:
    program = "try:\n    torch.ones(1).backward()\nexcept* ValueError:\n    torch.save({}, 'm.pt')\n"
    assert codes(program) == ["AR101"]
