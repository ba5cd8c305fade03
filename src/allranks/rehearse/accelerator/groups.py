"""Let groups of NCCL be groups of gloo, and wrappers of modules on CUDA devices be wrappers of modules on the CPU."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any
from weakref import WeakSet

from allranks.rehearse.accelerator import names
from allranks.rehearse.accelerator.state import STATE


class Groups:
    """The process groups for which the program requested NCCL."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._groups: WeakSet[Any] = WeakSet()

    def attach(self, c10d: Any) -> None:
        """Replace the functions of torch.distributed that make groups, and that say how they were made."""
        _replace(c10d, "init_process_group", self._joining(c10d, c10d.init_process_group))
        _replace(c10d, "new_group", self._joining(c10d, c10d.new_group))
        _replace(c10d, "split_group", functools.partial(self._split, c10d))
        _replace(c10d, "_coalescing_manager", _without_device(c10d._coalescing_manager))
        c10d.Work.get_future = _future(self._torch, c10d.Work.get_future)
        public = self._torch.distributed
        public.get_backend = self._backend(c10d)
        public.is_nccl_available = lambda: True
        public.ProcessGroupNCCL = ProcessGroupNCCL

    def _joining(self, c10d: Any, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper for a function that makes a group: its backend is gloo where the program names NCCL."""
        parameters = tuple(inspect.signature(original).parameters)
        is_world = original.__name__ == "init_process_group"

        @functools.wraps(original)
        def join(*args: Any, **options: Any) -> Any:
            given = dict(zip(parameters, args, strict=False)) | options
            backend, device = given.get("backend"), given.pop("device_id", None)
            is_nccl = names.cpu_backend(backend) != backend
            if is_nccl:
                STATE.note("NCCL (gloo)")
                given["backend"] = "gloo"
            if device is not None:
                STATE.use(getattr(device, "index", device), "init_process_group(device_id)")
            if is_nccl or backend is None:
                given.pop("pg_options", None)
            group = original(**given)
            made = c10d.group.WORLD if is_world else group
            if made is not c10d.GroupMember.NON_GROUP_MEMBER:
                if is_nccl:
                    STATE.joined()
                if is_nccl or (backend is None and not is_world and c10d.group.WORLD in self._groups):
                    self._groups.add(made)
            return group

        return join

    def _split(self, c10d: Any, parent_pg: Any = None, split_ranks: Any = None, timeout: Any = None, **_: Any) -> Any:
        """Return the part of a group that has this rank: gloo cannot split, so all parts are made."""
        everyone = c10d.get_process_group_ranks(parent_pg or c10d.group.WORLD)
        mine = None
        for part in split_ranks or []:
            group = c10d.new_group([everyone[rank] for rank in part], timeout=timeout)
            mine = group if everyone.index(c10d.get_rank()) in part else mine
        return mine

    def _backend(self, c10d: Any) -> Callable[..., Any]:
        original = c10d.get_backend

        @functools.wraps(original)
        def get_backend(group: Any = None) -> Any:
            backend = original(group)
            is_nccl = (group or c10d.group.WORLD) in self._groups
            inside = sys._getframe(1).f_globals.get("__name__", "").startswith(("torch.", "allranks."))
            return c10d.Backend("nccl") if is_nccl and not inside else backend

        return get_backend


def _future(torch: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that returns a future also where gloo has none (reduce_scatter_tensor): its work is done then."""

    @functools.wraps(original)
    def get_future(work: Any) -> Any:
        try:
            return original(work)
        except RuntimeError:
            work.wait()
            future: Any = torch.futures.Future()
            future.set_result([])
            return future

    return get_future


def _without_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the manager of coalesced calls, which gloo has only without a device."""

    @functools.wraps(original)
    def manage(group: Any = None, device: Any = None, async_ops: bool = False) -> Any:  # noqa: ARG001
        return original(group, None, async_ops)

    return manage


class ProcessGroupNCCL:
    """The replacement of torch's class in a torch without NCCL. Its options have no effect."""

    class Options:
        """Options of NCCL: any attribute may be set."""

        def __init__(self, *_: Any, **options: Any) -> None:
            self.config = type("Config", (), {})()
            self.__dict__.update(options)


def _replace(c10d: ModuleType, name: str, function: Any) -> None:
    """Set a function of torch.distributed in all of its modules that have it."""
    original = getattr(c10d, name, None)
    for key, module in list(sys.modules.items()):
        if key.startswith("torch.distributed") and original is not None and getattr(module, name, None) is original:
            setattr(module, name, function)


def attach_mesh(module: Any) -> None:
    """Let meshes of CUDA devices be meshes of the CPU. The first one chooses the device of LOCAL_RANK, as in torch."""
    begin = module.DeviceMesh.__init__

    @functools.wraps(begin)
    def init(mesh: Any, device_type: Any, *args: Any, **options: Any) -> None:
        if device_type == "cuda":
            STATE.note("DeviceMesh('cuda')")
            if not STATE.is_used and not STATE.is_chosen and "LOCAL_RANK" in os.environ:
                STATE.choose(int(os.environ["LOCAL_RANK"]))
            device_type = "cpu"
        begin(mesh, device_type, *args, **options)

    module.DeviceMesh.__init__ = init


def attach_ddp(source: Any) -> None:
    """Let ``DistributedDataParallel(device_ids=...)`` wrap a module on the CPU."""
    ddp = source.DistributedDataParallel
    begin = ddp.__init__

    @functools.wraps(begin)
    def init(
        one: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **options: Any
    ) -> None:
        if device_ids:
            first = device_ids[0]
            STATE.use(first if isinstance(first, int) else first.index, "DistributedDataParallel(device_ids)")
        elif output_device is not None and not isinstance(output_device, int):
            STATE.note("DistributedDataParallel(device_ids)")
        begin(one, module, None, None, *args, **options)

    ddp.__init__ = init
    ddp._passing_sync_batchnorm_handle = lambda *_: None  # it refuses SyncBatchNorm on the CPU


def attach_data_parallel(module: Any) -> None:
    """Let ``DataParallel`` run its module on the CPU, as torch does without a GPU."""
    module._get_available_device_type = lambda: None


def attach_fsdp(torch: Any, module: Any) -> None:
    """Let FSDP keep its parts on the CPU; torch does so only on request."""
    sys.modules["torch.distributed.fsdp._init_utils"]._check_module_states_for_sync_module_states = lambda _: None  # type: ignore[attr-defined]
    fsdp = module.FullyShardedDataParallel
    begin = fsdp.__init__

    @functools.wraps(begin)
    def init(one: Any, *args: Any, **options: Any) -> None:
        device = options.get("device_id")
        STATE.use(getattr(device, "index", device), "FullyShardedDataParallel(device_id)")
        options["device_id"] = torch.device("cpu")
        begin(one, *args, **options)

    fsdp.__init__ = init


def attach_sharding(module: Any) -> None:
    """Let ``fully_shard`` divide gradients by a factor itself: gloo has no sum with a factor (PREMUL_SUM)."""
    name = "_get_gradient_divide_factors"
    original = getattr(module, name, None)
    parameters = inspect.signature(original).parameters if original else {}
    if original is None or "force_sum_reduction_for_comms" not in parameters:
        return

    @functools.wraps(original)
    def factors(*args: Any, **options: Any) -> Any:
        given = dict(zip(parameters, args, strict=False)) | options
        if given.get("factor") is not None:
            given["force_sum_reduction_for_comms"] = True
        return original(**given)

    setattr(module, name, factors)


def attach_batch_norm(torch: Any, module: Any) -> None:
    """Let SyncBatchNorm, which is written for GPUs alone, take the statistics of all ranks on the CPU."""
    original = module.SyncBatchNorm.forward

    @functools.wraps(original)
    def forward(norm: Any, values: Any) -> Any:
        group, dist = norm.process_group or torch.distributed.group.WORLD, torch.distributed
        if not STATE.is_used:
            return original(norm, values)
        if not (norm.training and dist.is_initialized() and dist.get_world_size(group) > 1):
            return module._BatchNorm.forward(norm, values)
        STATE.note("SyncBatchNorm")
        dims, wide = [0, *range(2, values.dim())], values.float()
        count = wide.new_tensor([values.numel() / values.size(1)])
        sums = torch.cat([wide.sum(dims), wide.square().sum(dims), count])
        total = dist.nn.functional.all_reduce(sums, group=group)
        channels, number = values.size(1), total[-1]
        mean = total[:channels] / number
        variance = total[channels:-1] / number - mean.square()
        _track(torch, norm, mean.detach(), variance.detach() * number.detach() / (number.detach() - 1))
        shape = [1, -1, *[1] * (values.dim() - 2)]
        out = (wide - mean.view(shape)) / (variance.view(shape) + norm.eps).sqrt()
        out = out if norm.weight is None else out * norm.weight.view(shape) + norm.bias.view(shape)
        return out.to(values.dtype)

    module.SyncBatchNorm.forward = forward


def _track(torch: Any, norm: Any, mean: Any, variance: Any) -> None:
    if not norm.track_running_stats:
        return
    norm.num_batches_tracked.add_(1)
    rate = 1.0 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    with torch.no_grad():
        norm.running_mean.lerp_(mean, rate)
        norm.running_var.lerp_(variance, rate)
