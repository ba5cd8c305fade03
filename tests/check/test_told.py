"""What findings say, and what they underline."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check
from allranks.findings import Finding

JOINED = """
import torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
"""
MODULE = """
import lightning as L
from lightning.pytorch.utilities import rank_zero_only
class Model(L.LightningModule):
    @rank_zero_only
    def on_validation_epoch_end(self):
        self.all_gather(self.scores)
    def on_fit_start(self):
        self.helper()
    @rank_zero_only
    def helper(self):
        self.trainer.strategy.barrier()
"""


def found(text: str, code: str, **settings: str) -> list[Finding]:
    """Return what is found under a code."""
    outcome = check({"train.py": textwrap.dedent(text).encode()}, Settings(**settings))  # type: ignore[arg-type]
    return [finding for finding in outcome.findings if finding.code == code]


def parted(text: str) -> list[tuple[int, str, int, str]]:
    """Return where AR201 is found, what it depends on, and where and how it is told that ranks part there."""
    told = []
    for one in found(text, "AR201"):
        guard = next(note for note in one.notes if note.place and note.text.startswith("the ranks diverge here"))
        assert guard.place is not None
        told.append((one.place.line, one.message.partition("depends on ")[2], guard.place.line, guard.text))
    return told


@pytest.mark.parametrize("line", ["dist.barrier() if rank == 0 else None", "rank == 0 and dist.barrier()"])
def test_a_condition_inside_an_expression_is_told(line: str) -> None:
    """It stands in the message and in the note."""
    assert parted(f"{JOINED}{line}\n") == [(5, "rank == 0", 5, "the ranks diverge here: rank == 0")]


def test_a_decorator_is_told_as_it_stands() -> None:
    """Where ranks part, the decorator is underlined; the finding is at the collective, or at the call of the function
    that leads there."""
    assert parted(MODULE) == [
        (7, "@rank_zero_only", 5, "the ranks diverge here: @rank_zero_only"),
        (9, "@rank_zero_only", 10, "the ranks diverge here: @rank_zero_only"),
    ]


def test_a_framework_that_calls_on_one_rank_is_told() -> None:
    """There is no decorator to point to."""
    text = """
        import torch.distributed as dist
        import lightning as L
        class Data(L.LightningDataModule):
            def prepare_data(self):
                dist.barrier()
        """
    why = "LightningDataModule.prepare_data, which its framework calls on one rank of each node"
    assert parted(text) == [(6, why, 5, f"the ranks diverge here: {why}")]


def on_cluster(text: str, code: str) -> list[tuple[int, str]]:
    """Return where a code is found, and what is said of the cluster and of what to do."""
    return [(one.place.line, f"{one.cluster} {one.advice}") for one in found(text, code)]


def test_the_rank_in_the_job_serves_one_host() -> None:
    """It is not said that all processes use GPU 0."""
    ((line, told),) = on_cluster(f"{JOINED}import torch\ntorch.cuda.set_device(rank)\n", "AR605")
    assert line == 6
    assert "on the second there is no GPU of that number" in told
    assert "GPU 0" not in told


def test_a_loop_that_is_left_is_told_without_a_backward_pass() -> None:
    """The others wait where they meet."""
    text = f"""{JOINED}
import time
start = time.time()
for epoch in range(100):
    if time.time() - start > 3600:
        break
    dist.broadcast_object_list([epoch], src=0)
"""
    ((line, told),) = on_cluster(text, "AR209")
    assert line == 11
    assert told.startswith("One process stops, and the others wait for it in their next step.")


def test_a_folder_that_is_made_without_a_test_is_told_so() -> None:
    """Where none looks whether it is there, all but one fail."""
    text = f"""{JOINED}
import os
os.makedirs('out')
if not os.path.exists('logs'):
    os.makedirs('logs')
for step in range(10):
    if step % 5 == 0:
        os.makedirs(f'step{{step}}')
"""
    bare, tested, now_and_then = on_cluster(text, "AR108")
    assert now_and_then[1] == bare[1]
    assert "tested" not in bare[1]
    assert "every other one that calls this raises FileExistsError" in bare[1]
    assert "another that tested at the same moment" in tested[1]


def test_advice_on_jax_names_nothing_of_torch() -> None:
    """A computation of JAX is not told what DDP allows."""
    text = """
        import jax
        jax.distributed.initialize()
        step = jax.pmap(lambda x: x, axis_name="b")
        if jax.process_index() == 0:
            step(1)
        """
    ((_, told),) = on_cluster(text, "AR204")
    assert "DDP" not in told


def test_who_leaves_by_a_value_that_is_reduced_later_is_told_in_plain_words() -> None:
    """The message names the value, and that it is this process' own."""
    text = """
        import torch
        import torch.distributed as dist
        def step(loss):
            if torch.isnan(loss):
                return
            dist.all_reduce(loss)
        """
    assert [one.message for one in found(text, "AR203")] == [
        "a process leaves because of its own loss, and the others reduce it"
    ]


