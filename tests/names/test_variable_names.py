"""The lists of names that others read."""

from __future__ import annotations

from allranks.names.flags import nearest_flag as nearest_flag
from allranks.names.flags import xla_flags
from allranks.names.variables import NAMES, nearest_variable


def test_a_flag_is_known_with_the_versions_that_accept_it() -> None:
    """Flags come and go: one of all versions, one that came late, one that is no flag."""
    flags = xla_flags()
    assert flags["xla_force_host_platform_device_count"][-1] == "0.10.2"
    assert "0.4.30" not in flags["xla_cpu_collective_timeout_seconds"]
    assert "xla_rendezvous_wait_seconds" not in flags


def test_a_misspelled_name_leads_to_the_true_one() -> None:
    assert nearest_variable("NCCL_SOCKET_IFNAM") == "NCCL_SOCKET_IFNAME"
    assert nearest_variable("XLA_RENDEZVOUS_WAIT_SECONDS") is None
    assert nearest_flag("xla_force_host_platform_device_counts") == "xla_force_host_platform_device_count"


def test_every_variable_stands_under_its_prefix() -> None:
    """The prefix decides where a name is looked up."""
    assert [name for prefix, names in NAMES.items() for name in names if not name.startswith(prefix)] == []
