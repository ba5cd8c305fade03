#!/bin/bash
# Start hosts on this machine, for tests: each has a network, a host name, mounts (/etc/hosts, /tmp/local, /tmp/allranks-UID),
# processes, sshd and a Slurm node of its own. A bridge in a namespace of its own connects them: nothing of the machine's
# own network is touched, and several of these can run at once.
#   hosts.sh FOLDER HOST...          prints "ready"; ends all hosts when its stdin is closed, or when it is killed
# Orders, a line each on its stdin, each answered by "ready":
#   cut HOST, mend HOST              unplugs and plugs the network cable of a host
#   power_off HOST, power_on HOST    kills all processes of a host; starts it again
#   clean                            ends Slurm's jobs and all other processes that do not belong to the hosts
# From any shell:
#   FOLDER/on HOST COMMAND...        runs a process of a host, in the caller's working directory
#   FOLDER/on HOST ssh -F FOLDER/ssh_config HOST COMMAND...
#   FOLDER/on HOST srun -N4 COMMAND...
# Needs root, and the programs of iproute2, util-linux, openssh-server, slurm-wlm and munge.
set -euo pipefail
D=$(readlink -f "$1"); shift
hosts=("$@")
network=10.88.0
exec 3>&1 >&2  # what daemons print is no answer
in_switch() { nsenter -t "$(cat "$D/pid/switch")" -n "$@"; }

hold() {  # NAME: starts a process that holds namespaces, and whose end ends all processes in them
  rm -f "$D/ready.$1"
  setpriv --pdeathsig KILL unshare --net --uts --mount --pid --fork --kill-child --mount-proc -- \
    bash -c 'echo ready; while :; do sleep 1000; done' > "$D/ready.$1" 2> "$D/$1.err" < /dev/null 3>&- &
  local outer=$!
  until [ -s "$D/ready.$1" ]; do kill -0 $outer; sleep 0.01; done
  cut -d' ' -f1 "/proc/$outer/task/$outer/children" > "$D/pid/$1"
}

start_host() {
  local h=$1 ip; ip=$(awk -v h="$h" '$2 == h { print $1 }' "$D/etc_hosts")
  hold "$h"
  in_switch ip link add "port-$h" type veth peer name eth0 netns "$(cat "$D/pid/$h")"
  in_switch ip link set "port-$h" master br0 up
  mkdir -p "$D/local/$h" "$D/slurm/spool.$h" "$D/slurm/munge.$h" "$D/slurm/run.$h"
  chmod 755 "$D/slurm/munge.$h"; chmod 700 "$D/slurm/run.$h"
  "$D/on" "$h" bash -euc '
    D=$1 h=$2 ip=$3 doctor=/tmp/allranks-$(id -u) run=$1/slurm/run.$2
    hostname "$h"
    ip link set lo up; ip addr add "$ip/24" dev eth0; ip link set eth0 up
    mkdir -p /tmp/local /etc/slurm /run/munge /run/sshd; mkdir -p -m 700 "$doctor"
    mount --bind "$D/etc_hosts" /etc/hosts
    mount --bind "$D/local/$h" /tmp/local
    mount --bind "$D/slurm" /etc/slurm
    mount --bind "$D/slurm/munge.$h" /run/munge
    mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs -o mode=700 tmpfs "$doctor"
    munged --force --key-file="$D/slurm/munge.key" --socket=/run/munge/munge.socket.2 \
      --pid-file="$run/munged.pid" --log-file="$run/munged.log" --seed-file="$run/munged.seed"
    "$(command -v sshd)" -f "$D/sshd_config" -E "$D/sshd.$h.log"  # uses /run/sshd
    [ "$h" != "$4" ] || slurmctld
    slurmd -N "$h"' - "$D" "$h" "$ip" "${hosts[0]}" < /dev/null 3>&-
}

