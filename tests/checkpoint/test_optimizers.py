"""Optimizers and schedules of torch through a checkpoint: no step is taken to restore one, whichever it is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as schedules

from allranks.arrays.optimizer_states import OPTIMIZERS as NAMES
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.checkpoint.restore import Restored
from allranks.errors import DoesNotFit
from allranks.storage import MemoryStorage
from allranks.world.detect import single_world

Make = Callable[[Any], torch.optim.Optimizer]


class Lion(torch.optim.Optimizer):
    """An optimizer that calls its rate by another name, and counts its steps in an int."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"learning_rate": 1e-2, "betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self, _closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(p))
                state["step"] += 1
                state["exp_avg"].mul_(group["betas"][0]).add_(p.grad, alpha=0.1)
                p.add_(state["exp_avg"].sign(), alpha=-group["learning_rate"])


class EightBit(torch.optim.Optimizer):
    """As bitsandbytes keeps a state: bytes, a map, a scale for each block; and lists and dictionaries of tensors."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 1e-2})

    @torch.no_grad()
    def step(self, _closure: Any = None) -> None:  # type: ignore[override]
        for p in (p for p in self.param_groups[0]["params"] if p.grad is not None):
            state = self.state[p]
            if not state:
                bytes_of = torch.zeros(p.shape, dtype=torch.uint8)
                state.update(step=0, state1=bytes_of, qmap1=torch.linspace(-1, 1, 256), absmax1=torch.zeros(2))
                state.update(sides=[torch.zeros(n, n) for n in p.shape], more={"a": torch.ones(3), "b": {"c": 1.5}})
                state["mode"] = "block"
            state["step"] += 1
            state["state1"] += 1
            state["absmax1"] += p.grad.abs().max()
            state["sides"][0] += 1
            p.sub_(p.grad * state["absmax1"].mean() * state["state1"].float() * state["sides"][0].mean() * 1e-2)


def plain(name: str, **settings: Any) -> Make:
    return lambda params: getattr(torch.optim, name)(params, **settings)


def in_groups(params: Any) -> torch.optim.Optimizer:
    first, *rest = params
    return torch.optim.AdamW([{"params": [first], "lr": 0.1}, {"params": rest, "weight_decay": 0.0}])


OPTIMIZERS: dict[str, Make] = {
    **{name: plain(name) for name in NAMES if name != "SparseAdam"},
    "momentum": plain("SGD", lr=0.1, momentum=0.9),
    "amsgrad": plain("AdamW", amsgrad=True),
    "fused": plain("AdamW", fused=True),
    "centered": plain("RMSprop", momentum=0.9, centered=True),
    "a tensor's rate": lambda params: torch.optim.AdamW(params, lr=torch.tensor(0.1)),
    "one iteration": plain("LBFGS", max_iter=1),
    "line search": plain("LBFGS", line_search_fn="strong_wolfe"),
    "named": lambda params: torch.optim.AdamW([(f"p{i}", p) for i, p in enumerate(params)]),
    "groups": in_groups,
    "Lion": Lion,
    "8 bit": EightBit,
}


def model_of(fill: float = 0.0) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4, bias=False), torch.nn.Linear(4, 3, bias=False))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(fill)
    return model


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int, schedule: Any = None) -> list[float]:
    losses = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(torch.ones(2, 3)) - torch.arange(3.0)).square().sum()
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(steps):
        if isinstance(optimizer, torch.optim.LBFGS):
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        if schedule is not None:
            schedule.step(*([losses[-1]] if isinstance(schedule, schedules.ReduceLROnPlateau) else []))
    return losses


def saved(state: Any) -> MemoryStorage:
    storage = MemoryStorage()
    with Checkpointer(storage, single_world(), on_sigterm=False) as ckpt:
        ckpt.save(1, state, block=True)
    return storage


def restore(storage: MemoryStorage, like: Any, **options: Any) -> Restored[Any]:
    restored = Checkpointer(storage.new_process(), single_world(), read_only=True).restore(like, **options)
    assert restored is not None
    return restored


def test_the_table_knows_every_optimizer_of_torch() -> None:
    """A new one there is a row here."""
    there = {name for name in torch.optim.__all__ if isinstance(getattr(torch.optim, name), type)} - {"Optimizer"}
    assert there == set(NAMES)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_goes_on_with_every_optimizer(name: str) -> None:
    """From before the first step and after some, into a fresh optimizer and a used one: the same losses, to the bit."""
    for steps in (0, 1, 3):
        model = model_of()
        optimizer = OPTIMIZERS[name](model.parameters())
        train(model, optimizer, steps)
        storage = saved({"model": model, "optimizer": optimizer})
        expected = train(model, optimizer, 3)
        for used in (0, 2):
            other = model_of(fill=1.0)
            into = OPTIMIZERS[name](other.parameters())
            train(other, into, used)
            assert restore(storage, {"model": other, "optimizer": into}).notes == ()
            assert train(other, into, 3) == expected, (steps, used)


def test_sparse_adam_keeps_its_count() -> None:
    """The one whose gradients are sparse."""

    def step(table: torch.nn.Embedding, optimizer: torch.optim.Optimizer) -> list[float]:
        optimizer.zero_grad()
        table(torch.tensor([1, 2])).square().sum().backward()
        optimizer.step()
        return table.weight.flatten().tolist()

    tables = [torch.nn.Embedding.from_pretrained(torch.ones(4, 2), freeze=False, sparse=True) for _ in range(2)]
    first, second = (torch.optim.SparseAdam(table.parameters()) for table in tables)
    step(tables[0], first)
    restore(saved([tables[0], first]), [tables[1], second])
    assert step(tables[1], second) == step(tables[0], first)


SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda o: schedules.StepLR(o, 2),
    "MultiStepLR": lambda o: schedules.MultiStepLR(o, [2, 3]),
    "OneCycleLR": lambda o: schedules.OneCycleLR(o, 0.1, 20),
    "ReduceLROnPlateau": lambda o: schedules.ReduceLROnPlateau(o, patience=1),
    "LambdaLR": lambda o: schedules.LambdaLR(o, lambda epoch: 0.9**epoch),
    "SequentialLR": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, total_iters=2), schedules.CosineAnnealingLR(o, 9)], [2]
    ),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 0.05),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step", "ignore:Detected call of `lr_scheduler")
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("rate", [0.05, torch.tensor(0.05)], ids=["float", "tensor"])
def test_a_fresh_schedule_takes_the_place_of_a_used_one(name: str, rate: Any) -> None:
    """What a schedule has only once it has stepped comes from the checkpoint."""
    parts = []
    for _ in range(2):
        model = model_of()
        optimizer = torch.optim.AdamW(model.parameters(), lr=copy.deepcopy(rate))
        parts.append([model, optimizer, SCHEDULES[name](optimizer)])
    (model, optimizer, schedule), (other, into, fresh) = parts
    train(model, optimizer, 3, schedule)
    restore(saved(parts[0]), parts[1])
    assert train(other, into, 4, fresh) == train(model, optimizer, 4, schedule)


def net() -> dict[str, Any]:
    """A model with a part that gets no gradient, and its optimizer."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "unused": torch.nn.Linear(2, 2)})
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}


