#!/bin/bash
# recover.sh OBOL - the runbook "After a disaster" of docs/deploy.md on three hosts with a coordinator each, which are
# three addresses of one VM. Host 3 is started anew and loses its memory; host 2 is given up, and comes back with the
# memory of before.
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

# unit HOST UNIT NAME: starts what a unit for systemd starts, as one of the hosts, with a state directory of its own. Its
# process is then in pid[NAME].
declare -A pid
unit() {
  local host=$1 file=$VM_GUEST/../../../packaging/systemd/$2@.service command
  command=$(sed -n -e "s:/var/lib/obol:/tmp/state-$host:" -e 's:^ExecStart=/usr/bin/obol ::p' "$file")
  mkdir -p "/tmp/state-$host"
  read -ra command <<<"${command//%i/$3}"
  OBOL_ROOT=/dev/shm/host-$host ./obol "${command[@]}" 2>>"$2-$3.log" &
  pid[$3]=$!
}

gateway() { # HOST
  OBOL_ROOT=/dev/shm/host-$1 ./obol gateway 2>>"obol-gateway-$1.log" &
  pid[gateway-$1]=$!
}

app() { # HOST
  OBOL_ROOT=/dev/shm/host-$1 ./obol app --name "app-$1" --node "node-$1" 2>>app.log &
  pid[app-$1]=$!
}

prepare() { # HOST
  on "$1" host prepare cluster.toml --address "10.88.1.$1" --state "/tmp/state-$1"
}

# dies NAME...: as with the power.
dies() {
  local name
  for name in "$@"; do
    kill -9 "${pid[$name]}"
    wait "${pid[$name]}" 2>/dev/null || true
  done
}

# ends NAME TEXT: its process has ended by itself, with an error that says so.
ends() {
  local status=0
  wait "${pid[$1]}" || status=$?
  [ "$status" = 1 ] || fail "coordinator $1 has ended with status $status"
  grep -q "$2" "obol-coordinator-$1.log" || fail "coordinator $1 does not say: $2"
}

# refused TEXT COMMAND...: ends with status 2 and says why.
refused() {
  local text=$1 status=0 output
  shift
  output=$("$@" 2>&1) || status=$?
  printf '%s\n' "$output"
  [ "$status" = 2 ] || fail "status $status, not 2: $*"
  [[ $output == *"$text"* ]] || fail "not said: $text"
}

# says HOST TEXT: whether the status on a host has a text in it.
says() {
  { on "$1" status --json 2>&1 || true; } | grep "$2" >/dev/null
}

gids() {
  [ "$(grep -h 0000:0000:0000:0000:0000:ffff: /sys/class/infiniband/rxe0/ports/1/gids/* 2>/dev/null | sort -u | wc -l)" -ge 3 ]
}

dummy dummy0 10.88.1.1/24
ip addr add 10.88.1.2/24 dev dummy0
ip addr add 10.88.1.3/24 dev dummy0
soft_roce rxe0 dummy0
until_true "a GID for each address" gids
trap 'cat ./*.log' EXIT
./obol host example --rdma | sed -e '/^\[\[hosts\]\]/,$d' -e 's/"roce"/"soft-roce"/' -e 's:"/etc/obol/keys":"none":' >cluster.toml
for host in "1 1 node-1" "2 2 -" "3 3 node-3"; do
  read -r number coordinator agent <<<"$host"
  printf '[[hosts]]\naddress = "10.88.1.%s"\ncoordinator = %s\n' "$number" "$coordinator"
  [ "$agent" = - ] || echo "agents = [\"$agent\"]"
done >>cluster.toml
./obol host check cluster.toml | tee check.txt
grep -q "10.88.1.3  coord-3 node-3  spare: coord-6" check.txt || fail "host check does not say where spare coordinators belong"
for host in 1 2 3; do
  prepare "$host"
  gateway "$host"
  unit "$host" obol-coordinator "$host"
done
unit 1 obol-agent node-1
unit 3 obol-agent node-3
app 1
app 3
until_true "a healthy cluster" on 1 status
until_true "app-3 in the status of host 1" says 1 '"name":"app-3"'
step "the cluster is whole"
refused "nothing is lost" on 1 coordinator recover --from agents

