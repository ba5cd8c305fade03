"""Attach the probe of each framework that a program imports, as soon as it is imported."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from allranks.agent import load
from allranks.rehearse.probe.draws import DrawRecorder
from allranks.rehearse.probe.record import Recorder
from allranks.rehearse.probe.saves import SaveRecorder

imports = load("allranks_agent_imports")
# By module: the method of the framework's probe that is called with it, as soon as it is imported.
_TORCH = {
    "torch.distributed.distributed_c10d": "watch_synchronisations",
    "torch.optim.optimizer": "watch_steps",
    "torch.utils.data.dataloader": "watch_loaders",
    "torch.distributed.algorithms.join": "watch_joins",
    "torch.optim.lr_scheduler": "watch_schedulers",
    "torch._tensor": "watch_values",
}
# The same for the probe of gradients.
_GRADIENTS = {
    "torch.distributed.distributed_c10d": "watch_reductions",
    "torch.optim.optimizer": "watch_steps",
    "torch.nn.modules.module": "watch_modules",
    "torch._tensor": "watch_backward",
    "torch.nn.utils": "watch_clipping",
}


def attach(recorder: Recorder, *, steps: int = 0, with_norms: bool = False) -> None:
    """Watch torch and JAX, now or once they are imported. End the program after ``steps`` steps, if not 0.

    ``with_norms``: record norms of weights and gradients.
    """
    saves = SaveRecorder(recorder)
    saves.attach()
    draws = DrawRecorder(recorder)
    draws.attach()

    @functools.cache
    def torch_probe() -> Any:
        from allranks.rehearse.probe.torch import TorchProbe

        return TorchProbe(recorder, steps)

    @functools.cache
    def gradient_probe() -> Any:
        from allranks.rehearse.probe.gradients.torch import GradientProbe

        return GradientProbe(recorder, lambda: torch_probe().modules, with_norms=with_norms)

    def watch_modules(module: Any) -> None:
        from allranks.rehearse.probe.modules.torch import ModuleProbe

        torch_probe().modules = modules = ModuleProbe(recorder)
        saves.local_buffers = modules.local_buffers
        modules.watch(module)

    def watch_jax(module: Any) -> None:
        from allranks.rehearse.probe.jax import JaxProbe
        from allranks.rehearse.probe.maps.jax import MapProbe

        probe = JaxProbe(recorder, steps, saves)
        probe.watch(module)
        MapProbe(recorder, draws).watch(module)
        imports.after_import("jax.experimental.multihost_utils", probe.watch_synchronisations)

    def watch(probe: Callable[[], Any], name: str, module: Any) -> None:
        getattr(probe(), name)(module)

    for probe, table in ((torch_probe, _TORCH), (gradient_probe, _GRADIENTS)):
        for module_name, name in table.items():
            action = functools.partial(watch, probe, name)
            imports.after_import(module_name, functools.partial(_attach, recorder, action))
    imports.after_import("torch.nn.modules.module", functools.partial(_attach, recorder, watch_modules))
    imports.after_import("torch.distributed.tensor._api", functools.partial(_attach, recorder, saves.watch_tensors))
    imports.after_import("jax", functools.partial(_attach, recorder, watch_jax))


def _attach(recorder: Recorder, action: Callable[[Any], object], module: Any) -> None:
    """Attach a probe to a module. If that fails, record it: what the probe would have seen is then not judged."""
    try:
        action(module)
    except Exception as error:
        recorder.write("unattached", place=0, module=module.__name__, error=f"{type(error).__name__}: {error}")
        raise
