"""List the kinds of engines: what a profile of each may have, and how much of it was run by us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from allranks.engines.kinds import kubernetes, ray, skypilot, slurm, ssh, tpu

END_TO_END = "tested end to end"
RENDERED = "rendered and schema-checked, not run by us"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of engine.

    - ``profile``: the dataclass of its options. ``client``: the module of its client.
    - ``starts``: what starts ``allranks run`` on each host. ``stop``: what makes a job save and leave.
    - ``output``: where its output is. ``tested``: ``END_TO_END`` or ``RENDERED``, ``on`` what.
    - ``shares_folder``: whether the hosts see the working folder. ``keeps_names``: whether two jobs need two names.
    """

    name: str
    profile: type[Any]
    client: str
    starts: str
    stop: str
    output: str
    tested: str
    on: str
    shares_folder: bool = False
    keeps_names: bool = False


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "slurm",
            slurm.Profile,
            "allranks.engines.clients.slurm",
            starts="`sbatch`, then one task of `srun` per node",
            stop="`--signal=TERM@S` before the time limit, `scancel`, preemption",
            output="one file (`output`), by `srun`",
            tested=END_TO_END,
            on="Slurm 22.05, four nodes",
            shares_folder=True,
        ),
        Kind(
            "ssh",
            ssh.Profile,
            "allranks.engines.clients.ssh",
            starts="one connection of OpenSSH per host",
            stop="Ctrl-C or the end of `submit`, `jobs cancel`",
            output="`submit` shows it; a file on each host",
            tested=END_TO_END,
            on="OpenSSH 9.2, four hosts",
        ),
        Kind(
            "kubernetes",
            kubernetes.Profile,
            "allranks.engines.clients.kubernetes",
            starts="a JobSet or TrainJob, one pod per host",
            stop="the end of a pod: eviction, `jobs cancel`",
            output="the pods' logs",
            tested=RENDERED,
            on="models of Kubeflow Trainer 2.3, schemas of Kubernetes 1.32",
            keeps_names=True,
        ),
        Kind(
            "tpu",
            tpu.Profile,
            "allranks.engines.clients.tpu",
            starts="`gcloud compute tpus tpu-vm ssh --worker=all`, or the start-up script of a queued resource",
            stop="the end of a TPU VM, `jobs cancel`",
            output="a file on each host",
            tested=RENDERED,
            on="an imitation of gcloud",
        ),
        Kind(
            "skypilot",
            skypilot.Profile,
            "allranks.engines.clients.skypilot",
            starts="SkyPilot, on each node of a task",
            stop="`jobs cancel`, the end of a spot machine",
            output="SkyPilot's logs",
            tested=RENDERED,
            on="the task was read by SkyPilot 0.14",
            keeps_names=True,
        ),
        Kind(
            "ray",
            ray.Profile,
            "allranks.engines.clients.ray",
            starts="an actor in each bundle of a placement group",
            stop="`jobs cancel`",
            output="the job's log in Ray",
            tested=END_TO_END,
            on="Ray 2.60, a local cluster",
        ),
    )
}
