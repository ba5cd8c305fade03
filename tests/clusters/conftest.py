"""The hosts of the tests of this folder: a cluster for each worker of pytest, clean again after each test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import network_hosts
import pytest
from host_job import Job


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


@pytest.fixture
def start(hosts: network_hosts.Hosts, tmp_path: Path) -> Iterator[object]:
    """Return a function that starts ``allranks run`` with these options on all hosts, or on those given."""
    with contextlib.ExitStack() as stack:

        def begin(
            *options: object, names: Sequence[str] = ("h0", "h1", "h2", "h3"), env: Mapping[str, str] = {}
        ) -> Job:
            job = Job(hosts, tmp_path, options, names, env)
            stack.callback(job.kill)
            return job

        yield begin