# Host 2 goes dark, and host 3 is started anew: nothing can be decided.
dies gateway-2 2
dies gateway-3 app-3 node-3 3
rm -r /dev/shm/host-3
prepare 3 2>&1 | tee prepare.txt
grep -q "coordinator 3 has voted on this host before and its memory is gone" prepare.txt || fail "host prepare does not say it"
gateway 3
unit 3 obol-coordinator 3
ends 3 "its memory is gone"
# Unavailable, or unknown as far as programs of host 2 may act.
serves_nobody() {
  local status=0
  on 1 status >status.txt || status=$?
  [ "$status" -ge 3 ]
}
until_true "a cluster without programs that may act" serves_nobody
on 3 coordinator inspect --json >found-3.json
on 2 coordinator inspect --json >found-2.json
on 3 coordinator inspect
step "two of three coordinators are gone"
recovered_view() {
  ls /dev/shm/host-*/prod/recovered-view 2>/dev/null
}
refused "hosts 10.88.1.2, 10.88.1.3 still have is not known" on 1 coordinator recover --from agents
refused "hosts 10.88.1.2 still have is not known" on 1 coordinator recover --from agents --report found-3.json
refused "(coord-1, coord-2), so nothing is lost" \
  on 1 coordinator recover --from agents --report found-2.json --report found-3.json
refused "says that the memory of coord-2 is there" \
  on 1 coordinator recover --from agents --report found-2.json --report found-3.json --lost 10.88.1.2
refused "the cluster's other hosts are 10.88.1.2, 10.88.1.3" \
  on 1 coordinator recover --from agents --report found-3.json --lost 10.88.1.1
! recovered_view || fail "a recovery that was refused has written something"
# Not carried out: nothing stays of it.
OBOL_ROOT=/dev/shm/host-1 ./obol coordinator recover --from agents --report found-3.json --lost 10.88.1.2 >given-up.txt 2>&1 &
recover=$!
until_true "the request to start a coordinator" grep -q "systemctl start obol-coordinator@4" given-up.txt
recovered_view || fail "there is nothing to start from"
kill "$recover"
wait "$recover" && fail "an interrupted recovery has succeeded"
! recovered_view || fail "a recovery that was interrupted leaves something"
step "what is not known, or not carried out, changes nothing"

OBOL_ROOT=/dev/shm/host-1 ./obol coordinator recover --from agents --report found-3.json --lost 10.88.1.2 >recover.txt 2>&1 &
recover=$!
until_true "the request to start a coordinator" grep -q "systemctl start obol-coordinator@4" recover.txt
unit 1 obol-coordinator 4
wait "$recover" || fail "not recovered: $(cat recover.txt)"
cat recover.txt
ends 1 "coordinator 1 was given up in a recovery"
until_true "app-1 to be active" says 1 '"name":"app-1"[^}]*"active":true'
step "the cluster continues with one coordinator"

unit 3 obol-agent node-3
app 3
unit 3 obol-coordinator 6
until_true "coord-6 among the members" says 1 '"name":"coord-6"'
until_true "app-3 in the status of host 1" says 1 '"name":"app-3"'
on 1 coordinator add 6
step "host 3 has joined again, with a coordinator of another number"

# Host 2 comes back, and nobody has told it.
gateway 2
unit 2 obol-coordinator 2
ends 2 "coordinator 2 was given up in a recovery"
: >obol-coordinator-2.log
unit 2 obol-coordinator 2
ends 2 "coordinator 2 was given up in a recovery"
refused "coordinator 2 was given up in a recovery" on 1 coordinator add 2
unit 2 obol-coordinator 5
until_true "coord-5 among the members" says 1 '"name":"coord-5"'
on 3 coordinator add 5 | tee add.txt
grep -q "coord-4, coord-5, coord-6" add.txt || fail "not all three decide"
until_true "a healthy cluster" on 1 status
step "the coordinator that was given up is refused, and another of its host decides"

# Any one of them may die now.
view() {
  { on 3 status --json || true; } | grep -o '"view":[0-9]*' | head -n 1 | cut -d: -f2
}
later() {
  [ "$(view)" -gt "$1" ]
}
for victim in 4 app-1; do
  before=$(view)
  dies "$victim"
  until_true "a view after the death of $victim, decided by the others" later "$before"
done
# To a device a process that has ended and one that cannot be reached look alike; the gateway of its host knows.
on 3 coordinator remove 4 >remove.txt 2>&1 || fail "coordinator remove 4: $(cat remove.txt)"
cat remove.txt
grep -q "those who do: coord-5, coord-6" remove.txt || fail "the dead one decides on"
on 3 status || [ "$?" = 1 ]
step "the cluster continues without coordinator 4"
trap - EXIT
