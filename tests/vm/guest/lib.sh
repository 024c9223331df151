# shellcheck shell=bash
# For scripts that run in a guest. Sourced, never run.

step() {
  printf '[%7.2f] %s\n' "$(cut -d' ' -f1 /proc/uptime)" "$*"
}

fail() {
  printf 'FAILED: %s\n' "$*"
  exit 1
}

# until_true WHAT COMMAND...: waits until the command succeeds. The bound is against hangs only: another guest may have to be
# waited for, and the host may have other work.
until_true() {
  local what=$1 limit=240 end output
  end=$((SECONDS + limit))
  shift
  until output=$("$@" 2>&1); do
    [ ! -e /mnt/failed ] || fail "$what did not come, and another guest has failed: $output"
    [ "$SECONDS" -lt "$end" ] || fail "$what did not come within $limit s: $output"
    sleep 0.02
  done
}

# met NAME: goes on when all hosts have come here. How far they are apart depends on the emulation.
met() {
  touch "/mnt/$1.$VM_INDEX"
  local host
  for ((host = 1; host <= VM_COUNT; host++)); do
    while [ ! -e "/mnt/$1.$host" ]; do
      [ ! -e /mnt/failed ] || fail "another host has failed"
      sleep 0.1
    done
  done
}

# gid_index DEVICE: the index of the IPv4 GID, which the kernel adds some time after the device.
gid_index() {
  local file
  for file in /sys/class/infiniband/"$1"/ports/1/gids/*; do
    case $(cat "$file" 2>/dev/null) in
      0000:0000:0000:0000:0000:ffff:*) echo "${file##*/}" && return ;;
    esac
  done
  return 1
}

# soft_roce DEVICE INTERFACE: makes a soft-RoCE device on an interface that has an IPv4 address.
soft_roce() {
  modprobe -a rdma_rxe ib_uverbs rdma_ucm
  rdma link add "$1" type rxe netdev "$2"
  until_true "the IPv4 GID of $1" gid_index "$1"
  ip route replace 239.0.0.0/8 dev "$2"
}

# dummy NAME ADDRESS: an interface that leads nowhere.
dummy() {
  ip link add "$1" type dummy
  ip addr add "$2" dev "$1"
  ip link set "$1" up multicast on
}

# For who follows the views with `obol watch --json >views.json`, which has gaps, too.
# incarnation NAME: of a member of the newest view, else 0.
incarnation() {
  grep '"event":"view"' views.json | tail -n 1 | jq "[.members[]? | select(.name == \"$1\") | .incarnation][0] // 0"
}
leaves() {
  [ "$(incarnation "$1")" = 0 ]
}
# returns NAME INCARNATION: whether it is a member of a later life.
returns() {
  [ "$(incarnation "$1")" -gt "$2" ]
}

# emulated_profile OBOL FILE: writes a profile over IP for hosts on an emulated processor, which need longer times than any real
# ones. A lease that cannot grow is a bound that is known.
readonly EMULATED_LEASE_MS=3000
emulated_profile() {
  set_to() { # SECTION KEY VALUE
    sed -i "/^\[$1\]/,/^\[/ s/^$2 = .*/$2 = \"$3\"/" "$file"
  }
  local obol=$1 file=$2
  "$obol" profile show cloud >"$file"
  set_to lease duration "${EMULATED_LEASE_MS}ms"
  set_to lease max "${EMULATED_LEASE_MS}ms"
  set_to lease renew_every 400ms
  set_to lease renew_timeout 1s
  set_to cache lease "${EMULATED_LEASE_MS}ms"
  set_to heartbeat every 200ms
  set_to heartbeat period 2s
  set_to link every 1s
  set_to link timeout 5s
  set_to coordinator resync_after 10s
  set_to ip detection 4s
  "$obol" profile check "$file"
}
