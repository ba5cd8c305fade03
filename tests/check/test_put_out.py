"""What all ranks but the first put out, and what stands on the way to a guard: behind both the code is silent."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

_START = """
import os
import torch
import torch.distributed as dist
import wandb


class Experiment:
    def __init__(self, conf):
        self._conf = conf
        self._settings = conf.experiment
        self._tracks = self._settings.track
        if self._settings.use_ddp:
            dist.init_process_group(backend="nccl")
            if {asked}:
                self._tracks = False
                self._settings.ckpt_dir = None

    def start(self):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 2))
        if self._tracks:
            wandb.init()
        for step in range(100):
            model(step).backward()
            if self._settings.ckpt_dir is not None and step % 10 == 0:
                torch.save(model.state_dict(), os.path.join(self._settings.ckpt_dir, "last.pth"))
"""
_MAIN = """

if __name__ == "__main__":
    Experiment(make_conf()).start()
"""
FOUND = ("AR101", "AR103")


def _found(files: dict[str, str]) -> list[str]:
    report = check({name: text.encode() for name, text in files.items()}, Settings(select=FOUND))
    return [finding.code for finding in report.findings]


def test_what_the_other_ranks_put_out_is_done_on_the_first_alone() -> None:
    assert _found({"train.py": _START.format(asked="dist.get_rank() not in [0, -1]") + _MAIN}) == []
    assert _found({"train.py": _START.format(asked="self._settings.debug") + _MAIN}) == ["AR103", "AR101"]


def test_settings_that_are_put_out_are_so_in_other_files() -> None:
    saving = """
        import torch

        def save(cfg, model):
            if cfg.out:
                torch.save(model.state_dict(), cfg.out)
        """
    start = """
        import torch.distributed as dist
        from saving import save

        def main(cfg):
            dist.init_process_group()
            if {asked}:
                cfg.out = None
            save(cfg, make_model())

        if __name__ == "__main__":
            main(make_settings())
        """
    files = {"saving.py": _dedent(saving), "train.py": _dedent(start)}
    assert _found({**files, "train.py": files["train.py"].format(asked="dist.get_rank() != 0")}) == []
    assert _found({**files, "train.py": files["train.py"].format(asked="cfg.debug")}) == ["AR101"]


def test_what_all_ranks_set_afterwards_is_put_out_on_none() -> None:
    again = """
                self._tracks = False
        self._tracks = conf.track_all
    """
    text = _START.format(asked="dist.get_rank() != 0").replace("\n                self._tracks = False", again.rstrip())
    text = text.replace("                self._settings.ckpt_dir = None\n", "")
    assert "AR103" in _found({"train.py": text + _MAIN})


@pytest.mark.parametrize(("rank", "found"), [("self.rank != 0", []), ("it < 0", ["AR101"])])
def test_a_method_that_gives_the_object_itself_hides_no_guard(rank: str, found: list[str]) -> None:
    trainer = f"""
        import torch

        class Trainer:
            def __init__(self, path):
                self.rank = torch.distributed.get_rank()
                self.net = make_net()

            def train(self):
                self.training = True
                self.steps = list_of_steps(self.training, self.net, more=True)
                self.net.train()
                self.others = [other.train() for other in self.net.others if other.is_ready and other.is_known]
                return self

            def save_weights(self, it):
                if {rank}:
                    return
                torch.save(self.net.state_dict(), "weights.pth")
        """
    start = """
        import torch
        from trainer import Trainer

        def main():
            torch.distributed.init_process_group(backend="nccl")
            trainer = Trainer("x").train()
            trainer.save_weights(10)

        if __name__ == "__main__":
            main()
        """
    assert _found({"trainer.py": _dedent(trainer), "train.py": _dedent(start)}) == found


def test_a_guard_of_a_module_that_cannot_be_read_is_known_by_its_name() -> None:
    start = """
        import torch
        from lib.utils.{module} import {asks}

        def main(model):
            torch.distributed.init_process_group(backend="nccl")
            if {asks}():
                torch.save(model.state_dict(), "weights.pth")

        if __name__ == "__main__":
            main(make_model())
        """
    files = {"lib/__init__.py": "", "lib/utils/__init__.py": "", "lib/utils/ranks.py": "def is_main_process[**P]( ="}
    for module in ("ranks", "not_here"):
        text = _dedent(start)
        assert _found({**files, "train.py": text.format(module=module, asks="is_main_process")}) == []
        assert _found({**files, "train.py": text.format(module=module, asks="is_ready")}) == ["AR101"]


def _dedent(text: str) -> str:
    return "\n".join(line.removeprefix(" " * 8) for line in text.splitlines())
