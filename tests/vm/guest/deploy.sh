#!/bin/bash
# deploy.sh PACKAGE - host VM_INDEX of docs/deploy.md: runs its commands, which are in the share, one after another.
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_GUEST/lib.sh"
cd /root
cp "/host$1" .
trap '[ "$?" = 0 ] || journalctl --no-pager -o cat -n 60 -u "obol-*"' EXIT
# The addresses of the document.
ip addr add "10.0.0.$VM_INDEX/24" dev eth0

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
  local to=${!#} host path
  host=${to%%:*} path=/mnt/to-${host##*.}${to#*:}
  mkdir -p "$(dirname "$path")"
  case $to in
    */) mkdir -p "$path" ;;
  esac
  [ "$1" = -r ] && set -- -rT "${@:2}"
  cp "${@:1:$#-1}" "$path"
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
    [ -z "$(ls -A "/mnt/to-$VM_INDEX")" ] || cp -r "/mnt/to-$VM_INDEX"/. /
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
# What daemons log is in the journal, with the fields of docs/logs.md, and obol logs reads it there.
agent=node-$VM_INDEX
# in_journal WORD... -- MATCH...: whether an entry of the agent's unit that matches has all these words, as JSON.
in_journal() {
  local words=() word
  while [ "$1" != -- ]; do
    words+=("$1")
    shift
  done
  shift
  journalctl --no-pager -o json "_SYSTEMD_UNIT=obol-agent@$agent.service" "OBOL_PROCESS=$agent" "$@" >entries
  for word in "${words[@]}"; do
    grep -F -- "$word" entries >some || return 1
    mv some entries
  done
}
until_true "its join in the journal" in_journal "\"MESSAGE\":\"joined: as $agent (" '"PRIORITY":"6"' \
  '"SYSLOG_IDENTIFIER":"obol"' '"OBOL_MODULE":"membership"' '"OBOL_CLUSTER":"prod"' '"OBOL_IDENTITY":"' '"OBOL_INCARNATION":"' \
  '"OBOL_AT_NS":"' '"OBOL_TIME_NS":"' -- OBOL_EVENT=joined
until_true "its start in the journal" in_journal '"MESSAGE":"started (pid ' '"PRIORITY":"6"' '"OBOL_PID":"' -- OBOL_MODULE=process
# Only members of a group may read the journal; to others obol logs says what is missing.
status=0
as_obol "$environment; obol logs $agent --since 1h" >lines 2>remarks || status=$?
{ [ "$status" = 1 ] && grep -q systemd-journal remarks && grep -q "joined: as $agent" lines; } ||
  fail "obol logs does not say that the journal cannot be read: $(cat remarks)"
usermod --append --groups systemd-journal obol
# On a host it is done at boot; this guest has no such unit.
systemd-tmpfiles --create --prefix /run/log/journal
# logged [OPTION]...: the lines about the agent.
logged() {
  as_obol "$environment; obol logs $agent --json --since 1h $*"
}
# Flight recorders have no lines of this module, and no incarnation of the process's own.
logged >lines
grep '"module":"process"' lines | grep '"text":"started (pid ' >/dev/null || fail "obol logs does not read the journal: $(cat lines)"
grep '"event":"joined"' lines | grep '"incarnation":' >/dev/null || fail "obol logs prints the recorder's event, not the journal's: $(cat lines)"
step "obol logs has read the agent's lines from the journal"
! in_journal '"PRIORITY":"7"' -- OBOL_MODULE=membership || fail "$agent logs more than it should"
as_obol "$environment; obol log level $agent membership=debug" >level || fail "the level of $agent cannot be changed"
grep -q 'info,membership=debug to journal' level || fail "the agent's level: $(cat level)"
until_true "the change of levels in the journal" in_journal 'levels are info,membership=debug from now on' -- OBOL_MODULE=process
met levels
# The exporter READs the other hosts over RDMA, and what it says is what the status says.
echo 'OBOL_EXPORT_OPTIONS=--scope cluster' >>/etc/obol/environment
systemctl start obol-export
scrape() {
  curl -sf http://127.0.0.1:17471/metrics >"$1"
}
# value FILE METRIC [PROCESS]: of a series, in a scrape.
value() {
  grep -E "^$2(_total)?\{" "$1" | grep -F -- "${3:+process=\"$3\"}" | sed -n 's/.*} \([-0-9.e+]*\).*/\1/p'
}
has_been_read() {
  local name
  scrape scraped && [ "$(value scraped obol_up)" = 1 ] || return 1
  for name in node-1 node-2 node-3; do
    [ "$(value scraped obol_active "$name")" = 1 ] || return 1
  done
}
until_true "a scrape with the agents of all hosts" has_been_read
polls_later() {
  scrape after && [ "$(value after obol_export_polls)" -ge "$(($(value during obol_export_polls) + 3))" ]
}
# A status does not wait long for another host's answer.
counts_renewals() {
  as_obol "$environment; obol status --json" >status.json || [ "$?" = 1 ] || return 1
  jq -e '.view != null and ([.processes[] | select(.kind == "agent") | .renewals.on_time | numbers] | length == 3)' \
    status.json >/dev/null
}
until_true "a status with the renewals of all agents" counts_renewals
# The status may have taken as long as several polls.
until_true "a scrape after the status" scrape during
until_true "later polls" polls_later
for name in node-1 node-2 node-3; do
  renewals=$(jq ".processes[] | select(.name == \"$name\") | .renewals.on_time" status.json)
  { [ "$(value scraped obol_renewals_on_time "$name")" -le "$renewals" ] && [ "$renewals" -le "$(value after obol_renewals_on_time "$name")" ]; } ||
    fail "the exporter counts $(value scraped obol_renewals_on_time "$name") and later $(value after obol_renewals_on_time "$name") renewals of $name, the status $renewals between"
done
{ [ "$(value scraped obol_view)" -le "$(jq .view status.json)" ] && [ "$(jq .view status.json)" -le "$(value after obol_view)" ]; } ||
  fail "the exporter has other views than the status"
curl -sf http://127.0.0.1:17471/readyz >ready || fail "the exporter is not ready"
step "the exporter has READ $(value after obol_export_reads) parts of all hosts' regions"
met exported
# A daemon that hangs is ended by systemd's watchdog and started again; it counts as started when it is a member.
if [ "$VM_INDEX" = 3 ]; then
  unit=obol-agent@node-3
  was_watched() {
    journalctl --no-pager -o cat -u "$unit" | grep 'Watchdog timeout' >/dev/null && systemctl is-active --quiet "$unit"
  }
  systemctl kill --signal=STOP "$unit"
  until_true "a restart by the watchdog" was_watched
  all_are_members || fail "node-3 is started, but no member"
  step "the watchdog has started a frozen agent again"
fi
met looked
# The freeze has changed the view. A new life keeps the level, and receives its first view before it is a member.
until_true "steps of a view change in the journal" in_journal '"PRIORITY":"7"' '"MESSAGE":"active: view ' \
  '"OBOL_INCARNATION":"' -- OBOL_EVENT=active
logged --level debug >lines
grep '"event":"active"' lines | grep '"incarnation":' >/dev/null || fail "obol logs does not print what the new level has added: $(cat lines)"
step "the journal has what the new level has added"
met logged
