"""Which framework's probe watches a program: that of each framework that it imports, once it does."""

from __future__ import annotations

from collections.abc import Callable
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
_JAX = {"jax": "watch", "jax.experimental.multihost_utils": "watch_synchronisations"}


def attach(recorder: Recorder, *, steps: int = 0) -> None:
    """Watch torch and JAX, now or once they are imported; end the program after so many steps, if not 0."""

    def torch_probe() -> Any:
        from allranks.rehearse.probe.torch import TorchProbe

        return TorchProbe(recorder, steps)

    def jax_probe() -> Any:
        from allranks.rehearse.probe.jax import JaxProbe

        return JaxProbe(recorder, steps)

    for hooks, make in ((_TORCH, torch_probe), (_JAX, jax_probe)):
        _attach(hooks, make)


def _attach(hooks: dict[str, str], make: Callable[[], Any]) -> None:
    made: list[Any] = []

    def watch(name: str, module: Any) -> None:
        if not made:
            made.append(make())
        getattr(made[0], name)(module)

    for module_name, name in hooks.items():
        imports.after_import(module_name, lambda module, name=name: watch(name, module))
