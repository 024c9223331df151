#!/bin/bash
# hosts.sh OBOL - the hosts of one cluster in two VMs, by the commands of docs/deploy.md. The first VM is three hosts with
# a coordinator each, because a VM has room for several addresses and a test has little room for VMs. The second loses
# its power.
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_GUEST/lib.sh"
cd /tmp
cp "/host$1" obol
export OBOL_CLUSTER=prod

# on HOST COMMAND...: a command of one of the hosts, each of which has memory of its own.
on() {
  local host=$1
  shift
  OBOL_ROOT=/dev/shm/host-$host ./obol "$@"
}

# unit HOST UNIT NAME: starts what a unit for systemd starts, as one of the hosts, with a state directory of its own.
unit() {
  local host=$1 file=$VM_GUEST/../../../packaging/systemd/$2@.service command
  command=$(sed -n -e "s:/var/lib/obol:/tmp/views-$host:" -e 's:^ExecStart=/usr/bin/obol ::p' "$file")
  mkdir -p "/tmp/views-$host"
  read -ra command <<<"${command//%i/$3}"
  on "$host" "${command[@]}" 2>"$2-$3.log" &
}

# says HOST TEXT: whether the status on a host has a text in it.
says() {
  { on "$1" status --json 2>&1 || true; } | grep "$2" >/dev/null
}

# gids_of COUNT: whether COUNT IPv4 addresses have a GID, which the kernel adds some time after the
# address.
gids_of() {
  [ "$(grep -h 0000:0000:0000:0000:0000:ffff: /sys/class/infiniband/rxe0/ports/1/gids/* 2>/dev/null | sort -u | wc -l)" -ge "$1" ]
}

if [ "$VM_INDEX" = 1 ]; then
  ip addr add 10.88.0.3/24 dev eth0
  ip addr add 10.88.0.4/24 dev eth0
fi
soft_roce rxe0 eth0
hosts=2
if [ "$VM_INDEX" = 1 ]; then
  hosts="1 3 4"
  until_true "a GID for each address" gids_of 3
  ./obol host example --rdma | sed -e '/^\[\[hosts\]\]/,$d' -e 's/"roce"/"soft-roce"/' -e 's:"/etc/obol/keys":"keys":' >cluster.toml
  for host in "1 1 node-1" "2 - node-2" "3 2 -" "4 3 -"; do
    read -r number coordinator agent <<<"$host"
    printf '[[hosts]]\naddress = "10.88.0.%s"\n' "$number"
    [ "$coordinator" = - ] || echo "coordinator = $coordinator"
    [ "$agent" = - ] || echo "agents = [\"$agent\"]"
  done >>cluster.toml
  ./obol host keys cluster.toml --out /mnt/keys
  cp cluster.toml /mnt/cluster.part
  mv /mnt/cluster.part /mnt/cluster.toml
fi
until_true "the cluster's file" test -e /mnt/cluster.toml
# Each host has the file, with its own keys beside it.
for host in $hosts; do
  mkdir "/tmp/host-$host"
  cp /mnt/cluster.toml "/tmp/host-$host/"
  cp -r "/mnt/keys/10.88.0.$host" "/tmp/host-$host/keys"
  ./obol host check "/tmp/host-$host/cluster.toml"
  on "$host" host prepare "/tmp/host-$host/cluster.toml" --address "10.88.0.$host" --state "/tmp/state-$host"
done
if [ "$VM_INDEX" = 1 ]; then
  unit 1 obol-coordinator 1
  unit 3 obol-coordinator 2
  unit 4 obol-coordinator 3
fi
for host in $hosts; do
  on "$host" gateway 2>"obol-gateway-$host.log" &
done
unit "$VM_INDEX" obol-agent "node-$VM_INDEX"
start_app() {
  OBOL_ROOT=/dev/shm/host-$VM_INDEX ./obol app --name "app-$VM_INDEX" --node "node-$VM_INDEX" 2>>app.log &
  app=$!
}
start_app
serve_cache() {
  OBOL_ROOT=/dev/shm/host-$VM_INDEX ./obol kv server --name "kv-$VM_INDEX" --poll-every 2ms --json >kv.json 2>kv.log &
  server=$!
}
[ "$VM_INDEX" = 2 ] || trap 'cat ./*.log' EXIT

# Both see the same cluster, whole: processes of the own host and of others.
until_true "a healthy cluster as VM $VM_INDEX sees it" on "$VM_INDEX" status
for name in coord-1 coord-2 coord-3 node-1 node-2 app-1 app-2; do
  until_true "$name in the status of VM $VM_INDEX" says "$VM_INDEX" "\"name\":\"$name\""
done
# To be read; a lease may run out between the two looks.
on "$VM_INDEX" status || true
step "the cluster is whole as VM $VM_INDEX sees it"

