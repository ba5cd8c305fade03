"""Count the accelerators of this host that the job may use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
# Files of a GPU in /dev, and of a TPU chip. One process drives all chips of a TPU host.
_GPU, _TPU = re.compile(r"nvidia\d+"), re.compile(r"accel\d+|vfio")


def count_accelerators(environ: Mapping[str, str], *, devices: Path = Path("/dev")) -> int:
    """Return how many ranks this host should run: one for each GPU that is visible, and one for all chips of a TPU.

    Returns 0 if there is no accelerator.
    """
    names = [path.name for path in devices.iterdir()]
    for variable in VISIBLE:
        if variable in environ:
            return len([one for one in environ[variable].split(",") if one.strip() not in ("", "-1")])
    if gpus := [name for name in names if _GPU.fullmatch(name)]:
        return len(gpus)
    return 1 if any(_TPU.fullmatch(name) for name in names) else 0