def test_a_parameter_without_gradient_has_no_state_afterwards_either() -> None:
    """Neither from the restore, nor left over in an optimizer that had one."""
    state = net()
    state["model"]["a"](torch.ones(2)).sum().backward()
    state["optimizer"].step()
    storage = saved(state)
    for used in (False, True):
        into = net()
        if used:
            sum(into["model"][name](torch.ones(2)).sum() for name in into["model"]).backward()
            into["optimizer"].step()
        restore(storage, into)
        parameters = list(into["model"].parameters())
        assert [bool(into["optimizer"].state.get(p)) for p in parameters] == [True, True, False, False]


class Hooked(torch.optim.SGD):
    """An optimizer whose steps are heard."""

    steps = 0

    def step(self, closure: Any = None) -> Any:
        Hooked.steps += 1
        return super().step(closure)


def everything(state: dict[str, Any]) -> bytes:
    """All of a state, gradients and random numbers included, as bytes."""
    tensors = [*state["model"].state_dict().values(), *(p.grad for p in state["model"].parameters())]
    held = [(t.dtype, tuple(t.shape), bytes(t.detach().numpy())) for t in tensors if t is not None]
    rest = copy.deepcopy([state["optimizer"].state_dict(), state["schedule"].state_dict()])
    return repr((held, rest, torch.get_rng_state().tolist())).encode()


