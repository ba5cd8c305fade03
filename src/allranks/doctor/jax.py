"""Print JAX's version and devices as JSON lines; run as a script, in a separate process."""

from __future__ import annotations

import json

print(json.dumps({"doing": "import jax"}), flush=True)
import jax  # noqa: E402 - what is about to be done is said first

print(json.dumps({"doing": "jax.local_devices()", "version": jax.__version__, "file": jax.__file__}), flush=True)
devices = jax.local_devices()
stats = [(device.memory_stats() or {}) if device.platform != "cpu" else {} for device in devices]
told = [(device.device_kind, known.get("bytes_limit", 0)) for device, known in zip(devices, stats, strict=True)]
print(json.dumps({"doing": "", "platform": devices[0].platform, "devices": told}), flush=True)
