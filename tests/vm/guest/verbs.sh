#!/bin/bash
# verbs.sh TESTS OBOL MODULE - the tests of the RDMA backend and `obol fabric list`, on a soft-RoCE device.
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_GUEST/lib.sh"
cd /tmp

# list WANTED TEXT...: `obol fabric list` ends with this status and says all of this.
list() {
  local wanted=$1 status=0 output text
  shift
  output=$("$obol" fabric list 2>&1) || status=$?
  printf '%s\n' "$output"
  [ "$status" = "$wanted" ] || fail "obol fabric list: status $status, not $wanted"
  for text in "$@"; do
    [[ $output == *"$text"* ]] || fail "obol fabric list does not say: $text"
  done
}

# without PATH COMMAND...: runs a command while a file is not there.
without() {
  local path=$1
  shift
  mv "$path" "$path.away"
  "$@"
  mv "$path.away" "$path"
}

# Binaries are read once from the host, not page by page.
cp "$1" tests
cp "$2" obol
obol=/tmp/obol

libraries=$(dirname "$(ldconfig -p | sed -n 's/.*libibverbs\.so\.1 .*=> //p' | head -n 1)")

step "no libraries"
without "$libraries/libibverbs.so.1" \
  list 2 "libibverbs.so.1 cannot be loaded" "install libibverbs1" "librdmacm.so.1 cannot be loaded"
without "$libraries/librdmacm.so.1" list 2 "install librdmacm1" "this host has no RDMA device"

step "no device"
list 2 "this host has no RDMA device" "rdma link add rxe0 type rxe"

step "a device"
dummy dummy0 10.1.0.1/24
soft_roce rxe0 dummy0
echo 4 >/proc/sys/vm/nr_hugepages
list 0 "atomics device" "huge pages: 4 of 4 free" "may lock: no limit" "would be used: rxe0 port 1" "(10.1.0.1)"
without "$libraries/libibverbs" list 2 "no provider drives rxe0" "install ibverbs-providers"
ip link set dummy0 down
until_true "a port that is down" grep -q DOWN /sys/class/infiniband/rxe0/ports/1/state
list 1 "rxe0/1: the port is down"
ip link set dummy0 up multicast on
ip route replace 239.0.0.0/8 dev dummy0
until_true "the IPv4 GID of rxe0" gid_index rxe0
"$obol" fabric list --json

step "tests"
OBOL_VERBS=require ./tests --test-threads 1 --color never

step "the kernel module reports deaths to other hosts"
modprobe ib_core
insmod "$3"
OBOL_VERBS=require OBOL_DEADBEAT=require ./tests --test-threads 1 --color never deaths::
cat /sys/kernel/debug/deadbeat/counters
rmmod deadbeat
