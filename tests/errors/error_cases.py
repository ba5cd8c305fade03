"""How a user comes to each public error: a table of small programs, each of which ends in one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import numpy as np
import xxhash

import allranks
from allranks import Checkpointer, Dataset, SimulatedWorld, World, errors
from allranks.data import audit
from allranks.data.index import DatasetIndex, SourceFile
from allranks.data.ledger import Ledger, sums_of_batches
from allranks.data.plan import EpochPlan, choose_layout, rows_of_rank
from allranks.data.workers.pool import _SampleList
from allranks.readiness import preflight as preflighting
from allranks.storage import LocalStorage, MemoryStorage
from allranks.world.detect import single_world
from allranks.world.launcher_environment import Decision, Framework, LauncherEnvironment, decide

Case = Callable[[Path], object]
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "node-1", "MASTER_PORT": "29500"}


def state(width: int = 4) -> dict[str, Any]:
    return {"params": {"w": np.ones((2, width), np.float32)}, "step": 0}


def raise_of(rank: int, size: int, program: Callable[[World], object], **known: Any) -> NoReturn:
    """Run a program on simulated ranks, and raise what one of them raised."""
    raise SimulatedWorld(size, **known).run(program).errors[rank]


def saved_run(folder: Path, step: int = 1200, **known: Any) -> Checkpointer:
    """Return the open Checkpointer of a run with one step."""
    checkpointer = Checkpointer(folder / "run", single_world(), on_sigterm=False)
    checkpointer.save(step, state(), block=True, **known)
    return checkpointer


def text_file(folder: Path, samples: int = 8) -> Path:
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps({"id": number}) + "\n" for number in range(samples)))
    return path


def decision(**environ: str) -> Decision:
    return decide(LauncherEnvironment(environ, torch=Framework(installed=True)))


def contradicting_signs(_: Path) -> None:
    decision(RANK="4", WORLD_SIZE="4", MASTER_ADDR="node-1")


def not_jsonable(_: Path) -> None:
    raise_of(0, 2, lambda world: world.broadcast({"loss": np.float32(0.5)}, name="loss"))


def store_error(_: Path) -> None:
    raise decision(**{**TORCHRUN, "RANK": "0"}).port_taken()


def key_timeout(_: Path) -> None:
    raise_of(1, 2, lambda world: world.store.wait("my/key", 30))


def barrier_timeout(_: Path) -> None:
    raise_of(0, 4, lambda world: world.rank != 2 and world.barrier("epoch 3", timeout=30))


def rank_died(_: Path) -> None:
    def program(world: World) -> None:
        if world.rank == 2:
            raise MemoryError("no room for the batch")
        world.barrier("epoch 3")

    raise_of(0, 4, program)


def mismatch(_: Path) -> None:
    def program(world: World) -> None:
        weights = state()
        weights["params"]["w"][0, 3] += 0.5 * (world.rank == 2)
        allranks.verify(weights, 1200, world=world)

    raise_of(0, 4, program)


def collective_on_one_rank(_: Path) -> None:
    raise_of(0, 4, lambda world: world.on_main(lambda: world.barrier("epoch 3")))


def remote_error(folder: Path) -> None:
    def read_vocabulary() -> str:
        return (folder / "vocab.txt").read_text()

    raise_of(1, 4, lambda world: world.on_main(read_vocabulary))


def batch_mismatch(_: Path) -> None:
    allranks.BatchPlan(100, ranks=4, devices=2)


def bad_argument(folder: Path) -> None:
    Checkpointer(folder, single_world(), keep_last=-1)


def not_ready(_: Path) -> None:
    def program(world: World) -> None:
        config = {"lr": 0.2 if world.rank == 3 else 0.1}
        allranks.preflight(world, same={"config": config}, distinct={"seeds": world.rank // 3})

    with (
        mock.patch.object(preflighting, "import_adapter", return_value=None),
        mock.patch.object(preflighting, "has_jaxlib", return_value=False),
        mock.patch("builtins.print"),
    ):
        raise_of(0, 4, program)


def data_error(folder: Path) -> None:
    def tokens(sample: dict[str, Any]) -> Any:
        return sample["text"].split()

    list(Dataset.jsonl(str(text_file(folder))).map(tokens).batch(4).loader(single_world()))


def data_changed(folder: Path) -> None:
    path = text_file(folder)
    loader = Dataset.jsonl(str(path)).batch(4).loader(single_world())
    text_file(folder, samples=5)
    list(loader)


def no_length(folder: Path) -> None:
    len(Dataset.jsonl(str(text_file(folder))).pack(32).batch(4).loader(single_world()))


def worker_died(_: Path) -> None:
    piece = _SampleList(list(range(4)), np.arange(40, 44), 0, Future())
    while not piece.count_death("was killed by SIGKILL"):
        pass
    piece.future.result()


def ledger_mismatch(_: Path) -> None:
    index = DatasetIndex.from_blocks("jsonl", [SourceFile("train.jsonl", 1000, "1")], [(0, 0, 0, 1000, 0)])
    plan = EpochPlan(index, choose_layout(index, global_batch=8, seed=0, shuffle=True), 0)

    def program(world: World) -> None:
        ledger = Ledger(plan.steps, rows_of_rank(world.rank, 4, 8))
        ids = plan.row_ids(ledger.rows, 0, 10)
        ids[7, 1] = -1 if world.rank == 2 else ids[7, 1]
        for step, (count, mixed) in enumerate(zip(*sums_of_batches(ids), strict=True)):
            ledger.record_batch(step, count, mixed)
        audit.verify_epoch(world, plan, ledger)

    raise_of(0, 4, program)


def cannot_store(folder: Path) -> None:
    def cosine(step: int) -> float:
        return float(np.cos(step))

    Checkpointer(folder, single_world(), on_sigterm=False).save(1200, {**state(), "schedule": cosine})


def does_not_fit(folder: Path) -> None:
    with saved_run(folder) as checkpointer:
        checkpointer.restore(state(width=8))


def damaged(folder: Path) -> None:
    with saved_run(folder) as checkpointer:
        (file,) = (folder / "run" / "checkpoint-1200").glob("rank-*")
        data = bytearray(file.read_bytes())
        data[-8] ^= 1
        file.write_bytes(data)
        checkpointer.restore(state())


def save_failed(_: Path) -> None:
    disk = MemoryStorage()

    def program(world: World) -> None:
        storage = disk.new_process()
        if world.rank == 2:
            storage.fail_operation("block", error=OSError(28, os.strerror(28)))
        Checkpointer(storage, world, on_sigterm=False).save(1200, {"w": np.ones((64, 64))}, block=True)

    raise_of(0, 4, program)


def fenced(folder: Path) -> None:
    older, _ = (Checkpointer(folder / "run", single_world(), on_sigterm=False) for _ in range(2))
    older.save(1200, state(), block=True)


def step_exists(folder: Path) -> None:
    with saved_run(folder) as checkpointer:
        checkpointer.save(1200, state())


def newer_format(folder: Path) -> None:
    with saved_run(folder) as checkpointer:
        path = folder / "run" / "checkpoint-1200" / "manifest.json"
        body = path.read_bytes().split(b"\n", 1)[1].replace(b'"version":1', b'"version":9')
        path.write_bytes(b'{"digest":"' + xxhash.xxh3_128_hexdigest(body).encode() + b'",\n' + body)
        checkpointer.restore(state())


def not_resumed(folder: Path) -> None:
    with saved_run(folder, metrics={"loss": 0.3557}) as checkpointer:
        checkpointer.restore(state())
        checkpointer.resume_gate({"loss": 1.75})


def storage_error(_: Path) -> None:
    full = MemoryStorage()
    full.fail_operation("put", error=OSError(28, os.strerror(28)))
    full.put("run/notes.json", b"{}")


def not_there(folder: Path) -> None:
    with saved_run(folder) as checkpointer:
        checkpointer.restore(state(), step=1300)


def step_removed(folder: Path) -> None:
    with saved_run(folder) as checkpointer, checkpointer.hold(1300):
        pass


def already_there(_: Path) -> None:
    storage = MemoryStorage()
    for _ in range(2):
        storage.put("run/notes.json", b"{}")


def not_a_file(folder: Path) -> None:
    (folder / "run" / "notes.json").mkdir(parents=True)
    LocalStorage(folder).get("run/notes.json")


def truncated(_: Path) -> None:
    storage = MemoryStorage()
    storage.put("run/notes.json", b"{}")
    storage.read("run/notes.json", 0, [memoryview(bytearray(64))])


def unknown_format(folder: Path) -> None:
    (folder / "model.bin").write_text("weights\n")
    allranks.load(folder / "model.bin", state(), world=single_world())


def unsafe(folder: Path) -> None:
    (folder / "model.pkl").write_bytes(b"\x80\x04N.")
    allranks.load(folder / "model.pkl", state(), world=single_world())


# By the parts of docs/errors.md, in its order.
CASES: dict[str, dict[type[errors.AllranksError], Case]] = {
    "World and exchanges": {
        errors.ContradictingSigns: contradicting_signs,
        errors.StoreError: store_error,
        errors.KeyTimeout: key_timeout,
        errors.BarrierTimeout: barrier_timeout,
        errors.RankDied: rank_died,
        errors.RemoteError: remote_error,
        errors.NotJsonable: not_jsonable,
    },
    "Calls and values that differ between ranks": {
        errors.Mismatch: mismatch,
        errors.CollectiveOnOneRank: collective_on_one_rank,
        errors.NotReady: not_ready,
        errors.BatchMismatch: batch_mismatch,
        errors.BadArgument: bad_argument,
    },
    "Data": {
        errors.DataError: data_error,
        errors.DataChanged: data_changed,
        errors.NoLength: no_length,
        errors.WorkerDied: worker_died,
        errors.LedgerMismatch: ledger_mismatch,
    },
    "Checkpoints": {
        errors.SaveFailed: save_failed,
        errors.Fenced: fenced,
        errors.StepExists: step_exists,
        errors.CannotStore: cannot_store,
        errors.DoesNotFit: does_not_fit,
        errors.Damaged: damaged,
        errors.StepRemoved: step_removed,
        errors.NewerFormat: newer_format,
        errors.NotResumed: not_resumed,
    },
    "Storage": {
        errors.StorageError: storage_error,
        errors.NotThere: not_there,
        errors.NotAFile: not_a_file,
        errors.AlreadyThere: already_there,
        errors.Truncated: truncated,
    },
    "Loading what others saved": {
        errors.UnknownFormat: unknown_format,
        errors.Unsafe: unsafe,
    },
}
