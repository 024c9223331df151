# shellcheck shell=bash
# What happens to the cluster of deploy-ip.sh, whose first host sources this with `page` and `environment`.
: "${page:?}" "${environment:?}"

# The views as this host's coordinator follows them, one after the other.
as_obol "exec obol watch --json" >views.json &
watcher=$!
# says_view WORDS: whether they are among the causes of a view.
says_view() {
  jq -r '.causes[]?' views.json | grep "$1" >/dev/null
}
# acts NAME: whether its lease is active.
acts() {
  as_obol "obol status --json" >status.json || true
  jq -e "any(.processes[]; .name == \"$1\" and .lease.active)" status.json >/dev/null
}
whole() {
  sees coord-1 coord-2 coord-3 node-1 node-2 node-3 web-1 web-2 web-3
}
until_true "a view" test -s views.json
until_true "a cluster with all programs" whole

step "an app dies"
before=$(incarnation web-2)
ssh 10.0.0.2 systemctl kill --signal=KILL web-2
until_true "another web-2" returns web-2 "$before"
until_true "the reason" says_view "web-2 ($before) failed: deadbeat"

step "an app freezes"
before=$(incarnation web-3)
ssh 10.0.0.3 systemctl kill --signal=STOP web-3
until_true "a view without web-3" leaves web-3
ssh 10.0.0.3 systemctl kill --signal=CONT web-3
until_true "another web-3" returns web-3 "$before"
until_true "the reason" says_view "web-3 ($before) failed: heartbeat"

step "a host is cut off"
before=$(incarnation node-3)
# Not before this host knows that it has begun: it could wait for the answer for ever.
cat >/mnt/cut-off <<END
until [ -e /mnt/begun ]; do sleep 0.1; done
ip link set eth0 down
$environment
until runuser -u obol -- obol status --json | jq -e 'any(.processes[]; .name == "web-3" and .lease.active == false)'; do sleep 0.1; done
touch /mnt/does-not-act
until [ -e /mnt/heal ]; do sleep 0.1; done
ip link set eth0 up
END
ssh 10.0.0.3 systemd-run --quiet bash /mnt/cut-off
touch /mnt/begun
until_true "a view without the host" leaves node-3
until_true "the host to act no more" test -e /mnt/does-not-act
until_true "the others to act" acts web-1
touch /mnt/heal
until_true "another node-3" returns node-3 "$before"
until_true "a whole cluster" whole

# As the page says, but for the drill that it runs.
cp "$page/drills.login" /etc/obol/ssh
install -o obol -m 600 /mnt/login /etc/obol/drill-key
cp /root/.ssh/known_hosts /etc/obol/known-hosts
install -d /etc/obol/drills
# drill NAME REPORT: runs a drill of /etc/obol/drills once.
drill() {
  sed -e "s:app+coordinator:/etc/obol/drills/$1.toml:" \
    -e "s:drill run freeze:& --count 1 --out /var/lib/obol/$2:; s:run freeze:run /etc/obol/drills/$1.toml:" "$page/drills.first" >"drill-$1"
  step "docs/deploy.md, drills.first:"
  cat "drill-$1"
  (cd / && bash -e "/root/drill-$1" </dev/null)
}
# Bounds on skew are for quieter machines.
cat >/etc/obol/drills/three.toml <<'END'
[drill]
schema = 1
id = "three"
title = "A process on each host dies on one cue"
environment = "local"
timeout = "10m"

[guards]
max_targets = 4
abort = [{ when = "overlap_ns > 0" }]

[targets]
app = { kind = "app", name = "web-1" }
agent = { kind = "agent", name = "node-3" }
coordinator = { kind = "coordinator", name = "coord-2" }

[[steady]]
probe = "processes.up"

[[step]]
name = "kill"
max_cue_skew = "1s"
fault = { kind = "kill", target = ["app", "agent", "coordinator"] }
END
# On a busy machine ssh may be given up, which ends a drill, or the cue may be late, which makes it void.
for try in 1 2 3; do
  status=0
  drill three "three-$try" || status=$?
  [[ $status = [46] ]] || break
  until_true "a whole cluster" whole
done
report=/var/lib/obol/three-$try
[ "$status" = 0 ] || fail "the drill on three hosts: $status: $(cat "$report/postmortem.md")"
journal() {
  jq -e "$1" "$report/journal.json"
}
journal '.trials[] | {skew_ns, skew_error_ns, clock_error_ns, overlap_ns, failover_ns, failed, hosts: [.stamps[].host]}'
journal '.trials[0] | .overlap_ns == 0 and .clock_error_ns > 0 and .skew_error_ns > 0 and ([.stamps[].host] | sort) == [1, 2, 3]' ||
  fail "the journal lacks a host, or the error of its clock"
grep 'may be off by' "$report/postmortem.md" || fail "the report does not say how certain its clocks are"
until_true "a whole cluster" whole

step "all daemons restart, one after the other"
grep '"event":"view"' views.json | tail -n 1 >before.json
restart="$environment; obol upgrade --all --restart 'sudo systemctl restart \"\$OBOL_UNIT\"'"
for host in 3 2; do
  # shellcheck disable=SC2029 # the command is this host's, quoted for the other one
  ssh "10.0.0.$host" "cd / && runuser -u obol -- bash -c $(printf %q "$restart")"
done
as_obol "$restart"
for name in node-1 node-2 node-3 coord-1 coord-2 coord-3; do
  until_true "another $name" returns "$name" "$(jq ".members[] | select(.name == \"$name\") | .incarnation" before.json)"
done
until_true "a whole cluster" whole
kill "$watcher"
jq -r 'select(.event == "view") | "view \(.view): \(.causes | join(", "))"' views.json
