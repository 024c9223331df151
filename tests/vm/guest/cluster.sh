#!/bin/bash
# cluster.sh MODULE OBOL - a cluster of real processes, whose deaths the module MODULE tells while it is there, else eBPF
# programs while they are there.
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
  status | grep "\"profile\":\"[^\"]*\",\"deadbeat\":\"$1\"," >/dev/null
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

# The wall clock jumps by an hour: nobody may notice, and it is set back, also where the helper died meanwhile. `SECONDS` is of
# that clock.
cat >clock.toml <<'DRILL'
[drill]
schema = 1
id = "clock-step"
title = "The wall clock jumps by an hour"
environment = "local"
timeout = "5m"

[guards]
allow_clock_step = true

[[steady]]
probe = "lease.active"

[[step]]
name = "jump"
fault = { kind = "clock-step", by = "3600s", for = "1s" }

[[expect]]
metric = "members.failed"
at_most = 0
DRILL
ahead() { # of where it would be without a jump, in seconds
  echo $(($(date +%s) - $(cut -d. -f1 /proc/uptime) - began))
}
began=0
began=$(ahead)
is_back() {
  [ "$(ahead)" -lt 60 ] || fail "the clock was not set back: $(ahead) s ahead"
}
obol drill run ./clock.toml || fail "the cluster minds the wall clock"
is_back
sed 's/for = "1s"/for = "600s"/' clock.toml >long.toml
obol drill run ./long.toml >long.log 2>&1 &
long=$!
for ((i = 0; i < 1000 && $(ahead) < 3000; i++)); do
  sleep 0.05
done
[ "$(ahead)" -ge 3000 ] || fail "the clock did not jump: $(cat long.log)"
pkill -KILL -f fault-agent
wait "$long" || true
obol drill recover
is_back
obol drill recover
is_back
step "the wall clock has jumped twice, and nobody has minded"

# Apps die all the time while the module, or the programs, go and come.
under_fire() { # UNLOAD LOAD
  rm -f stop
  (
    while [ ! -e stop ]; do
      obol kill app-2 || true
      until obol start app-2 2>/dev/null; do
        sleep 0.05
      done
      sleep 0.2
    done
  ) >deaths.log 2>&1 &
  local deaths=$! i
  for ((i = 0; i < unloads; i++)); do
    "$1"
    kills app-1
    obol start app-1
    "$2"
  done
  touch stop
  wait "$deaths"
  until_true "a healthy cluster" obol status
}

unload_module() {
  echo Y >/sys/module/deadbeat/parameters/drain
  until_true "an unload" rmmod deadbeat
  told_by futex+pidfd || fail "the module is gone and still named: $(status)"
}
load_module() {
  insmod deadbeat.ko
  until_true "the return of the module" told_by module
}
under_fire unload_module load_module
step "the module was unloaded $unloads times while processes died"

before=$(counter dead_sent)
kills app-1
[ "$(counter dead_sent)" -gt "$before" ] || fail "after its return the module tells no death"
obol start app-1

load_programs() {
  obol detector load >/dev/null
  until_true "the use of the programs" told_by ebpf
}
unload_programs() {
  obol detector unload >/dev/null
  until_true "the loss of the programs" told_by futex+pidfd
}
obol detector load
told_by module || fail "the module is there and not preferred: $(status)"
echo Y >/sys/module/deadbeat/parameters/drain
until_true "an unload" rmmod deadbeat
until_true "the use of the programs" told_by ebpf
until_true "a healthy cluster" obol status
# Counters of those that died are gone, so only what a living coordinator has heard counts.
heard=$(sum kernel_notices)
kills app-1
[ "$(sum kernel_notices)" -gt "$heard" ] || fail "nobody has seen what the programs tell"
[ "$(sum kernel_notices_refused)" = 0 ] || fail "tokens were refused"
obol start app-1
until_true "a healthy cluster" obol status
step "the eBPF programs have told a death"
under_fire unload_programs load_programs
step "the eBPF programs were unloaded $unloads times while processes died"

insmod deadbeat.ko
until_true "the return of the module" told_by module
obol detector unload
obol down
wait "$up"
until_true "an unload" rmmod deadbeat
trap - EXIT