@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
def test_a_refused_restore_leaves_everything_as_it_was(used: bool) -> None:
    """Model, gradients, optimizer, schedule and random numbers, byte for byte; and no step was taken."""

    def state_of(width: int) -> dict[str, Any]:
        model = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.BatchNorm1d(width))
        optimizer = Hooked(model.parameters(), lr=0.1, momentum=0.9)
        return {"model": model, "optimizer": optimizer, "schedule": schedules.StepLR(optimizer, 2)}

    other = state_of(3)
    other["model"](torch.ones(4, 2)).square().sum().backward()
    other["optimizer"].step()
    storage = saved(other)
    state = state_of(2)
    if used:
        state["model"](torch.ones(4, 2)).square().sum().backward()
        state["optimizer"].step()
    before, steps = everything(state), Hooked.steps
    with pytest.raises(DoesNotFit):
        restore(storage, state)
    assert (everything(state), Hooked.steps) == (before, steps)
    restore(saved(state), state)
    assert (everything(state), Hooked.steps) == (before, steps)


@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
def test_another_optimizer_or_another_shape_is_refused(used: bool) -> None:
    """What is missing and what is unexpected is named, as is a state of another shape than its parameter."""

    def of(make: Make, width: int, steps: int) -> dict[str, Any]:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, width, bias=False)
        optimizer = make(model.parameters())
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(3)).sum().backward()
            optimizer.step()
        return {"optimizer": optimizer}

    momentum, adam = plain("SGD", lr=0.1, momentum=0.9), plain("AdamW")
    storage = saved(of(momentum, 2, 1))
    with pytest.raises(DoesNotFit) as error:
        restore(storage, of(adam, 2, int(used)))
    kinds = {(one.kind, one.path) for one in error.value.differences}
    assert {
        ("missing", "optimizer/state/0/exp_avg"),
        ("unexpected", "optimizer/state/0/momentum_buffer"),
        ("missing", "optimizer/param_groups/0/betas/0"),
        ("unexpected", "optimizer/param_groups/0/momentum"),
    } <= kinds
    with pytest.raises(DoesNotFit) as error:
        restore(saved(of(adam, 2, 1)), of(adam, 5, int(used)))
    assert {one.path for one in error.value.differences if one.kind == "reshaped"} == {
        "optimizer/state/0/exp_avg",
        "optimizer/state/0/exp_avg_sq",
    }


def stepped(**settings: Any) -> torch.optim.Optimizer:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    return optimizer


def test_settings_that_only_one_version_of_torch_has() -> None:
    """A newer one's stay as the program has them, and the report tells so; an older one's go along."""
    state = copy.deepcopy(stepped(lr=1).state_dict())
    del state["param_groups"][0]["decoupled_weight_decay"]
    state["param_groups"][0]["initial_lr"] = 1.0
    storage = saved({"o": state})
    into = stepped(lr=1e-3, weight_decay=0.5)
    notes = restore(storage, {"o": into}).notes
    [note] = notes
    assert note.startswith(
        "'o/param_groups/0/decoupled_weight_decay' keeps this program's value True: the checkpoint has none"
    )
    group = into.param_groups[0]
    assert (group["lr"], group["weight_decay"], group["initial_lr"]) == (1, 0.01, 1.0)


def test_a_rate_may_be_a_number_or_a_tensor() -> None:
    """It becomes what the program has, a tensor the same tensor."""
    rate = torch.tensor(0.5)
    into = stepped(lr=rate)
    restore(saved(stepped(lr=0.25)), into)
    assert into.param_groups[0]["lr"] is rate
    assert rate.item() == 0.25
    number = stepped(lr=0.5)
    restore(saved(stepped(lr=torch.tensor(0.125))), number)
    assert type(number.param_groups[0]["lr"]) is float
    assert number.param_groups[0]["lr"] == 0.125


def test_a_model_and_its_optimizer_on_the_meta_device() -> None:
    """One template: the optimizer goes on with the parameters that the model has afterwards."""
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, 2)
    storage = saved({"m": model, "o": optimizer})
    with torch.device("meta"):
        empty = model_of()
    empty[0].weight.mark = "kept"  # type: ignore[assignment]
    into = torch.optim.AdamW(empty.parameters())
    restore(storage, {"m": empty, "o": into})
    assert empty[0].weight.mark == "kept"
    assert all(p is q for p, q in zip(empty.parameters(), into.param_groups[0]["params"], strict=True))
    assert train(empty, into, 3) == train(model, optimizer, 3)
