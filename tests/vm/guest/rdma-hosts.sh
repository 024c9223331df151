#!/bin/bash
# rdma-hosts.sh OBOL - three hosts of a cluster over RDMA, 1 and 3 in the first VM, 2 in the second. What crosses hosts by
# their gateways: marks, the cue of a drill on both VMs, a halt; and what is said of a gateway that is gone.
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_GUEST/lib.sh"
cd /tmp
cp "/host$1" obol
export OBOL_CLUSTER=prod

# The same in both VMs: a runner asks for the fault agent of the other one with its own root. Host 3 is for itself.
readonly ROOT=/dev/shm/obol
# on HOST COMMAND...: a command of one of the hosts, each of which has memory of its own.
on() {
  local root=$ROOT
  [ "$1" != 3 ] || root=$ROOT-3
  shift
  OBOL_ROOT=$root ./obol "$@"
}

gids_of() {
  [ "$(grep -h 0000:0000:0000:0000:0000:ffff: /sys/class/infiniband/rxe0/ports/1/gids/* 2>/dev/null | sort -u | wc -l)" -ge "$1" ]
}

hosts=2
[ "$VM_INDEX" = 2 ] || ip addr add 10.88.0.3/24 dev eth0
soft_roce rxe0 eth0
if [ "$VM_INDEX" = 1 ]; then
  hosts="1 3"
  until_true "a GID for each address" gids_of 2
  ./obol host example --rdma | sed -e '/^\[\[hosts\]\]/,$d' -e 's/"roce"/"soft-roce"/' -e 's:"/etc/obol/keys":"keys":' >cluster.toml
  for host in 1 2 3; do
    printf '[[hosts]]\naddress = "10.88.0.%s"\ncoordinator = %s\n' "$host" "$host"
    [ "$host" = 3 ] || echo "agents = [\"node-$host\"]"
  done >>cluster.toml
  ./obol host keys cluster.toml --out /mnt/keys
  # The runner's login on the other VM, and by what that one is known.
  ssh-keygen -q -t ed25519 -N '' -C operator -f /mnt/login
  ssh-keygen -q -t ed25519 -N '' -C host -f /mnt/host
  cp cluster.toml /mnt/cluster.part
  mv /mnt/cluster.part /mnt/cluster.toml
fi
until_true "the cluster's file" test -e /mnt/cluster.toml

trap '[ "$?" = 0 ] || tail -n 30 ./*.log' EXIT
gateway() { # HOST
  local root=$ROOT
  [ "$1" != 3 ] || root=$ROOT-3
  # Not by `on`: what is killed is the program, and not a shell that runs it.
  OBOL_ROOT=$root ./obol gateway 2>>"gateway-$1.log" &
  gateway=$!
}
for host in $hosts; do
  mkdir "host-$host"
  cp /mnt/cluster.toml "host-$host/"
  cp -r "/mnt/keys/10.88.0.$host" "host-$host/keys"
  on "$host" host prepare "host-$host/cluster.toml" --address "10.88.0.$host" --state "/tmp/state-$host"
  gateway "$host"
  on "$host" coordinator run --number "$host" 2>"coordinator-$host.log" &
done
on "$VM_INDEX" agent --name "node-$VM_INDEX" 2>agent.log &

# whole: whether this host sees a healthy cluster with all agents as members.
whole() {
  local name
  on "$VM_INDEX" status --json >status.json || return 1
  for name in coord-1 coord-2 coord-3 node-1 node-2; do
    jq -e "any(.processes[]; .name == \"$name\" and .incarnation > 0)" status.json >/dev/null || return 1
  done
}
until_true "a healthy cluster as VM $VM_INDEX sees it" whole
jq -e '.gateway.alive' status.json >/dev/null || fail "the status shows no gateway: $(cat status.json)"
on "$VM_INDEX" status || [ "$?" = 1 ]
step "the cluster is whole as VM $VM_INDEX sees it"
met whole

# A mark of each VM is on all three hosts.
on "$VM_INDEX" mark "by VM $VM_INDEX" >mark.txt 2>&1
! grep -q "not on all others" mark.txt || fail "$(cat mark.txt)"
has_mark() { # ROOT TEXT
  grep -q "$2" "$1/prod/marks"
}
for vm in 1 2; do
  until_true "the mark of VM $vm" has_mark "$ROOT" "by VM $vm"
  [ "$VM_INDEX" != 1 ] || until_true "the mark of VM $vm on host 3" has_mark "$ROOT-3" "by VM $vm"
done
step "marks are on all hosts"
met marked

if [ "$VM_INDEX" = 2 ]; then
  # The fault agent of this host is started by ssh.
  install -d -m 700 /tmp/ssh
  install -m 600 /mnt/host /tmp/ssh/host
  install -m 600 /mnt/login.pub /tmp/ssh/authorized
  mkdir -p /run/sshd
  cat >/tmp/ssh/config <<'END'
ListenAddress 10.88.0.2
HostKey /tmp/ssh/host
AuthorizedKeysFile /tmp/ssh/authorized
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
END
  /usr/sbin/sshd -D -e -f /tmp/ssh/config 2>sshd.log &
  listens() {
    (: </dev/tcp/10.88.0.2/22) 2>/dev/null
  }
  until_true "sshd" listens
  met can-log-in
  met drilled
