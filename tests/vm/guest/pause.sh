#!/bin/bash
# pause.sh OBOL PAUSED LIBRARY - three hosts of a cluster over IP in two VMs: 1 and 3 in the first, which has the second one
# stopped until its own programs act without it. The second continues without its network, which is the worst case: nobody
# can say there that another view is in force.
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_GUEST/lib.sh"
cd /tmp
cp "/host$1" obol
cp "/host$2" paused
cp "/host$3" libobol.so.0
export OBOL_CLUSTER=prod LD_LIBRARY_PATH=.

# as HOST PROGRAM...: a program on one of the hosts, each of which has memory of its own.
as() {
  local host=$1
  shift
  OBOL_ROOT=/dev/shm/host-$host "$@"
}

hosts=2
if [ "$VM_INDEX" = 1 ]; then
  hosts="1 3"
  ip addr add 10.88.0.3/24 dev eth0
  emulated_profile ./obol emulated.toml
  ./obol host example |
    sed -e '/"node-3"/d' -e 's/10\.0\.0\./10.88.0./' -e 's/"lan"/"emulated.toml"/' -e 's:"/etc/obol/keys":"keys":' >cluster.toml
  ./obol host keys cluster.toml --out /mnt/keys
  cp emulated.toml /mnt/
  cp cluster.toml /mnt/cluster.part
  mv /mnt/cluster.part /mnt/cluster.toml
fi
until_true "the cluster's file" test -e /mnt/cluster.toml
for host in $hosts; do
  mkdir "host-$host"
  cp /mnt/cluster.toml /mnt/emulated.toml "host-$host/"
  cp -r "/mnt/keys/10.88.0.$host" "host-$host/keys"
  as "$host" ./obol host prepare "host-$host/cluster.toml" --address "10.88.0.$host" --state "/tmp/state-$host"
  as "$host" ./obol gateway 2>"gateway-$host.log" &
  as "$host" ./obol coordinator run --number "$host" 2>"coordinator-$host.log" &
done
as "$VM_INDEX" ./obol agent --name "node-$VM_INDEX" 2>agent.log &
trap '[ "$?" = 0 ] || tail -n 30 ./*.log' EXIT
attachable() {
  grep -q "\"name\":\"node-$VM_INDEX\"" views.json
}
as "$VM_INDEX" ./obol watch --json >views.json 2>watch.log &
until_true "this host's agent" attachable

if [ "$VM_INDEX" = 2 ]; then
  as 2 ./paused node-2 paused-2 /mnt/resumed.2 /mnt/lapsed.2 >/mnt/paused.part &
  measures=$!
  while kill -0 "$measures" 2>/dev/null; do
    [ ! -e /mnt/failed ] || fail "the other machine has failed"
    sleep 0.5
  done
  wait "$measures" || fail "the program that is stopped"
  mv /mnt/paused.part /mnt/paused.json
  met over
  exit
fi

# What both print is read as it comes, without a process for each look: an emulated processor has no time for that.
touch acts.json
as 1 ./paused node-1 app-1 >>acts.json 2>app.log &
exec {views}<views.json {acts}<acts.json
view=0 members='' acts_in=0 part=''
# follow: reads what has been printed since. Of a line there may be a part only.
follow() {
  local line
  while IFS= read -r -u "$views" line || { part+=$line && false; }; do
    line=$part$line part=''
    [[ $line =~ ^\{\"event\":\"view\",\"view\":([0-9]+),.*\"causes\":(.*),\"members\":(.*)$ ]] || continue
    view=${BASH_REMATCH[1]} members=${BASH_REMATCH[3]}
    step "view $view: ${BASH_REMATCH[2]}"
  done
  while IFS= read -r -u "$acts" line; do
    acts_in=${line//[!0-9]/}
    step "app-1 acts in view $acts_in"
  done
}
# until_followed WHAT TEST...: goes on when the test holds of what was followed.
until_followed() {
  local what=$1 limit=$((SECONDS + 240))
  shift
  until follow && "$@"; do
    [ ! -e /mnt/failed ] || fail "$what did not come, and another guest has failed"
    [ "$SECONDS" -lt "$limit" ] || fail "$what did not come: app-1 acts in view $acts_in, and view $view has $members"
    sleep 0.1
  done
}
# acts_with NAME..., acts_without NAME...: whether app-1 acts in the newest view, and these are its members, or are not.
acts_with() {
  local name
  for name in "$@"; do
    [[ $members == *"\"name\":\"$name\""* ]] || return 1
  done
  [ "$acts_in" -ge "$view" ]
}
acts_without() {
  local name
  for name in "$@"; do
    [[ $members != *"\"name\":\"$name\""* ]] || return 1
  done
  [ "$acts_in" -ge "$view" ]
}

until_followed "a whole cluster" acts_with coord-1 coord-2 coord-3 node-1 node-2 app-1 paused-2
step "the cluster is whole in view $view"
touch /mnt/stop.2
until_true "the machine to stand" test -e /mnt/paused.2
begun=${EPOCHREALTIME/./}
until_followed "a program that acts without the machine" acts_without node-2 coord-2 paused-2
stood=$(((${EPOCHREALTIME/./} - begun) / 1000)) excluded_in=$view
step "the machine stands; a program of another host acts in view $view, which has excluded it"
touch /mnt/continue.2
until_true "its program to stop acting by itself" test -e /mnt/lapsed.2
touch /mnt/connect.2
until_true "what it has seen" test -e /mnt/paused.json
cat /mnt/paused.json
jq -r --argjson stood "$stood" --argjson lease "$EMULATED_LEASE_MS" '"the machine stood for \($stood) ms, of which its clocks counted at most " +
  "\([.counted_ms[]] | max) ms; then it acted in view \(.view) for \(.active_after_ms) ms beside others, by a lease of \($lease) ms"' /mnt/paused.json
# holds WHAT TEST: of what the program has seen.
holds() {
  jq -e "$2" /mnt/paused.json >/dev/null || fail "$1"
}
holds "a clock of the guest counted the pause, so leases could be judged by it" "([.counted_ms[]] | max) < $stood / 2"
holds "it acted in the old view for longer than its lease" ".active_after_ms <= $EMULATED_LEASE_MS"
holds "it acted in the view that excluded it, or a later one" ".view < $excluded_in"
holds "it did not come back as another incarnation" ".removed and .after > .before"
until_followed "the machine's return" acts_with coord-2 node-2
step "it has come back in view $view"
met over
