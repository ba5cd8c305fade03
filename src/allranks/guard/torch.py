"""Guard a program of torch: compare parameters and gradients at the steps 1, 2, 4, 8, ... of each optimizer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from xxhash import xxh3_128_hexdigest

from allranks.callsite import call_site
from allranks.errors import KeyTimeout, StoreError
from allranks.guard.replicas import Claim, differing, failure
from allranks.world.base import World
from allranks.world.codec import dumps, loads

_kept: list[Any] = []
_MOMENT, _SLICE = 5.0, 0.5  # seconds
_SAMPLED = 64  # so many elements of a parameter are compared after the first step


def compare_parameters(world: World) -> None:
    """From now on, end the job if parameters that are trained as replicas differ between ranks. No rank waits.

    At the first step of an optimizer, its learning rates and all elements are compared. Later, some elements of each
    parameter are compared, each time after twice as many steps.
    """
    judges, is_over = list[threading.Thread](), threading.Event()

    def finish() -> None:
        """Wait a moment for the comparing threads, since a program may be short, and then end them."""
        until = time.monotonic() + _MOMENT
        for judge in judges:
            judge.join(max(0.0, until - time.monotonic()))
        is_over.set()
        for judge in judges:
            judge.join(2 * _SLICE)

    world.listener.before_end(finish)
    # By identity: the optimizer's number, and its steps so far.
    seen: dict[int, list[int]] = {}

    def compare_step(optimizer: Any, *_: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if id(optimizer) not in seen:
            seen[id(optimizer)] = [len(seen), 0]
            _kept.append(optimizer)  # so that no other one gets its identity
        number, step = seen[id(optimizer)]
        seen[id(optimizer)][1] = step = step + 1
        if step & (step - 1):
            return
        groups = [list(filter(_is_matrix, group["params"])) for group in optimizer.param_groups]
        claims = list(_rates(optimizer.param_groups, groups))
        claims += [_claim(one, at_most=_SAMPLED if step > 1 else one.numel()) for group in groups for one in group]
        key, where = f"guard/{number}/{step}", call_site()
        world.store.set(f"{key}/{world.rank}", dumps([asdict(claim) for claim in claims]))
        if world.is_main:
            arguments = (world, key, where, step, is_over)
            judges.append(threading.Thread(target=_judge, args=arguments, name="allranks-guard", daemon=True))
            judges[-1].start()

    _kept.append(register_optimizer_step_pre_hook(compare_step))


def _is_matrix(parameter: Any) -> bool:
    """Return whether this rank holds a complete matrix with a gradient, not only a shard of it, as FSDP and DTensor do.

    Biases are not compared: their gradients may be equal on ranks that train different models, if the loss is linear in
    the bias.
    """
    if parameter.dim() < 2:
        return False
    gradient = parameter.grad
    plain = type(parameter) in (torch.nn.Parameter, torch.Tensor) and not hasattr(parameter, "device_mesh")
    return plain and gradient is not None and gradient.layout is torch.strided and gradient.device.type != "meta"


def _rates(settings: Any, groups: list[list[Any]]) -> Iterator[Claim]:
    """Yield a claim for each learning rate, with a gradient that shows whether ranks train one model."""
    for number, (setting, group) in enumerate(zip(settings, groups, strict=True)):
        rate = setting.get("lr")
        if group and (isinstance(rate, int | float) or (torch.is_tensor(rate) and rate.numel() == 1)):
            gradient = _claim(group[0], at_most=_SAMPLED).gradient
            yield Claim(f"learning rate of parameter group {number}", f"{float(rate):g}", gradient, True)


def _claim(parameter: Any, *, at_most: int) -> Claim:
    stride = max(1, parameter.numel() // max(at_most, 1))
    value, gradient = (whole.detach().reshape(-1)[::stride] for whole in (parameter, parameter.grad))
    digest = _digest(gradient) if bool(gradient.any()) else ""
    return Claim(f"{str(parameter.dtype).removeprefix('torch.')}{list(parameter.shape)}", _digest(value), digest)


def _digest(tensor: Any) -> str:
    return xxh3_128_hexdigest(tensor.contiguous().reshape(-1).view(torch.uint8).cpu().numpy())


def _judge(world: World, key: str, where: str, step: int, is_over: threading.Event) -> None:
    """Wait for the claims of all ranks, and end the job if replicas differ. Runs in a thread of rank 0."""
    texts: list[bytes] = []
    until = time.monotonic() + world.timeout
    while len(texts) < world.size:
        try:
            texts.append(world.store.wait(f"{key}/{len(texts)}", _SLICE))
        except KeyTimeout:
            if is_over.is_set() or time.monotonic() > until:
                return  # a rank that makes no such step
        except StoreError:
            return  # one that has ended
    ranks = [[Claim(**one) for one in loads(text)] for text in texts]
    if places := differing(ranks):
        found = failure(ranks, places, where=where, host=world.host, step=step)
        end: Any = world.listener  # of several processes: it can
        end.end_all(replace(found, when=time.time()))
