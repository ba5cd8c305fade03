"""Guards in other people's words: predicates of packages, settings, launchers' variables, objects that some ranks have.

Behind each the code is silent; where the guard says something else, the same write is found.
"""

from __future__ import annotations

import pytest
from pairs import HEAD, Pair, codes

from allranks.check.engine import Settings, check

WRITES = "open('metrics.json', 'w')"


def _guard(good: str, bad: str) -> Pair:
    """Two conditions of one write, after what comes before them."""
    return Pair(
        *(f"{text.rpartition('§')[0]}\nif {text.rpartition('§')[2]}:\n    {WRITES}" for text in (good, bad)), "AR102"
    )


PAIRS = {
    "a root of processes, not of a tree": _guard(
        "from hostlib import distributed as hd§hd.is_root()", "from hostlib import syntax as hs§hs.is_root()"
    ),
    "a predicate with a verb before it": _guard(
        "from hostlib.comm import get_is_main§get_is_main()", "from hostlib.comm import get_is_ready§get_is_ready()"
    ),
    "a decorator's name, asked": _guard(
        "from hostlib.comm import rank0_only§rank0_only()", "from hostlib.comm import once_only§once_only()"
    ),
    "what a class method makes": Pair(
        *(
            f"""
            class Env:
                def __init__(self, number):
                    self.number = number
                @classmethod
                def make(cls):
                    return cls(int(os.environ['{variable}']))
                @property
                def begins(self):
                    return self.number == 0
            env = Env.make()
            if env.begins:
                {WRITES}
            """
            for variable in ("RANK", "SEED")
        ),
        "AR102",
    ),
    "a class that decorates": Pair(
        f"""
        class rank_zero_only:
            def __init__(self, function):
                self.function = function
            def __call__(self, *given):
                if rank == 0:
                    return self.function(*given)
        @rank_zero_only
        def save():
            {WRITES}
        save()
        """,
        f"""
        class timed:
            def __init__(self, function):
                self.function = function
            def __call__(self, *given):
                return self.function(*given)
        @timed
        def save():
            {WRITES}
        save()
        """,
        "AR102",
    ),
    "a predicate of a package's module": _guard(
        "from tools import dist_utils§dist_utils.is_main_process()",
        "from tools import dist_utils§dist_utils.is_ready()",
    ),
    "a predicate that a package gives": _guard(
        "from hostlib.comm import is_rank_zero§is_rank_zero()", "from hostlib.comm import is_done§is_done()"
    ),
    "who coordinates": _guard(
        "import hostlib.comm as hc§hc.is_coordinator()", "import hostlib.comm as hc§hc.is_configured()"
    ),
    "a rank of a package": _guard(
        "from hostlib import get_rank§get_rank() == 0", "from hostlib import get_n§get_n() == 0"
    ),
    "an attribute of a package": _guard(
        "import hostlib.comm as hc§hc.rank == 0", "import hostlib.comm as hc§hc.load == 0"
    ),
    "a constant of a package": _guard(
        "from hostlib.env import RANK§RANK in (-1, 0)", "from hostlib.env import LEVEL§LEVEL in (-1, 0)"
    ),
    "both of a package at once": _guard(
        "from hostlib import get_dist_info\nrank, world = get_dist_info()§rank == 0",
        "from hostlib import get_size_info\nheight, width = get_size_info()§height == 0",
    ),
    "a setting that may not be there": _guard(
        "cfg = load()§cfg.get('rank', 0) == 0", "cfg = load()§cfg.get('level', 0) == 0"
    ),
    "a setting that is updated": _guard(
        "cfg = load()\ncfg.update(leads=rank == 0)§cfg['leads']", "cfg = load()\ncfg.update(leads=True)§cfg['leads']"
    ),
    "a dictionary as it is written down": _guard(
        "state = {'boss': rank == 0, 'step': 0}\nstate = show(state)§state['boss']",
        "state = {'boss': True, 'step': 0}\nstate = show(state)§state['boss']",
    ),
    "a bag of settings": _guard(
        "from types import SimpleNamespace\nctx = show(SimpleNamespace(boss=rank == 0))§ctx.boss",
        "from types import SimpleNamespace\nctx = show(SimpleNamespace(boss=True))§ctx.boss",
    ),
    "an attribute by its name": _guard(
        "ctx = load()\nsetattr(ctx, 'boss', rank == 0)§ctx.boss", "ctx = load()\nsetattr(ctx, 'boss', True)§ctx.boss"
    ),
    "a rank that a class keeps for itself": _guard("ctx = load()§ctx._rank == 0", "ctx = load()§ctx._level == 0"),
    "what a mixin cannot see": _guard("ctx = load()§ctx._is_main_worker", "ctx = load()§ctx._is_main_window"),
    "the first of each group": _guard(
        "grid = load()§grid.tp_rank == 0 and grid.dp_rank == 0 and grid.pp_is_last_stage",
        "grid = load()§grid.tp_size == 2 and grid.dp_size == 2",
    ),
    "who tells people how it goes": _guard("ctx = load()§ctx.is_wandb_rank", "ctx = load()§ctx.is_wandb_there"),
    "who saves, as the arguments of a trainer say": _guard(
        "self = load()§self.args.should_save", "self = load()§self.should_save"
    ),
    "no variable of a launcher": _guard("§'RANK' not in os.environ", "§'HOME' in os.environ"),
    "none of its variables": _guard("§'LOCAL_RANK' not in os.environ.keys()", "§'HOME' in os.environ.keys()"),
    "no run of torchrun": _guard("§os.environ.get('TORCHELASTIC_RUN_ID') is None", "§os.environ.get('RUN_ID') is None"),
    "a variable that is not set": _guard("§not os.environ.get('RANK')", "§not os.environ.get('DEBUG')"),
    "a variable as text": _guard("§os.environ.get('RANK', '0') == '0'", "§os.environ.get('DEBUG', '0') == '0'"),
    "no number of processes": _guard("§not os.environ.get('WORLD_SIZE')", "§not os.environ.get('WORLD')"),
    "one GPU": _guard("args = load()§args.gpus <= 1", "args = load()§args.layers <= 1"),
    "a launcher that is none": _guard(
        "args = load()§args.launcher == 'none'", "args = load()§args.scheduler == 'none'"
    ),
    "a strategy for one": _guard("cfg = load()§cfg['strategy'] == 'single'", "cfg = load()§cfg['color'] == 'single'"),
    "nobody to share with": _guard(
        "from accelerate import DistributedType\nstate = load()§state.distributed_type == DistributedType.NO",
        "from accelerate import Precision\nstate = load()§state.precision_type == Precision.NO",
    ),
    "a model that is wrapped": _guard(
        "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = load()§not isinstance(model, DDP)",
        "from torch.nn import Linear\nmodel = load()§not isinstance(model, Linear)",
    ),
    "a list that rank 0 alone fills": Pair(
        f"loggers = []\nif rank == 0:\n    loggers.append(load())\nfor one in loggers:\n    {WRITES}",
        f"loggers = []\nif os.environ.get('LOG'):\n    loggers.append(load())\nfor one in loggers:\n    {WRITES}",
        "AR102",
    ),
    "a list that is empty elsewhere": Pair(
        f"loggers = [load()] if rank == 0 else []\nfor one in loggers:\n    {WRITES}",
        f"loggers = [load()] if os.environ.get('LOG') else []\nfor one in loggers:\n    {WRITES}",
        "AR102",
    ),
    "an object that is made with a logger on rank 0": Pair(
        f"""
        class Runner:
            def __init__(self, logger=None):
                self.logger = logger
            def finish(self):
                if self.logger is not None:
                    self.keep()
            def keep(self):
                {WRITES}
        if rank == 0:
            runner = Runner(load())
        else:
            runner = Runner()
        runner.finish()
        """,
        f"""
        class Runner:
            def __init__(self, logger=None):
                self.logger = logger
            def finish(self):
                if self.logger is not None:
                    self.keep()
            def keep(self):
                {WRITES}
        if os.environ.get('LOG'):
            runner = Runner(load())
        else:
            runner = Runner()
        runner.finish()
        """,
        "AR102",
    ),
    "an attribute that rank 0 alone sets": Pair(
        f"""
        class Runner:
            def __init__(self, rank):
                if rank == 0:
                    self.log = load()
            def finish(self):
                if hasattr(self, 'log'):
                    {WRITES}
        Runner(rank).finish()
        """,
        f"""
        class Runner:
            def __init__(self, rank):
                self.log = load()
            def finish(self):
                if hasattr(self, 'log'):
                    {WRITES}
        Runner(rank).finish()
        """,
        "AR102",
    ),
    "a mixin's test, which its heir has": Pair(
        f"class Saves:\n    def finish(self):\n        dist.barrier()\n        if self.leads:\n            {WRITES}\n"
        "class Runner(Saves):\n    @property\n    def leads(self):\n        return dist.get_rank() == 0",
        f"class Saves:\n    def finish(self):\n        dist.barrier()\n        if self.leads:\n            {WRITES}\n"
        "class Runner(Saves):\n    @property\n    def leads(self):\n        return self.epoch > 0",
        "AR102",
    ),
    "a strategy that stands in for one process": Pair(
        f"""
        class Alone:
            def rank(self):
                return 0
        class Runner:
            def __init__(self, strategy=None):
                self.strategy = strategy or Alone()
            def leads(self):
                return self.strategy.rank() == 0
            def finish(self):
                dist.barrier()
                if self.leads():
                    {WRITES}
        """,
        f"""
        class Alone:
            def level(self):
                return 0
        class Runner:
            def __init__(self, strategy=None):
                self.strategy = strategy or Alone()
            def finish(self):
                dist.barrier()
                if self.strategy.level() == 0:
                    {WRITES}
        """,
        "AR102",
    ),
    "a method that rank 0 calls on whatever it is": Pair(
        f"""
        class Plain:
            def __init__(self):
                dist.barrier()
            def keep(self, step):
                {WRITES}
        model = load()
        if rank == 0:
            model.keep(3)
        """,
        f"""
        class Plain:
            def __init__(self):
                dist.barrier()
            def keep(self, step):
                {WRITES}
        model = load()
        model.keep(3)
        """,
        "AR102",
    ),
    "a hook of what rank 0 alone calls": Pair(
        f"""
        from accelerate import Accelerator
        acc = Accelerator()
        def before(models, weights, folder):
            {WRITES}
        acc.register_save_state_pre_hook(before)
        if acc.is_main_process:
            acc.save_state('x')
        """,
        f"""
        from accelerate import Accelerator
        acc = Accelerator()
        def before(models, weights, folder):
            {WRITES}
        acc.register_save_state_pre_hook(before)
        acc.save_state('x')
        """,
        "AR102",
    ),
    "what JAX calls when all have written": Pair(
        f"""
        from jax.experimental.array_serialization.serialization import GlobalAsyncCheckpointManager
        def done():
            {WRITES}
        GlobalAsyncCheckpointManager().serialize(arrays, specs, on_commit_callback=done)
        """,
        f"""
        from jax.experimental.array_serialization.serialization import GlobalAsyncCheckpointManager
        def done():
            {WRITES}
        GlobalAsyncCheckpointManager().serialize(arrays, specs, on_commit_callback=done)
        done()
        """,
        "AR102",
    ),
    "a hook of what nobody calls": Pair(
        f"""
        from accelerate import Accelerator
        acc = Accelerator()
        def before(models, weights, folder):
            {WRITES}
        acc.register_save_state_pre_hook(before)
        """,
        f"""
        from accelerate import Accelerator
        acc = Accelerator()
        def before(models, weights, folder):
            {WRITES}
        acc.register_save_state_pre_hook(before)
        def keep(self):
            self.acc.save_state('x')
        """,
        "AR102",
    ),
    "an object that rank 0 alone makes, and hands to others": Pair(
        f"""
        class Keeper:
            def put(self, row):
                row['rank'] = dist.get_rank()
                {WRITES}
        trainer = load()
        if rank == 0:
            trainer.hooks = [Keeper()]
        """,
        f"""
        class Keeper:
            def put(self, row):
                row['rank'] = dist.get_rank()
                {WRITES}
        trainer = load()
        trainer.hooks = [Keeper()]
        """,
        "AR102",
    ),
}
OWN = {
    "a unique name of another package": Pair(
        "from hostlib.names import uuid4\nopen(f'{uuid4()}.txt', 'w')",
        "from hostlib.names import name4\nopen(f'{name4()}.txt', 'w')",
        "AR102",
    ),
    "a prefix with the rank": Pair(
        "from flax.training import checkpoints\ncheckpoints.save_checkpoint('out', {}, 3, prefix=f'host_{rank}_')",
        "from flax.training import checkpoints\ncheckpoints.save_checkpoint('out', {}, 3, prefix='host_')",
        "AR101",
    ),
    "items of a share": Pair(
        """
        from accelerate import Accelerator
        with Accelerator().split_between_processes(load()) as mine:
            for item in mine:
                utt, text = item
                open(f'{utt}.txt', 'w')
        """,
        "for item in load():\n    utt, text = item\n    open(f'{utt}.txt', 'w')",
        "AR102",
    ),
    "a lock on the file itself": Pair(
        """
        import fcntl
        with open('runs.csv', 'a') as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write('x')
        """,
        "import fcntl\nwith open('runs.csv', 'a') as file:\n    file.write('x')",
        "AR102",
    ),
    "a lock of another package": Pair(
        f"from hostlib.locks import file_lock\nwith file_lock('x'):\n    {WRITES}",
        f"from hostlib.locks import open_block\nwith open_block('x'):\n    {WRITES}",
        "AR102",
    ),
    "a lock of the project": Pair(
        f"""
        import contextlib
        import fcntl
        @contextlib.contextmanager
        def one_by_one(path):
            with open(path + '.lock-{{rank}}', 'w') as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        with one_by_one('x'):
            {WRITES}
        """,
        f"""
        import contextlib
        @contextlib.contextmanager
        def one_by_one(path):
            yield
        with one_by_one('x'):
            {WRITES}
        """,
        "AR102",
    ),
}


