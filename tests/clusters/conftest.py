"""The hosts of the tests of this folder: a cluster for each worker of pytest, clean again after each test."""

from __future__ import annotations

from collections.abc import Iterator

import network_hosts
import pytest


@pytest.fixture(scope="session")
def running_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[network_hosts.Hosts]:
    if reason := network_hosts.missing():
        pytest.skip(reason)
    with network_hosts.running(tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


@pytest.fixture
def hosts(running_hosts: network_hosts.Hosts) -> Iterator[network_hosts.Hosts]:
    """Four hosts h0 to h3; after the test, their cables are plugged in and its processes are ended."""
    try:
        yield running_hosts
    finally:
        running_hosts.clean()