await_slurm() {
  for ((t = 0; t < 300; t++)); do
    for h in $("$D/on" "${hosts[0]}" sinfo -h -N -t down -o %n 2>/dev/null || true); do
      "$D/on" "${hosts[0]}" scontrol update NodeName="$h" State=RESUME
    done
    [ "$("$D/on" "${hosts[0]}" sinfo -h -t idle -o %D 2>/dev/null || true)" = "${#hosts[@]}" ] && return
    sleep 0.05
  done
  "$D/on" "${hosts[0]}" sinfo >&2; tail -n 5 "$D"/slurm/*.log >&2; return 1
}

clean() {
  local h
  "$D/on" "${hosts[0]}" scancel --full --signal=KILL -u "$(id -un)"
  for h in "${hosts[@]}"; do "$D/on" "$h" bash -c '
    for process in /proc/[0-9]*; do
      case $(cat "$process/comm") in munged|sshd|slurmctld|slurmscriptd|slurmd) continue ;; esac
      pid=${process#/proc/}
      [ "$pid" = 1 ] || [ "$pid" = $$ ] || kill -KILL "$pid"
    done' 2> /dev/null; done
  "$D/on" "${hosts[0]}" scancel -u "$(id -un)"
}

write_configuration() {
  printf '%s\n' "127.0.0.1 localhost" > "$D/etc_hosts"
  local i=0; for h in "${hosts[@]}"; do i=$((i + 1)); echo "$network.$i $h" >> "$D/etc_hosts"; done
  ssh-keygen -q -t ed25519 -N '' -f "$D/host_key"; ssh-keygen -q -t ed25519 -N '' -f "$D/key"
  cp "$D/key.pub" "$D/authorized_keys"; chmod 600 "$D/authorized_keys"
  cat > "$D/sshd_config" <<CONF
HostKey $D/host_key
AuthorizedKeysFile $D/authorized_keys
PasswordAuthentication no
StrictModes no
UsePAM no
PermitRootLogin yes
PidFile none
CONF
  cat > "$D/ssh_config" <<CONF
Host *
  User $(id -un)
  IdentityFile $D/key
  IdentitiesOnly yes
  BatchMode yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
CONF
  mkdir -p "$D/slurm/state"
  dd if=/dev/urandom of="$D/slurm/munge.key" bs=1024 count=1 status=none; chmod 400 "$D/slurm/munge.key"
  local cgroups=disabled  # a word of Slurm 23.11; before, a plugin that nothing here uses must be named
  case $(slurmd -V) in *" 2"[0-2].*|*" 23.0"*) cgroups=cgroup/v1 ;; esac
  echo "CgroupPlugin=$cgroups" > "$D/slurm/cgroup.conf"
  cat > "$D/slurm/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=${hosts[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=$D/slurm/state
SlurmdSpoolDir=$D/slurm/spool.%n
SlurmctldPidFile=$D/slurm/ctld.pid
SlurmdPidFile=$D/slurm/%n.pid
SlurmctldLogFile=$D/slurm/ctld.log
SlurmdLogFile=$D/slurm/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1,requeue_delay=1
MpiDefault=none
ReturnToService=2
SlurmdTimeout=15
KillWait=5
InactiveLimit=0
JobRequeue=1
SlurmdParameters=config_overrides
NodeName=$(IFS=,; echo "${hosts[*]}") CPUs=16 RealMemory=$(awk '/MemTotal/ {print int($2 / 1024)}' /proc/meminfo) State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
CONF
}

mkdir "$D/pid"
cat > "$D/on" <<'ON'
#!/bin/bash
D=$(dirname "$(readlink -f "$0")"); host=$1; shift
exec nsenter -t "$(cat "$D/pid/$host")" -n -u -m -p -- setpriv --pdeathsig TERM bash -c 'cd "$0" && exec "$@"' "$PWD" "$@"
ON
chmod +x "$D/on"
write_configuration
hold switch
in_switch ip link add br0 type bridge
in_switch ip link set br0 up
for h in "${hosts[@]}"; do start_host "$h"; done
await_slurm
echo ready >&3
while read -r order h; do
  case $order in
    cut) in_switch ip link set "port-$h" down ;;
    mend) in_switch ip link set "port-$h" up ;;
    power_off) in_switch ip link del "port-$h"; kill -KILL "$(cat "$D/pid/$h")" ;;
    power_on) start_host "$h"; await_slurm ;;
    clean) clean; await_slurm ;;
    *) echo "unknown order: $order" >&2; exit 2 ;;
  esac
  echo ready >&3
done
