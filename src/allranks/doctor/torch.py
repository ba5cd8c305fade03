"""Print torch's version, build and devices as JSON lines; run as a script, in a separate process."""

from __future__ import annotations

import json
from typing import Any

print(json.dumps({"doing": "import torch"}), flush=True)
import torch  # noqa: E402 - what is about to be done is said first
import torch.distributed as dist  # noqa: E402

print(json.dumps({"doing": "torch.cuda.is_available()", "version": torch.__version__}), flush=True)
usable = torch.cuda.is_available()
found = [torch.cuda.get_device_properties(at) for at in range(torch.cuda.device_count())] if usable else []
nccl: Any = torch.cuda.nccl
has_nccl = dist.is_available() and dist.is_nccl_available()
carriers = ("gloo", "nccl", "mpi", "ucc", "xccl")
backends = [name for name in carriers if dist.is_available() and dist.is_backend_available(name)]
version = ".".join(map(str, nccl.version())) if has_nccl else ""
built = {"CUDA": torch.version.cuda, "ROCm": torch.version.hip, "NCCL": version, "backends": " ".join(backends)}
told = [(one.name, one.total_memory) for one in found]
print(json.dumps({"doing": "", "platform": "gpu" if found else "cpu", "devices": told, "built": built}), flush=True)
