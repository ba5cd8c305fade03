"""Examine all hosts of a job, and report on them in one table. Every rank must call ``examine_all_hosts``."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

from allranks.doctor import between, clocks, disk, host, network, ranks, software
from allranks.doctor.between import EchoServer, EchoTarget, FolderMarker, Wall
from allranks.doctor.disk import SeenFolder
from allranks.doctor.host import DoctorRequest, HostInfo, HostReport
from allranks.doctor.hosts import merge_rows_of_hosts
from allranks.doctor.network import ConnectionAttempt
from allranks.findings import Row
from allranks.report.readiness import Readiness
from allranks.world.base import World

# How long the clock of another host, its port or its file may keep us waiting, in seconds.
_SHORTLY = 10.0
# The order of the table, by how topics begin; of each folder, its rows stand together.
_TABLE = (
    *("launcher", "hosts", "running jobs", "versions", "same versions", "packages fit", "jax", "torch", "accelerators"),
    *("ranks and devices", "same hardware", "cores", "memory", "shared memory", "open files", "processes"),
    *("core dumps", "locked memory", "huge pages", "interfaces", "NCCL_", "GLOO_", "InfiniBand", "host name"),
    *("proxies", "reach", "store", "clocks"),
)
_OF_A_FOLDER = ("files", "abilities", "speed", "shared")


def examine_all_hosts(
    world: World, request: DoctorRequest, launcher_row: Row, *, wall_time: Wall = time.time
) -> Readiness:
    """Examine all hosts of the world, and the connections between them; return the table. **Every rank must call it.**

    ``launcher_row`` is the row about the launcher. ``wall_time`` returns this host's time, which is compared with the
    time of the other hosts.
    """
    limit = request.patience * (len(request.folders) + 2) + 60
    infos = world.all_gather(asdict(host.host_info(world.host)), name="doctor: who is here")
    everybody = [HostInfo(**one) for one in infos]
    names = tuple(dict.fromkeys(one.host for one in everybody))
    leads = next(rank for rank, one in enumerate(everybody) if one.host == world.host) == world.rank
    visit = _HostProbes(world, request, names, names.index(world.host), wall_time) if leads else None
    examined = visit.examine_this_host([one for one in everybody if one.host == world.host]) if visit else None
    offers = world.all_gather(
        visit.open_port_and_markers(examined) if visit and examined else None, name="doctor: addresses", timeout=limit
    )
    measured = visit.probe_other_hosts([one for one in offers if one is not None]) if visit else None
    report = None if examined is None else {"examined": _report_as_json(examined), "measured": measured}
    gathered = world.gather(report, name="doctor: what was found", timeout=limit)
    if visit is not None and visit.echo is not None:
        visit.echo.close()
    rows: list[Any] = []
    if gathered is not None and visit is not None:
        of_ranks = [
            launcher_row,
            *ranks.hosts_rows([one.host for one in everybody], [one.boot for one in everybody], os.environ),
        ]
        found = visit.rows_of_hosts([one for one in gathered if one is not None])
        rows = [row.to_json() for row in _in_order([*of_ranks, *found], request.folders)]
    agreed = world.broadcast(rows, name="doctor: the table", timeout=limit)
    return Readiness(tuple(Row.from_json(row) for row in agreed), names, world.size)


def _in_order(rows: Sequence[Row], folders: Sequence[str]) -> list[Row]:
    of_folders = [f"{what} {label}" for label in disk.folder_labels(folders).values() for what in _OF_A_FOLDER]

    def place(row: Row) -> int:
        if row.topic in of_folders:
            return len(_TABLE) + of_folders.index(row.topic)
        last = len(_TABLE) + len(of_folders)
        return next((at for at, beginning in enumerate(_TABLE) if row.topic.startswith(beginning)), last)

    return sorted(rows, key=place)


class _HostProbes:
    """The probes that the first rank of a host makes. The host has the number ``at`` in ``names``."""

    def __init__(self, world: World, request: DoctorRequest, names: Sequence[str], at: int, wall: Wall) -> None:
        self.world, self.request, self.names, self.at, self.wall = world, request, names, at, wall
        self.markers: list[FolderMarker] = []
        self.echo: EchoServer | None = None

    @property
    def name(self) -> str:
        return self.names[self.at]

    def examine_this_host(self, local_ranks: Sequence[HostInfo]) -> HostReport:
        return host.examine_host(self.request, local_ranks, len(self.names))

    def open_port_and_markers(self, report: HostReport) -> dict[str, Any]:
        """Open a port for the other hosts, and on the main host write markers; return how the others find them."""
        if len(self.names) == 1:
            return {}
        token = secrets.token_hex(16)
        self.echo = EchoServer(self.name, token)
        if self.at == 0:
            self.markers = [FolderMarker(folder, patience=_SHORTLY) for folder in self.request.folders]
        marks = [[marker.token, marker.locks, marker.trouble] for marker in self.markers]
        return {"addresses": report.addresses, "port": self.echo.port, "token": token, "marks": marks}

    def probe_other_hosts(self, offers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Compare clocks, connect to the ports and look for the markers of ``offers``; return the results.

        The results are JSON values.
        """
        store, others = self.world.store, range(1, len(self.names))
        if not others:
            return {"store": between.measure_store(store, self.at)}
        samples: list[tuple[float, float, float]] = []
        if self.at == 0:
            between.serve_clock(store, others, wall_time=self.wall, timeout_seconds=_SHORTLY)
        else:
            samples = between.query_clock(
                store, self.at, wall_time=self.wall, timeout_seconds=_SHORTLY * len(self.names)
            )
        reached = self._reach(offers)
        marks = offers[0]["marks"] if self.at else []
        with ThreadPoolExecutor() as pool:
            sights = list(pool.map(self._find, self.request.folders, marks))
        return {
            "store": between.measure_store(store, self.at),
            "samples": samples,
            "reached": [asdict(one) for one in reached],
            "sights": [asdict(sight) for sight in sights],
        }

    def _reach(self, offers: Sequence[Mapping[str, Any]]) -> list[ConnectionAttempt]:
        there = {self.names[at]: offers[at] for at in network.hosts_to_reach(self.at, len(self.names))}
        targets = [EchoTarget(name, tuple(one["addresses"]), one["port"], one["token"]) for name, one in there.items()]
        return between.reach_hosts(self.name, targets, timeout_seconds=_SHORTLY / 2)

    def _find(self, folder: str, mark: tuple[str, bool, str]) -> SeenFolder:
        token, locks, trouble = mark
        if trouble:
            return SeenFolder(trouble=f"host {self.names[0]} could leave nothing there: {trouble}")
        sight = between.find_marker(folder, token, str(self.at), timeout_seconds=_SHORTLY / 2)
        return sight if locks else replace(sight, lock=None)

    def rows_of_hosts(self, reports: Sequence[Mapping[str, Any]]) -> list[Row]:
        """Return the report rows about all hosts, on the main host; ``reports`` are in the order of the hosts."""
        rows = list(
            _of_all([(name, [Row.from_json(r) for r in one["examined"]["rows"]]) for name, one in self._by(reports)])
        )
        advice = "Install the same versions on every host."
        versions = {name: one["examined"]["versions"] for name, one in self._by(reports)}
        hardware = {name: one["examined"]["hardware"] for name, one in self._by(reports)}
        offsets = {
            name: clocks.clock_offset(one["measured"]["samples"]) if one["measured"]["samples"] else None
            for name, one in list(self._by(reports))[1:]
        }
        reached = [ConnectionAttempt(**one) for met in reports for one in met["measured"].get("reached", ())]
        stores = {name: one["measured"]["store"] for name, one in self._by(reports)}
        between_hosts = [
            software.same_on_all_hosts_row(versions, "same versions", remedy=advice, is_error=True),
            software.same_on_all_hosts_row(
                hardware, "same hardware", remedy="The slowest sets the pace of all.", is_error=False
            ),
            network.reach_row(reached, len(self.names)),
            network.store_row(stores, _store_backend(self.world.backend)) if self.world.size > 1 else None,
            clocks.clock_row(self.names[0], offsets),
            *self._shared(reports),
        ]
        return rows + [row for row in between_hosts if row is not None]

    def _by(self, reports: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
        return list(zip(self.names, reports, strict=True))

    def _shared(self, reports: Sequence[Mapping[str, Any]]) -> list[Row | None]:
        rows = []
        labels = disk.folder_labels(self.request.folders)
        for at, (folder, marker) in enumerate(zip(self.request.folders, self.markers, strict=False)):
            answers = marker.collect_answers()
            sights = {
                name: SeenFolder(**{**one["measured"]["sights"][at], "answered": str(number) in answers})
                for number, (name, one) in enumerate(self._by(reports))
                if number
            }
            rows.append(disk.shared_folder_row(labels[folder], self.names[0], sights))
        return rows


def _report_as_json(report: HostReport) -> dict[str, Any]:
    return {
        "rows": [row.to_json() for row in report.rows],
        "versions": dict(report.versions),
        "hardware": dict(report.hardware),
    }


def _of_all(by_host: Sequence[tuple[str, Sequence[Row]]]) -> list[Row]:
    topics: dict[str, list[tuple[str, Row]]] = {}
    for name, rows in by_host:
        for row in rows:
            topics.setdefault(row.topic, []).append((name, row))
    return [merge_rows_of_hosts(rows, len(by_host)) for rows in topics.values()]


def _store_backend(backend: str) -> str:
    return {"jax": "JAX's coordination service", "torch": "torch's Store"}.get(backend, "the store")
