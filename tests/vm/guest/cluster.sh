#!/bin/bash
# cluster.sh MODULE OBOL - a cluster of real processes, whose deaths the module MODULE tells while it is there.
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_GUEST/lib.sh"
cp "$1" /tmp/deadbeat.ko
cp "$2" /tmp/obol
cd /tmp
PATH=/tmp:$PATH
unloads=3

counter() {
  sed -n "s/^$1 //p" /sys/kernel/debug/deadbeat/counters
}

# The first number of this name, or the sum of all, in what the cluster says of itself; degraded or not.
status() {
  obol status --json || true
}
number() {
  status | grep -o "\"$1\":[0-9]*" | head -1 | cut -d: -f2
}
sum() {
  status | { grep -o "\"$1\":[0-9]*" || true; } | awk -F: '{ n += $2 } END { print n + 0 }'
}
told_by() {
  status | grep -q "\"deadbeat\":\"$1\",\"processes\""
}
view_after() {
  [ "$(number view)" -gt "$1" ]
}

# kills VICTIM: it dies once, and a view says so because of a death notice.
kills() {
  local before
  before=$(number view)
  obol kill "$1"
  until_true "a view after the death of $1" view_after "$before"
}

modprobe ib_core
insmod deadbeat.ko
obol up --headless --apps 2 >up.log 2>&1 &
up=$!
trap 'cat up.log' EXIT
until_true "a healthy cluster" obol status
told_by module || fail "the module is there and not used: $(obol status)"
step "a cluster with the module is up"

[ "$(counter dead_sent)" = 0 ] || fail "a death was told before there was one"
kills app-1
kills leader
[ "$(counter dying_sent)" = 2 ] || fail "not both were told as dying: $(counter dying_sent)"
[ "$(counter dead_sent)" = 2 ] || fail "not both were told as dead: $(counter dead_sent)"
[ "$(counter send_failed)" = 0 ] || fail "a notice was refused: errno $(counter last_errno)"
[ "$(sum kernel_notices)" -gt 0 ] || fail "nobody has heard the notices"
[ "$(sum kernel_notices_refused)" = 0 ] || fail "notices were refused"
obol start app-1
for number in 1 2 3; do
  obol start "coord-$number" 2>/dev/null || true
done
until_true "a healthy cluster" obol status
step "the module has told two deaths; view $(number view), $(sum kernel_notices) notices heard"

# Apps die all the time while the module goes and comes.
(
  while [ ! -e stop ]; do
    obol kill app-2 || true
    until obol start app-2 2>/dev/null; do
      sleep 0.05
    done
    sleep 0.2
  done
) >deaths.log 2>&1 &
deaths=$!
for ((i = 0; i < unloads; i++)); do
  echo Y >/sys/module/deadbeat/parameters/drain
  until_true "an unload" rmmod deadbeat
  told_by futex+pidfd || fail "the module is gone and still named: $(status)"
  kills app-1
  obol start app-1
  insmod deadbeat.ko
  until_true "the return of the module" told_by module
done
touch stop
wait "$deaths"
until_true "a healthy cluster" obol status
step "unloaded $unloads times while processes died"

before=$(counter dead_sent)
kills app-1
[ "$(counter dead_sent)" -gt "$before" ] || fail "after its return the module tells no death"
obol down
wait "$up"
until_true "an unload" rmmod deadbeat
trap - EXIT
