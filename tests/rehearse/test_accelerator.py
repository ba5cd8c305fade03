"""Programs that ask for a GPU, rehearsed on the CPU: real ranks of the command; and the tables and the state alone."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from allranks.rehearse.accelerator import names
from allranks.rehearse.accelerator.imports import Finder
from allranks.rehearse.accelerator.jax_devices import attach_pallas
from allranks.rehearse.accelerator.state import State

PROGRAMS = Path(__file__).parent / "gpu_programs"
NEEDS = {
    "lightning_gpu": "lightning",
    "accelerate_gpu": "accelerate",
    "trainer_bf16": "transformers",
    "jax_pallas": "jax",
}


def rehearse(folder: Path, program: str, *options: str) -> tuple[subprocess.CompletedProcess[str], dict]:
    """Return a finished rehearsal of the quiet run on two ranks, and its JSON."""
    command = [sys.executable, "-m", "allranks", "rehearse", "-n", "2", "--only", "quiet", *options]
    command += ["--output-format", "json", "--output-file", "out.json", program]
    environment = {**os.environ, "JAX_PLATFORMS": "cuda,cpu"}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    return done, json.loads((folder / "out.json").read_text())


@pytest.mark.soak
@pytest.mark.parametrize("program", sorted(path.stem for path in PROGRAMS.glob("*.py")))
def test_a_program_for_gpus_runs_to_its_end_without_a_finding(program: str, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS.get(program, "torch"))
    shutil.copy(PROGRAMS / f"{program}.py", tmp_path)
    done, report = rehearse(tmp_path, f"{program}.py", "--accelerator", "cpu", "--steps", "0")
    assert done.returncode == 0, done.stderr + str(report["findings"])
    (row,) = [row for row in report["readiness"] if row["topic"] == "accelerator"]
    assert row["verdict"] == "ok"


@pytest.mark.soak
def test_without_the_option_the_program_fails_and_is_told_of_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text("import torch\ntorch.zeros(2).cuda()\n")
    done, _ = rehearse(tmp_path, "train.py", "--accelerator", "none")
    assert done.returncode == 3
    assert "--accelerator cpu" in done.stderr


@pytest.mark.soak
def test_a_wrong_answer_of_jax_is_a_line_of_the_report(tmp_path: Path) -> None:
    """The known answers are asked of the JAX that the program has: here one whose psum_scatter is wrong."""
    pytest.importorskip("jax")
    broken = "import jax\nright = jax.lax.psum_scatter\njax.lax.psum_scatter = lambda *a, **k: right(*a, **k) + 1\n"
    check = "from allranks.rehearse.known_answer.jax import check\ncheck()\n"
    (tmp_path / "wrong.py").write_text(broken + check)
    (tmp_path / "right.py").write_text(check)
    for script, code in (("right.py", 0), ("wrong.py", 1)):
        command = [sys.executable, "-m", "allranks", "run", "-n", "2", script]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stdout + done.stderr
    assert "psum_scatter of 4 MiB is wrong" in done.stdout + done.stderr


@pytest.mark.soak
def test_a_thread_of_gloo_at_the_end_of_a_rank_is_no_fault_of_the_script(tmp_path: Path) -> None:
    """Without a rehearsal, about one run of three aborts or hangs: a thread wants the interpreter while it ends."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))\n"
        "work = dist.all_reduce(torch.ones(1 << 20), async_op=True)\n"
        "future = work.get_future().then(lambda _: sum(range(10**6)))\n"
    )
    for _ in range(5):
        done, _ = rehearse(tmp_path, "train.py")
        assert done.returncode == 0, done.stderr


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> State:
    """The accelerator of a rank on a host with four."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return State()


@pytest.mark.parametrize(
    ("visible", "count"), [(None, 4), ("", 0), ("-1", 0), ("2", 1), ("3, 1", 2), ("0,7,1", 1), ("0,1,2,3", 4)]
)
def test_a_rank_sees_the_devices_of_its_host_or_those_that_it_chose(
    machine: State, monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine.count() == count


def test_a_device_that_does_not_exist_is_refused_as_by_cuda(machine: State) -> None:
    machine.choose(3)
    assert machine.current() == 3
    with pytest.raises(RuntimeError, match="invalid device ordinal: this rank sees 4 devices, found cuda:4"):
        machine.choose(4)
    with pytest.raises(RuntimeError, match="found cuda:9"):
        machine.use(9, "Tensor.to")


def test_each_device_is_recorded_once_and_by_its_number_on_the_host(
    machine: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    monkeypatch.setenv("ALLRANKS_HOST", "a")
    written: list[tuple[str, object]] = []
    begun: list[bool] = []
    machine.when_used(lambda: begun.append(True))
    machine.record(lambda kind, **data: written.append((kind, data.get("name") or data.get("device"))))
    for index in (None, 0, 1, 1):
        machine.use(index, "Tensor.cuda")
    assert written == [("replaced", "Tensor.cuda"), ("device", "3"), ("device", "1")]
    assert begun == [True]


def test_names_are_mapped_by_the_tables() -> None:
    assert [names.cpu_backend(one) for one in ("nccl", "NCCL", "cpu:gloo,cuda:nccl", "gloo", "mpi", None)] == [
        *("gloo", "gloo", "gloo", "gloo", "mpi"),
        None,
    ]
    assert names.cpu_platforms("cuda,cpu") == "cpu"
    assert names.cpu_platforms("tpu") == "cpu"
    assert "attn_implementation='sdpa'" in names.needs_gpu("flash_attn.ops")
    assert names.needs_gpu("flash_attn_extra") == ""


def test_a_package_that_needs_a_gpu_is_found_and_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "apex.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert importlib.util.find_spec("apex") is not None
    with pytest.raises(ModuleNotFoundError, match="No module named 'apex' on the CPU: it needs a GPU"):
        importlib.import_module("apex")
    assert importlib.util.find_spec("flash_attn") is None


@pytest.mark.parametrize(
    ("text", "imported"),
    [
        ("import triton", True),
        ("def main():\n    import triton\ntry:\n    main()\nexcept Exception:\n    raise", True),
        ("try:\n    import triton\nexcept ImportError:\n    triton = None", False),
        ("try:\n    import triton\nexcept:\n    triton = None", False),
        ("import contextlib\nwith contextlib.suppress(ValueError, ImportError):\n    import triton", False),
        ("try:\n    import kernels\nexcept (ImportError, OSError):\n    pass", False),
    ],
)
def test_triton_is_imported_where_the_program_has_no_way_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, imported: bool
) -> None:
    for name, content in (("triton", ""), ("kernels", "import triton"), ("program", text)):
        (tmp_path / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    importlib.import_module("program")
    loaded = {name for name in ("triton", "kernels", "program") if sys.modules.pop(name, None)}
    assert ("triton" in loaded) == imported


def test_pallas_kernels_are_interpreted_unless_the_program_says_how() -> None:
    pallas = SimpleNamespace(pallas_call=lambda *_, **options: options["interpret"])
    attach_pallas(pallas)
    assert pallas.pallas_call(None) is True
    assert pallas.pallas_call(None, interpret=False) is True
    assert pallas.pallas_call(None, interpret="parameters") == "parameters"
