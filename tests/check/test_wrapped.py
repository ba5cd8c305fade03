"""What of a model is asked of the wrapper around it: who has it, who asks which, and who is ready for either."""

from __future__ import annotations

import pytest

from allranks.check.tables.data import OF_WRAPPER


@pytest.mark.needs("torch")
def test_the_table_has_all_that_torch_gives_its_wrapper() -> None:
    """What every module has, and what the wrapper itself defines."""
    from torch.nn.parallel import DistributedDataParallel

    names = {name for name in dir(DistributedDataParallel) if not name.startswith("_")}
    assert names <= OF_WRAPPER