def test_a_checkpoint_in_an_opened_file_is_told_once() -> None:
    """Where it is written, by the name of the file and not of the variable."""
    text = f"""{JOINED}
import pickle
with open("model.pkl", "wb") as f:
    pickle.dump([], f)
"""
    assert [(one.place.line, one.message) for one in found(text, "AR101")] == [
        (8, "every rank writes the checkpoint 'model.pkl'")
    ]


def test_a_download_in_the_wrong_hook_is_told_once() -> None:
    """By the rule that knows where it belongs; without that rule the other one tells it."""
    text = """
        import lightning as L
        import torch.distributed as dist
        from torchvision.datasets import MNIST
        class Data(L.LightningDataModule):
            def setup(self, stage=None):
                dist.barrier()
                self.train = MNIST("data", download=True)
        """
    sources = {"train.py": textwrap.dedent(text).encode()}
    assert [one.code for one in check(sources, Settings()).findings] == ["AR611"]
    assert [one.code for one in check(sources, Settings(ignore=("AR611",))).findings] == ["AR106"]


@pytest.mark.parametrize(
    ("call", "found_there"),
    [
        ("logging.basicConfig(filename='train.log')", True),
        ("logging.basicConfig(level=logging.INFO)", False),
        ("logging.basicConfig(filename=f'train-{rank}.log')", False),
        ("logging.basicConfig(filename='train.log' if rank == 0 else None)", False),
        ("logging.handlers.TimedRotatingFileHandler('train.log')", True),
    ],
)
def test_a_log_is_a_file_however_it_is_set_up(call: str, found_there: bool) -> None:
    """The root logger's file is one that all ranks write, as a handler's is."""
    assert bool(found(f"{JOINED}import logging.handlers\n{call}\n", "AR102")) == found_there


def test_a_computation_is_told_by_its_name_in_the_source() -> None:
    """And advice is that of its library; who leaves and who stays is told by the line, where both meet nobody yet."""
    text = """
        import time
        import jax
        from jax.experimental import multihost_utils
        jax.distributed.initialize()
        step = jax.jit(lambda x: x)
        start = time.time()
        x = multihost_utils.host_local_array_to_global_array(1, None, None)
        while True:
            x = step(x)
            if time.time() - start > 3600:
                break
        """
    (one,) = found(text, "AR209")
    assert one.message.startswith(
        "some ranks leave the loop, or a round of it, at time.time() - start > 3600 (line 11)"
    )
    assert one.message.endswith("and the others wait in step() (jit computation)")
    assert one.advice.startswith("Let all processes decide alike: process_allgather")
    assert not [note.text for note in one.notes if "no collective" in note.text]


def test_a_long_condition_is_underlined_and_not_repeated() -> None:
    """The label says where ranks part; the condition stands there."""
    text = """
        import torch.distributed as dist
        dist.init_process_group("nccl")
        def report(step, every, last, loss):
            if step > 0 and step % every == 0 and step != last and dist.get_rank() == 0:
                dist.all_reduce(loss)
        """
    (one,) = found(text, "AR201")
    assert "the ranks diverge here" in [note.text for note in one.notes]


def test_a_link_is_made_and_not_deleted() -> None:
    """One finding for a link that is deleted and made again."""
    text = """
        import os
        import torch.distributed as dist
        dist.init_process_group("nccl")
        os.symlink("step-1", "latest")
        os.unlink("best")
        os.symlink("step-1", "best")
        """
    messages = [(one.message, one.cluster.partition(";")[2]) for one in found(text, "AR109")]
    assert messages == [
        ("every rank makes the link 'latest'", " the others raise FileExistsError."),
        (
            "every rank deletes or moves 'best'",
            " the others raise FileNotFoundError, or remove what was written since.",
        ),
    ]


def test_a_group_is_made_by_all() -> None:
    """Nothing is done with its result that a guard could stand around."""
    text = """
        import torch.distributed as dist
        dist.init_process_group("nccl")
        if dist.get_rank() in (0, 1):
            group = dist.new_group([0, 1])
        if dist.get_rank() == 0:
            first = dist.new_group([0])
        """
    advice = {one.advice for one in found(text, "AR201")}
    assert advice == {"Call new_group on every process for each group, also for groups without this process."}
