"""The readiness report: what its table takes as evidence about ranks, and what speaks for no row."""

from __future__ import annotations

import pytest

from allranks.check.config import Config
from allranks.check.engine import Settings, check
from allranks.check.judge import judge
from allranks.check.kept import read, written
from allranks.check.knowledge import tables
from allranks.check.results.shown import report_of
from allranks.findings import Row

TABLE = tables.read("readiness.toml")
TORCH = """\
import os, tempfile
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(2, 2)
"""
JAX = "import jax, numpy as np\njax.distributed.initialize()\n"
LIGHTNING = """\
import lightning as L
class Model(L.LightningModule):
    def training_step(self, batch, index):
        return batch.sum()
trainer = L.Trainer(devices=8, strategy="ddp")
trainer.fit(Model())
"""
RAY = "from ray.train.torch import TorchTrainer\nTorchTrainer(work).fit()\n"
SPAWN = "import torch.multiprocessing as mp\ndef work(rank):\n    print(rank)\nmp.spawn(work, nprocs=2)\n"
# Of each row of the table, by its topic and its place there: a program, and what the report says of it.
EVIDENCE: dict[tuple[str, int], tuple[str, str]] = {
    ("sharding", 0): (
        JAX + "mesh = jax.make_mesh((8,), ('data',))\n",
        "jax.make_mesh on all ranks",
    ),
    ("sharding", 1): (LIGHTNING, "lightning.pytorch.Trainer wraps the model on all ranks"),
    ("sharding", 2): (
        TORCH + "torch.nn.parallel.DistributedDataParallel(model)\n",
        "DistributedDataParallel wraps the model on all ranks",
    ),
    ("initialisation", 0): (TORCH, "torch.distributed.init_process_group joins the ranks, on all"),
    ("initialisation", 1): (LIGHTNING, "lightning.pytorch.Trainer joins the ranks, on all"),
    ("initialisation", 2): (SPAWN, "spawn starts the processes"),
    ("data", 0): (
        TORCH + "sampler = torch.utils.data.DistributedSampler([1, 2], shuffle=False)\n",
        "torch.utils.data.DistributedSampler gives each rank its part of the data",
    ),
    ("data", 1): (
        JAX + "import grain.python as grain\nshards = grain.ShardByJaxProcess()\n",
        "grain.python.ShardByJaxProcess gives each rank its part of the data",
    ),
    ("data", 2): (
        TORCH + "loader = torch.utils.data.DataLoader(rows, sampler=range(rank, 64, 8))\n",
        "torch.utils.data.DataLoader gets data by the rank",
    ),
    ("data", 3): (
        JAX + "batch = jax.make_array_from_process_local_data(sharding, rows)\n",
        "jax.make_array_from_process_local_data gets the rows of each rank",
    ),
    ("checkpoint save", 0): (
        TORCH + "if rank == 0:\n    torch.save({}, 'last.pt')\n",
        "torch.save: written by rank 0 alone",
    ),
    ("checkpoint save", 1): (
        TORCH + "torch.save({}, f'rng-{rank}.pt')\n",
        "torch.save: each rank writes a file of its own",
    ),
    ("checkpoint save", 2): (
        TORCH + "import torch.distributed.checkpoint as dcp\ndcp.save({}, checkpoint_id='last')\n",
        "torch.distributed.checkpoint.save: all ranks take part",
    ),
    ("checkpoint save", 3): (
        LIGHTNING + "from lightning.pytorch.callbacks import ModelCheckpoint\nModelCheckpoint()\n",
        "ModelCheckpoint saves, called on all ranks",
    ),
    ("checkpoint load", 0): (
        TORCH + "import torch.distributed.checkpoint as dcp\ndcp.load({}, checkpoint_id='last')\n",
        "torch.distributed.checkpoint.load: all ranks take part",
    ),
    ("checkpoint load", 1): (
        "from accelerate import Accelerator\naccelerator = Accelerator()\naccelerator.load_state('last')\n",
        "accelerate.Accelerator.load_state loads, called on all ranks",
    ),
    ("checkpoint load", 2): (
        TORCH + "model.load_state_dict(torch.load('last.pt', map_location='cpu'))\n",
        "torch.load: read by every rank",
    ),
    ("gating", 0): (
        TORCH + "if rank == 0:\n    open('log.txt', 'w')\n",
        "open on rank 0 alone",
    ),
    ("collectives", 0): (TORCH + "dist.barrier()\n", "torch.distributed.barrier is reached by all ranks"),
    ("timeouts", 0): (
        TORCH.replace('"gloo"', '"gloo", timeout=limit'),
        "torch.distributed.init_process_group has a timeout",
    ),
    ("randomness", 0): (TORCH + "torch.manual_seed(0)\n", "seeded alike on all ranks by torch.manual_seed"),
    ("randomness", 1): (
        TORCH + "torch.manual_seed(rank)\n",
        "torch.manual_seed gives each rank a seed of its own",
    ),
}
# Topic, and a program in which nothing speaks for it: nothing that it does is about ranks, or right.
NOTHING: dict[str, tuple[str, str]] = {
    "rank 0 loads": ("checkpoint load", TORCH + "if rank == 0:\n    model.load_state_dict(torch.load('last.pt'))\n"),
    "a file in a temporary folder": (
        "checkpoint save",
        TORCH + "with tempfile.TemporaryDirectory() as d:\n    torch.save({}, os.path.join(d, 'x.pt'))\n",
    ),
    "a tokenizer": ("checkpoint save", TORCH + "if rank == 0:\n    tokenizer.save_pretrained('out')\n"),
    "a vocabulary": (
        "checkpoint save",
        TORCH + "import pickle\nif rank == 0:\n    pickle.dump({}, open('vocab.pkl', 'wb'))\n",
    ),
    "a key by the process": ("randomness", JAX + "key = jax.random.PRNGKey(jax.process_index())\n"),
    "a part that is the same for all": ("data", JAX + "def rows(files):\n    return files.shard(8, 0)\nrows(every)\n"),
    "a loader of all rows": ("data", TORCH + "loader = torch.utils.data.DataLoader(rows, batch_size=8)\n"),
    "a print of rank 0 around a collective": (
        "gating",
        TORCH + "x = torch.zeros(1)\nif rank == 0:\n    print(dist.all_reduce(x))\n",
    ),
    "a program of one process": ("initialisation", "import torch\ntorch.manual_seed(0)\ntorch.save({}, 'a.pt')\n"),
    "a seed of one process": ("randomness", "import torch\ntorch.manual_seed(0)\ntorch.save({}, 'a.pt')\n"),
}


