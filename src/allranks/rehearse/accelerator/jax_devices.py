"""Let JAX answer with its CPU devices where a program asks for an accelerator, and interpret Pallas kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from allranks.rehearse.accelerator import names
from allranks.rehearse.accelerator.state import STATE


def attach(jax: Any) -> None:
    """Map the platforms of an accelerator to ``cpu`` in JAX's functions that look a platform up."""
    bridge = jax._src.xla_bridge
    bridge._get_backend_uncached = _on_cpu(bridge._get_backend_uncached)
    update = jax.config.update

    def update_on_cpu(name: str, value: Any) -> None:
        if name in ("jax_platforms", "jax_platform_name") and isinstance(value, str):
            value = names.cpu_platforms(value)
        update(name, value)

    type(jax.config).update = functools.wraps(update)(lambda _, name, value: update_on_cpu(name, value))
    if platforms := jax.config.jax_platforms:
        update_on_cpu("jax_platforms", platforms)


def _on_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(platform: Any = None, *args: Any) -> Any:
        if names.is_jax_accelerator(platform):
            STATE.note(f"JAX's platform {platform!r}")
            platform = "cpu"
        return original(platform, *args)

    return call


def attach_pallas(pallas: Any) -> None:
    """Interpret all Pallas kernels."""
    original = pallas.pallas_call

    @functools.wraps(original)
    def pallas_call(*args: Any, **options: Any) -> Any:
        STATE.note("Pallas (interpreted)")
        options["interpret"] = options.get("interpret") or True
        return original(*args, **options)

    pallas.pallas_call = pallas_call
