#!/bin/bash
# deadbeat.sh DIRECTORY OBOL TESTS - what eBPF programs and deadbeat.ko owe, with the module and the program `deaths` from
# DIRECTORY of the host, and the tests of the interface that agents use.
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_GUEST/lib.sh"
cp "$1/deadbeat.ko" "$1/deaths" /tmp/
cp "$2" /tmp/obol
cp "$3" /tmp/tests
cd /tmp
unloads=20 group=4242

counter() {
  sed -n "s/^$1 //p" /sys/kernel/debug/deadbeat/counters
}

# Nothing of a closed file may be left; what waits for a grace period goes by itself.
nothing_left() {
  [ "$(counter open_files)" = 0 ] && [ "$(counter registrations)" = 0 ]
}

load() {
  insmod deadbeat.ko
}

unload() {
  until_true "the end of all registrations" nothing_left
  rmmod deadbeat
}

# shows GROUP WANTED_STATUS WORD: what `obol detector show` says to a user of this group.
shows() {
  local status=0 output
  output=$(setpriv --reuid 65534 --regid "$1" --clear-groups ./obol detector show) || status=$?
  [ "$status" = "$2" ] || fail "group $1: status $status: $output"
  [[ $output == "deaths are detected by $3"* ]] || fail "group $1: $output"
}

step "eBPF programs: every way to die"
./obol detector load --group "$group" | tee loaded
grep -q "before the memory" loaded || fail "the programs do not report deaths early"
grep -q "sleeping processes are woken" loaded || fail "the programs wake nobody"
shows "$group" 0 ebpf
shows 65534 1 futex+pidfd
./deaths ebpf "$group"
for ((i = 0; i < unloads; i++)); do
  ./obol detector unload >unloaded
  grep -qx unloaded unloaded || fail "nothing was unloaded"
  [ ! -e /run/obol-deaths ] || fail "unloading leaves something behind"
  ./obol detector load --group "$group" >loaded
done
! ./obol detector load 2>refusal || fail "loaded twice"
grep -q "loaded already" refusal || fail "$(cat refusal)"
./obol detector unload
shows "$group" 1 futex+pidfd

dummy dummy0 10.1.0.1/24
soft_roce rxe0 dummy0
modprobe ib_core
load
gid=$(gid_index rxe0)

# within NAME: the time within which half of them had come so far from the hook, from the histogram.
within() {
  sed -n "s/^$1_from_\([0-9]*\)_ns \([0-9]*\)/\1 \2/p" /sys/kernel/debug/deadbeat/from_hook | awk '
    { from[NR] = $1; count[NR] = $2; all += $2 }
    END { for (i = 1; i <= NR; i++) if ((seen += count[i]) * 2 >= all) { printf "%.1f us\n", from[i] * 2 / 1000; exit } }'
}

step "from hook to sent"
./deaths times dummy0
printf 'by UDP, half of the proofs are handed to the network within %s of the hook (emulated; wanted: 10 us), and sent within %s\n' \
  "$(within dead_begun)" "$(within dead_sent)"
unload
load
./deaths times dummy0 rxe0 "$gid"
printf 'by verbs, half of the proofs are handed to the network within %s of the hook (emulated; wanted: 10 us), and sent within %s\n' \
  "$(within dead_begun)" "$(within dead_sent)"
unload
load

step "every way to die"
./deaths ways dummy0 rxe0 "$gid"
cat /sys/kernel/debug/deadbeat/counters
grep -v _from_ /sys/kernel/debug/deadbeat/from_hook
[ "$(counter send_failed)" = 0 ] || fail "a notice was refused: errno $(counter last_errno)"
[ "$(counter hook_missed)" = 0 ] || fail "the probe was missed"

step "the interface that agents use"
OBOL_DEADBEAT=require OBOL_DEADBEAT_INTERFACE=dummy0 ./tests --test-threads 1 --color never

step "the RDMA device goes"
./deaths lost dummy0 rxe0 "$gid"
[ "$(counter last_errno)" = 19 ] || fail "the loss of the device is not shown: errno $(counter last_errno)"
unload

step "unload under fire"
rm -f stop
load
./deaths storm dummy0 stop &
storm=$!
for ((i = 0; i < unloads; i++)); do
  until_true "an unload" rmmod deadbeat
  # The storm meets a host without the module, too.
  sleep 0.02
  load
done
touch stop
wait "$storm"
step "unloaded $unloads times"
unload
