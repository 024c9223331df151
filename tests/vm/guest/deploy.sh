#!/bin/bash
# deploy.sh PACKAGE - host VM_INDEX of docs/deploy.md: runs its commands, which are in the share, one after another.
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_GUEST/lib.sh"
cd /root
cp "/host$1" .
trap '[ "$?" = 0 ] || { touch /mnt/failed; journalctl --no-pager -o cat -n 60 -u "obol-*"; }' EXIT
# The addresses of the document.
ip addr add "10.0.0.$VM_INDEX/24" dev eth0

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

# The index of manual pages is of no use here, and takes minutes on an emulated processor.
rm -f /var/lib/man-db/auto-update

# What a guest cannot do itself: there is no package server, no editor and no sshd. Packages are those of the host.
apt() {
  case $2 in
    ./*) dpkg --install "$2" ;;
    *) dpkg-query -W "${@:2}" >/dev/null ;;
  esac
}
editor() {
  sed -i 's/^profile = .*/profile = "soft-roce"/' "$1"
}
scp() {
  local to=${!#} host
  host=${to%%:*}
  cp "${@:1:$#-1}" "/mnt/to-${host##*.}/"
}

as_obol() {
  (cd / && runuser -u obol -- env TERM=xterm SHELL=/bin/bash bash -c "$1")
}

block=0 before='' look=''
while IFS=$'\t' read -r who command <&3; do
  if [ "$who" != "$before" ]; then
    before=$who block=$((block + 1))
    met "block-$block"
    # What the first host has sent.
    [ -z "$(ls -A "/mnt/to-$VM_INDEX")" ] || cp "/mnt/to-$VM_INDEX"/* /etc/obol/
  fi
  # With its own numbers and names.
  command=${command//coordinator@1/coordinator@$VM_INDEX}
  command=${command//node-1/node-$VM_INDEX}
  case $who in
    look) look+=$command$'\n' ;;
    first) [ "$VM_INDEX" = 1 ] || continue ;;&
    *)
      step "# $command"
      # The kernel adds a GID some time after its device.
      [ "$command" != "obol fabric list" ] || until_true "the IPv4 GID" gid_index rxe0
      eval "$command" || fail "docs/deploy.md: $command"
      ;;
  esac
done 3</mnt/commands

environment=$(grep '^export' <<<"$look")
# all_are_members: whether the view, as this host's coordinator has it, names every process of the document.
all_are_members() {
  local view name
  view=$(as_obol "$environment; obol watch --once --json")
  for name in coord-1 coord-2 coord-3 node-1 node-2 node-3; do
    [[ $view == *"\"name\":\"$name\""* ]] || return 1
  done
}
tries=0
until all_are_members 2>/dev/null; do
  tries=$((tries + 1))
  [ "$tries" -lt 90 ] || fail "not all are members"
  sleep 1
done
step "all are members"
while read -r command; do
  case $command in
    export*) ;;
    "obol console") ;;
    *)
      step "# $command"
      # 1: degraded, as when a lease was late on a busy host; 2: there is no cluster.
      as_obol "$environment; $command" || [ "$?" = 1 ] || fail "docs/deploy.md: $command"
      ;;
  esac
done <<<"${look%$'\n'}"
state=$(as_obol "$environment; obol status --json" || true)
[[ $state == *'"deadbeat":"ebpf"'* ]] || fail "the kernel tells no deaths: $state"
# The console wants a terminal, and a key to end it, which comes when all is shown.
# shellcheck disable=SC2094
(
  until_true "a screen" grep -q "node-$VM_INDEX" screen
  printf q
) | as_obol "script -qefc $(printf %q "stty rows 40 cols 150; $environment; obol console") /dev/null" >screen || fail "the console: $(cat -v screen)"
step "the console has shown this host's node"
# A daemon that hangs is ended by systemd's watchdog and started again; it counts as started when it is a member.
if [ "$VM_INDEX" = 3 ]; then
  unit=obol-agent@node-3
  was_watched() {
    journalctl --no-pager -o cat -u "$unit" | grep -q 'Watchdog timeout' && systemctl is-active --quiet "$unit"
  }
  systemctl kill --signal=STOP "$unit"
  until_true "a restart by the watchdog" was_watched
  all_are_members || fail "node-3 is started, but no member"
  step "the watchdog has started a frozen agent again"
fi
met looked