else
  install -m 600 /mnt/login /tmp/login
  echo "10.88.0.2 $(cat /mnt/host.pub)" >known-hosts
  cat >ssh-config <<'END'
Host 10.88.0.2
  User root
  IdentityFile /tmp/login
  IdentitiesOnly yes
  UserKnownHostsFile /tmp/known-hosts
END
  # Nothing restarts what is killed here, so both are frozen, and join again. One may be the one that reads the other's
  # heartbeat: then it is found after that one, when others read it. The other agent is the survivor.
  cat >two.toml <<'END'
[drill]
schema = 1
id = "two"
title = "An agent and a coordinator in two VMs freeze on one cue"
environment = "local"
timeout = "10m"

[guards]
max_targets = 2
abort = [{ when = "overlap_ns > 0" }]

[targets]
here = { kind = "agent", name = "node-1" }
there = { kind = "coordinator", name = "coord-2" }

[[steady]]
probe = "processes.up"

[[step]]
name = "freeze"
max_cue_skew = "1s"
fault = { kind = "freeze", for = "30s", target = ["here", "there"] }
END
  met can-log-in
  # An emulated processor may be too late for a bound of ssh or of the cue; then the drill is aborted or void, and says so.
  for try in 1 2 3; do
    status=0
    on 1 drill run ./two.toml --count 1 --out "report-$try" --ssh-config /tmp/ssh-config --ssh-program /tmp/obol >drill.txt 2>&1 ||
      status=$?
    [[ $status = [46] ]] || break
    until_true "a whole cluster" whole
  done
  cat drill.txt
  [ "$status" = 0 ] || fail "the drill on both VMs: $status: $(cat "report-$try/postmortem.md" 2>/dev/null)"
  journal() {
    jq -e "$1" "report-$try/journal.json"
  }
  journal '.trials[] | {skew_ns, skew_error_ns, clock_error_ns, overlap_ns, hosts: [.stamps[].host]}'
  journal '.trials[0] | .overlap_ns == 0 and .skew_error_ns > 0 and ([.stamps[].host] | sort) == [1, 2]' >/dev/null ||
    fail "one cue did not hit both hosts: $(cat "report-$try/journal.json")"
  grep -q "10.88.0.2" "report-$try/postmortem.md" || fail "the report does not say how the other host was reached"
  step "a drill has hit both VMs on one cue"
  met drilled
fi
until_true "a whole cluster" whole
met whole-again

# The second VM halts drills on all hosts.
if [ "$VM_INDEX" = 2 ]; then
  on 2 drill halt --reason "the sale is on" >halt.txt 2>&1 || fail "$(cat halt.txt)"
  grep -q "are halted on all 3 hosts" halt.txt || fail "$(cat halt.txt)"
  met halted
  met refused
  on 2 drill resume >resume.txt 2>&1 || fail "$(cat resume.txt)"
  met resumed
else
  met halted
  for root in "$ROOT" "$ROOT-3"; do
    [ -e "$root/prod/drill-halt" ] || fail "$root is not halted"
  done
  status=0
  on 1 drill run ./two.toml --count 1 --ssh-config /tmp/ssh-config --ssh-program /tmp/obol >refused.txt 2>&1 || status=$?
  { [ "$status" = 2 ] && grep -q "the sale is on" refused.txt; } || fail "status $status: $(cat refused.txt)"
  met refused
  met resumed
  for root in "$ROOT" "$ROOT-3"; do
    [ ! -e "$root/prod/drill-halt" ] || fail "$root is still halted"
  done
fi
step "a halt of one VM holds on all hosts until it is resumed"

# Without the gateway of host 2, members go on by their devices; each side says what does not cross.
if [ "$VM_INDEX" = 2 ]; then
  kill -9 "$gateway"
  wait "$gateway" 2>/dev/null || true
  misses_gateway() {
    on 2 status >missed.txt 2>&1 || true
    grep -q "the gateway of this host is down: drills, halts" missed.txt
  }
  until_true "the status to miss the gateway" misses_gateway
  met gone
  met not-reached
  gateway 2
else
  met gone
  on 1 mark "not on host 2" >missed.txt 2>&1
  grep -q "not on all others: host 2: " missed.txt || fail "$(cat missed.txt)"
  status=0
  on 1 drill halt --reason "one is missing" >missed.txt 2>&1 || status=$?
  { [ "$status" = 1 ] && grep -q "not halted on host 2" missed.txt; } || fail "status $status: $(cat missed.txt)"
  on 1 drill resume >resume.txt 2>&1 || true
  # Its members are READ by the device as before.
  reads_node_2() {
    on 1 status --json >status.json || true
    jq -e 'any(.processes[]; .name == "node-2" and .incarnation > 0 and .alive)' status.json >/dev/null
  }
  until_true "node-2, whose gateway is gone, in the status of host 1" reads_node_2
  met not-reached
fi
until_true "a whole cluster with the gateway" whole
step "a gateway that is gone takes drills and marks with it, and no member"
met over
