"""Attach the probe of each framework that a program imports, as soon as it is imported."""

from __future__ import annotations

from typing import Any

from allranks.agent import load
from allranks.rehearse.probe.record import Recorder

imports = load("allranks_agent_imports")
# By module: the method of the framework's probe that is called with it, as soon as it is imported.
_TORCH = {
    "torch.distributed.distributed_c10d": "watch_synchronisations",
    "torch.optim.optimizer": "watch_steps",
    "torch.utils.data.dataloader": "watch_loaders",
    "torch.nn.modules.module": "watch_inputs",
    "torch._tensor": "watch_values",
}


def attach(recorder: Recorder, *, steps: int = 0) -> None:
    """Watch torch and JAX, now or once they are imported. End the program after ``steps`` steps, if not 0."""
    made: list[Any] = []

    def torch_probe() -> Any:
        from allranks.rehearse.probe.torch import TorchProbe

        if not made:
            made.append(TorchProbe(recorder, steps))
        return made[0]

    def watch_jax(module: Any) -> None:
        from allranks.rehearse.probe.jax import JaxProbe

        probe = JaxProbe(recorder, steps)
        probe.watch(module)
        imports.after_import("jax.experimental.multihost_utils", probe.watch_synchronisations)

    for module_name, name in _TORCH.items():
        imports.after_import(module_name, lambda module, name=name: getattr(torch_probe(), name)(module))
    imports.after_import("jax", watch_jax)