def row(text: str, topic: str, **files: str) -> Row:
    """Return a row of the report on a program, and on files beside it."""
    sources = {"train.py": text, **{f"{name}.py": other for name, other in files.items()}}
    rows = check({path: text.encode() for path, text in sources.items()}, Settings()).rows
    return next(one for one in rows if one.topic == topic)


def test_every_row_of_the_table_has_a_program() -> None:
    """Those that follow."""
    assert {(topic, at) for topic, rows in TABLE.items() for at in range(len(rows))} == set(EVIDENCE)


@pytest.mark.parametrize("evidence", EVIDENCE, ids=lambda one: f"{one[0]} {one[1]}")
def test_evidence_about_ranks_speaks_for_its_row(evidence: tuple[str, int]) -> None:
    """Each note has its place in the code."""
    text, says = EVIDENCE[evidence]
    found = row(text, evidence[0])
    assert found.verdict == "ok"
    assert says in [note.text for note in found.evidence]
    assert all(note.place for note in found.evidence)


@pytest.mark.parametrize("case", NOTHING)
def test_what_says_nothing_about_ranks_speaks_for_no_row(case: str) -> None:
    topic, text = NOTHING[case]
    found = row(text, topic)
    assert (found.verdict, found.evidence) == ("not seen", ())


@pytest.mark.parametrize(
    ("text", "topic", "code"),
    [
        (TORCH + "torch.save({}, 'last.pt')\n", "checkpoint save", "AR101"),
        (
            TORCH
            + "import torch.distributed.checkpoint as dcp\nif rank == 0:\n    dcp.save({}, checkpoint_id='last')\n",
            "checkpoint save",
            "AR201",
        ),
        (TORCH + "dist.barrier()\nif rank == 0:\n    dist.barrier()\n", "collectives", "AR201"),
        (TORCH + "if rank == 0:\n    torch.save({}, 'a.pt')\ntorch.load('a.pt')\n", "checkpoint load", "AR405"),
    ],
)
def test_a_finding_decides_its_row(text: str, topic: str, code: str) -> None:
    """Whatever else speaks for the row; a collective that is a checkpoint decides both."""
    found = row(text, topic)
    assert found.verdict == "error"
    assert [note.text.partition(" ")[0] for note in found.evidence] == [code]


