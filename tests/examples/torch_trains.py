"""A rank: trains.py, where the example is one of torch, which is imported here once for all ranks."""

import torch._dynamo  # noqa: F401  optimizers import it
import trains  # noqa: F401
