"""What rank 0 does to files while others are at it, in other functions too, under whatever name the path goes."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check

HEAD = """
import json
import os
import os.path as osp
import shutil
from pathlib import Path
import numpy as np
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()
"""
RACES = {
    "all read the parts of all": """
        def hypotheses(rows, dist_size):
            paths = [f"rows_{i}.cache" for i in range(dist_size)]
            rows.shard(dist_size, rank).save_to_disk(paths[rank])
            WAIT
            return [load_from_disk(path) for path in paths]
        """,
    "parts found by a pattern": """
        def scores(found, out):
            np.save(osp.join(out, f"part_{rank}.npy"), found)
            WAIT
            if rank == 0:
                return np.concatenate([np.load(path) for path in sorted(Path(out).glob("part_*.npy"))])
        """,
    "saved and read by names": """
        def merged(model, args):
            if rank == 0:
                model.save_adapter(args.output_dir)
            WAIT
            return load_with_adapter(model, args.output_dir)
        """,
    "prepared, by its name alone": """
        def run(experiment):
            if rank == 0:
                experiment.preprocess_corpus()
            WAIT
            experiment.train()
        """,
    "put in its place, then read": """
        def prepare(out, items):
            if rank == 0:
                part = out + ".part"
                with open(part, "w") as file:
                    json.dump(items, file)
                os.replace(part, out)
            WAIT
            with open(out) as file:
                return json.load(file)
        prepare("index.json", [])
        """,
    "returned by who makes it": """
        def build(root, split):
            out = Path(root) / f"{split}.npy"
            if rank == 0:
                whole = out.with_suffix(".new")
                np.save(whole, [1])
                whole.rename(out)
            WAIT
            return out
        class Rows:
            def __init__(self, file):
                self.rows = np.load(file)
        def loader(args):
            return Rows(build(args.data, "train"))
        def main(args):
            loader(args)
        main(read_args())
        """,
    "an attribute of one object": """
        class Store:
            def __init__(self, root):
                self.listing = os.path.join(root, "listing.json")
                if rank == 0:
                    with open(self.listing, "w") as file:
                        file.write("[]")
                WAIT
            def entries(self):
                with open(self.listing) as file:
                    return json.load(file)
        def main(root):
            store = Store(root)
            return store.entries()
        main("runs")
        """,
    "a setting, given under another name": """
        def fetch(options):
            if rank == 0:
                torch.save({}, osp.join(options.work_dir, "vocab.pt"))
        def train(cfg):
            return torch.load(Path(cfg.work_dir) / "vocab.pt")
        def main(args):
            fetch(args)
            WAIT
            train(args)
        main(read_args())
        """,
    "parts of all, put together": """
        def gather(folder, rows, world):
            np.save(os.path.join(folder, f"rows.{rank}.npy"), rows)
            WAIT
            if rank == 0:
                return [np.load(os.path.join(folder, f"rows.{at}.npy")) for at in range(world)]
        gather("out", [1], 2)
        """,
    "parts of all, said to be there": """
        MARK = "COMMITTED"
        def save(folder, state):
            torch.save(state, folder / f"shard{rank}.pt")
            WAIT
            if rank == 0:
                (folder / MARK).write_text("yes")
        save(Path("out"), {})
        """,
    "taken away while others read": """
        def convert(path):
            return torch.load(path)
        def main(args):
            convert(args.raw)
            WAIT
            if rank == 0:
                shutil.rmtree(args.raw)
        main(read_args())
        """,
    "listed while it is filled": """
        def convert(root, out):
            for name in sorted(os.listdir(root)):
                np.save(os.path.join(out, name + ".npy"), read(os.path.join(root, name)))
        def rows(root, out):
            if rank == 0:
                convert(root, out)
            WAIT
            return sorted(os.listdir(out))
        rows("raw", "ready")
        """,
    "looked for by a pattern": """
        def newest(model, out):
            if rank == 0:
                torch.save(model.state_dict(), f"{out}/last.pt")
            WAIT
            return sorted(Path(out).glob("*.pt"))[-1]
        newest(torch.nn.Linear(2, 2), "out")
        """,
    "under the last part of its address": """
        def fetch(url, folder):
            torch.hub.download_url_to_file(url, os.path.join(folder, os.path.basename(url)))
        def weights(args):
            if rank == 0:
                fetch(args.url, args.out)
            WAIT
            return torch.load(os.path.join(args.out, osp.basename(args.url)))
        weights(read_args())
        """,
    "in a context": """
        import contextlib
        @contextlib.contextmanager
        def first_then_all():
            yield rank == 0
            WAIT
        def table(path):
            with first_then_all() as first:
                if first:
                    np.save(path, [1])
            return np.load(path)
        table("table.npy")
        """,
}


def codes(text: str) -> list[str]:
    sources = {"train.py": ("import accelerate\n" + HEAD + textwrap.dedent(text)).encode()}
    return [f.code for f in check(sources, Settings(select=("AR405",))).findings]


@pytest.mark.parametrize("case", [case for case in RACES if case != "in a context"])
def test_all_meet_in_a_context_and_where_a_model_is_wrapped(case: str) -> None:
    """The others enter the context when rank 0 has left it."""
    assert codes(RACES[case].replace("WAIT", "with accelerator.main_process_first(): rows()")) == []
    assert codes(RACES[case].replace("WAIT", "accelerate.Accelerator().prepare_model(model)")) == []


SILENT = {
    "one after the other, or each its own": """
        def run(experiment, args, rows):
            with main_process_first():
                if rank == 0:
                    experiment.save_adapter(args.output_dir)
            experiment.load_adapter(args.output_dir)
            if rank == 0:
                experiment.preprocess_corpus()
            dist.barrier()
            experiment.train()
            for path in rows:
                np.save(f"part_{rank}.npy", np.load(path))
            if args.export:
                if rank == 0:
                    experiment.save_adapter(args.export_dir)
                return None
            return experiment.load_adapter(args.export_dir)
        """,
    "a method that the main process alone calls": """
        import logging
        class Trainer:
            def log_to(self, folder):
                if not os.path.exists(folder) and self.is_main_process:
                    os.makedirs(folder, exist_ok=True)
                handler = logging.FileHandler(os.path.join(folder, "train.log"))
                return handler
            def train(self, folder):
                if folder is not None and self.is_main_process:
                    self.log = self.log_to(folder)
        """,
    "two sides of a condition": """
        def stats(path, there):
            if not there:
                if rank == 0:
                    np.save(path, [1])
                return [1]
            return np.load(path)
        stats("stats.npy", False)
        """,
    "two files of one name": """
        def write(name):
            path = "a/" + name
            if rank == 0:
                torch.save({}, path)
        def read(name):
            path = "b/" + name
            return torch.load(path)
        write("x")
        read("x")
        """,
    "each its own": """
        def write():
            for path in ["a", "b"]:
                if rank == 0:
                    torch.save({}, path)
        def read():
            for path in ["c", "d"]:
                torch.load(path)
        write()
        read()
        """,
    "rank 0 reads what it has written": """
        def keep(state, args):
            if rank == 0:
                torch.save(state, args.out)
        def look(args):
            if rank == 0:
                return torch.load(args.out)
        def main(args):
            keep({}, args)
            look(args)
        main(read_args())
        """,
    "another file in the folder": """
        def main(args):
            if rank == 0:
                with open(os.path.join(args.out, "args.txt"), "w") as file:
                    file.write(str(args))
            runs = [name for name in os.listdir(args.out) if name.startswith("checkpoint")]
            if rank == 0:
                torch.save({}, os.path.join(args.out, "last.pt"))
            return sorted(Path(args.out).glob("*.json")), runs
        main(read_args())
        """,
    "read before it is written": """
        def main(args):
            state = torch.load(args.out)
            if rank == 0:
                torch.save(state, args.out)
        main(read_args())
        """,
    "a package's own barrier": """
        import ignite.distributed as idist
        def main(args):
            if idist.get_rank() == 0:
                torch.save({}, args.out)
            idist.barrier()
            torch.load(args.out)
        main(read_args())
        """,
}


@pytest.mark.parametrize("case", SILENT)
def test_what_is_no_race_is_silent(case: str) -> None:
    """Other paths, other sides, one rank alone."""
    assert codes(SILENT[case]) == []


def test_a_rank_put_together_is_a_rank() -> None:
    """The number of the node times its processes, and the number on the node: guards on the sum are guards."""
    text = """
        import torch
        import torch.multiprocessing as mp
        def work(index, args, per_node):
            me = args.node_rank * per_node + index
            torch.distributed.init_process_group("nccl", rank=me)
            if me == 0:
                torch.save({}, "model.pt")
        if __name__ == "__main__":
            mp.spawn(work, args=(read_args(), 8), nprocs=8)
        """
    assert check({"a.py": textwrap.dedent(text).encode()}, Settings(select=("AR1",))).findings == ()