def test_a_condition_that_all_ranks_share_is_said_to_be_reached_by_all() -> None:
    found = row(TORCH + "if settings.waits:\n    dist.barrier()\n", "collectives")
    assert "torch.distributed.barrier is reached by all ranks" in [note.text for note in found.evidence]


def test_nothing_is_good_above_a_call_that_leads_nowhere() -> None:
    """What an entry's main call could not be followed into may undo it."""
    chain = "".join(f"def f{n}(x):\n    return f{n + 1}(x)\n" for n in range(64))
    deep = f"{TORCH}torch.manual_seed(0)\n{chain}def f64(x):\n    dist.all_reduce(x)\nf0(1)\n"
    assert row(deep, "randomness").verdict == "not seen"


@pytest.mark.parametrize("guard", ["rank == 0 and step % 10 == 0", "step % 10 == 0 and rank == 0"])
def test_a_save_of_rank_0_at_some_steps_speaks_for_its_row(guard: str) -> None:
    found = row(f"{TORCH}for step in range(9):\n    if {guard}:\n        torch.save({{}}, 'a.pt')\n", "checkpoint save")
    assert (found.verdict, found.texts) == ("ok", ("torch.save: written by rank 0 alone",))


def test_a_finding_speaks_against_its_own_row_alone() -> None:
    """The line at which ranks are joined has a timeout, whether or not a GPU is bound there."""
    text = "import datetime\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel\n"
    text += "dist.init_process_group('nccl', timeout=datetime.timedelta(0, 60))\nDistributedDataParallel(net.cuda())\n"
    assert row(text, "initialisation").verdict == "warning"
    assert row(text, "timeouts").verdict == "ok"


def test_a_row_is_not_known_where_its_rules_do_not_run() -> None:
    """Nor where what they found is suppressed, whoever else speaks for it."""
    text = TORCH + "dist.barrier()\n"
    rows = check({"train.py": text.encode()}, Settings(select=("AR1",))).rows
    (found,) = [one for one in rows if one.topic == "collectives"]
    assert found.verdict == "not determined"
    assert found.texts[0].startswith("AR201, AR202")
    assert found.texts[0].endswith("do not run, as selected")


def test_a_suppressed_finding_is_counted_and_leaves_its_row_open() -> None:
    """The comment is believed for the finding; what the row would say without it, nobody has checked."""
    own = "torch.save({}, 'a.pt')  # allranks: ignore[AR101] one rank\n"
    saves = f"{TORCH}{own}if rank == 0:\n    torch.save({{}}, 'b.pt')\n"
    judged = judge({"train.py": saves.encode()}, Config())
    by_settings = judge(
        {"train.py": saves.replace("  # allranks", "  # ").encode()},
        Config(per_file_ignores=(("train.py", ("AR101",)),)),
    )
    for one, counts in ((judged, (1, 0)), (by_settings, (0, 1))):
        (found,) = [row for row in one.rows if row.topic == "checkpoint save"]
        assert (found.verdict, found.texts) == ("not determined", ("AR101 is suppressed here",))
        assert (one.suppressed, one.allowed) == counts
        assert read(written(one)) == one
        assert report_of(one, {}).suppressed == counts[0]


def test_a_trainer_that_another_file_makes_is_seen() -> None:
    maker = "import lightning as L\ndef make_trainer(nodes):\n    return L.Trainer(num_nodes=nodes)\n"
    text = "from build import make_trainer\ndef main(net):\n    make_trainer(2).fit(net)\nmain(None)\n"
    found = row(text, "initialisation", build=maker)
    assert [note.text for note in found.evidence] == ["lightning.pytorch.Trainer joins the ranks, on all"]


def test_every_topic_has_a_row_and_every_tick_a_place() -> None:
    """Findings decide; where nothing was seen, that is said."""
    text = TORCH + "if rank == 0:\n    torch.save({}, 'm')\nimport shutil\nshutil.rmtree('out')\n"
    rows = check({"train.py": text.encode()}, Settings()).rows
    verdicts = {one.topic: one.verdict for one in rows}
    assert set(verdicts) >= set(TABLE)
    assert verdicts["initialisation"] == verdicts["checkpoint save"] == verdicts["collectives"] == "ok"
    assert verdicts["gating"] == "error"
    assert verdicts["data"] == verdicts["randomness"] == "not seen"
    assert all(note.place for one in rows for note in one.evidence)
    assert all(one.evidence for one in rows if one.verdict != "not seen")