# number HOST FIELD: the first of this name in the status.
number() {
  { on "$1" status --json || true; } | grep -o "\"$2\":[0-9]*" | head -n 1 | cut -d: -f2
}

# later_than HOST VIEW: whether a host knows a later view.
later_than() {
  [ "$(number "$1" view)" -gt "$2" ]
}

# reads HOST: whether a client on this host reads what was written.
reads() {
  [ "$(on "$1" kv get 7)" = "before the kill" ]
}

if [ "$VM_INDEX" = 2 ]; then
  # The primary of a cache; its backup and its client are on another host.
  serve_cache
  until_true "a primary" grep -q '"standing":"primary"' kv.json
  touch /mnt/two-serves
  until_true "a value at the primary, and at its backup" test -e /mnt/1-has-a-copy
  until_true "the value to a client of this host" reads 2
  kill -9 "$server"
  # Whatever it sends may be lost from here on: acknowledgements, repeats, answers. The other one has to see all of it first.
  until_true "the first VM to see the cluster and its events, too" test -e /mnt/1-sees-it
  tc qdisc add dev eth0 root netem loss 5%
  touch /mnt/two-is-up
  until [ -e /mnt/two-may-go ]; do
    number 2 view >newest
    cp newest /mnt/two-view.part
    mv /mnt/two-view.part /mnt/two-view
    sleep 0.05
  done
  step "the power goes"
  dmesg >/mnt/vm2.dmesg
  echo 0 >/mnt/vm2.status
  sync
  echo b >/proc/sysrq-trigger
  sleep 60
fi

# Events of the other host stand in the time line, with what the relation of the two clocks leaves open.
sees_events() {
  on 1 events --last 1000 --json >events.json
  grep -q '"process":"node-2"' events.json
}
until_true "an event of the other host" sees_events
sed -n '/"process":"node-2"/s/.*"clock_error_ns":\([0-9]*\).*/\1/p' events.json | awk '{ if ($1 > worst) worst = $1; n++ } END {
  printf "%d events of node-2, times off by at most %.1f ms\n", n, worst / 1e6
  exit !(worst > 0 && worst < 1e9) }' || fail "no relation of the clocks: $(grep -m 1 node-2 events.json)"
until_true "a primary on the other host" test -e /mnt/two-serves
serve_cache
until_true "a PUT to the other host" on 1 kv put 7 "before the kill"
until_true "a backup that has everything" grep -q '"standing":"backup","redundant":true' kv.json
for host in 3 4; do
  until_true "the value to a client of host $host" reads "$host"
done
touch /mnt/1-has-a-copy
remembers() {
  reads 1 && grep -q '"standing":"primary"' kv.json
}
until_true "the backup to take over from the other host's primary" remembers
kill "$server"
wait "$server"
step "a cache has lost its primary on one host, and its backup on another has what was written"
touch /mnt/1-sees-it
until_true "the second VM" test -e /mnt/two-is-up

# Announcements are lost, and so is what the other host sends; it learns of every view all the same.
follows() {
  [ "$(cat /mnt/two-view)" -ge "$1" ]
}
tc qdisc add dev eth0 root netem loss 5%
for _ in 1 2 3; do
  before=$(number 1 view)
  kill -9 "$app"
  until_true "a view without app-1" later_than 1 "$before"
  before=$(number 1 view)
  start_app
  until_true "a view with app-1" later_than 1 "$before"
  until_true "the second VM to follow" follows "$((before + 1))"
done
tc qdisc del dev eth0 root
step "view $(number 1 view) is known to both, although each has lost one packet in twenty"

# It can read one of this cluster's coordinators, so no majority: it gives what is the newest view
# at some moment, and has to follow from before the failure on.
OBOL_ROOT=/dev/shm/host-1 ./obol watch >views.txt &
watcher=$!
before=$(number 1 view)
touch /mnt/two-may-go
# Who departed lately keeps a row.
gone() {
  [ "$(number 1 view)" -gt "$before" ] &&
    ! says 1 '"name":"app-2","kind":"app","distant":[a-z]*,"pid":[0-9]*,"alive":true'
}
until_true "a view without the second host" gone
on 1 status >status.txt && fail "a cluster that lacks a host is called healthy"
cat status.txt
grep -q "node-2.* not a member" status.txt || fail "the status does not say who is missing"
grep -q "coord-. down" status.txt && fail "the status takes living coordinators of other hosts for dead"
cat views.txt
for name in node-2 app-2; do
  grep -qE "$name \([0-9]+\) failed(: | with its agent)" views.txt || fail "no view says that $name has failed"
done
kill "$watcher"
step "the survivor has a view without it"
trap - EXIT