@pytest.mark.parametrize("case", PAIRS)
def test_a_guard_is_understood(case: str) -> None:
    """The second program asks in the same form for something that is alike on every rank."""
    assert (codes(PAIRS[case].good), codes(PAIRS[case].bad)) == ([], [PAIRS[case].code])


@pytest.mark.parametrize("case", OWN)
def test_what_belongs_to_one_process_is_silent(case: str) -> None:
    assert (codes(OWN[case].good), codes(OWN[case].bad)) == ([], [OWN[case].code])


def test_the_examples_join_other_processes() -> None:
    """Without a guard the write is found: no pair is silent for another reason."""
    assert "init_process_group" in HEAD
    assert codes(WRITES) == ["AR102"]


LAUNCHED = """
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def launch(worker, config, path):
    for i in range(config.processes):
        mp.get_context("spawn").Process(target=worker, args=(config.first + i, i, path)).start()

def worker(global_rank, local_rank, path):
    dist.init_process_group("nccl", rank=global_rank)
    if {guard}:
        torch.save({{}}, path)

launch(worker, options().distributed, "all.pt")
"""


@pytest.mark.parametrize(("guard", "expected"), [("global_rank == 0", []), ("path", ["AR101"])])
def test_a_rank_is_handed_out_from_options_that_are_called_distributed(guard: str, expected: list[str]) -> None:
    """Such a name says that there are several processes; it may be that of all that is said about them."""
    found = check({"train.py": LAUNCHED.format(guard=guard).encode()}, Settings(select=("AR101",))).findings
    assert [f.code for f in found] == expected
