#!/bin/bash
# deploy-ip.sh - host VM_INDEX of docs/deploy.md over IP, where the package is installed: runs the page's commands, which are
# in the share. Then the first host does to the others what can happen to them, over ssh. The fourth only watches.
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_GUEST/lib.sh"
cd /root
page=/mnt/page
trap '[ "$?" = 0 ] || journalctl --no-pager -o short-monotonic -n 80 -u "obol-*" -u "web-*"' EXIT

# What is not here is an operator at an editor, who takes the profile for machines that have to wait, and adds the watching
# host, and a program on each other one.
cat >/usr/local/bin/editor <<'END'
#!/bin/sh
sed -i -e 's/^profile = .*/profile = "cloud"/' -e 's/^agents = \["node-\(.\)"\]/&\napps = ["web-\1"]/' "$1"
printf '\n[[hosts]]\naddress = "10.0.0.4"\n' >>"$1"
END
chmod 755 /usr/local/bin/editor
# A login for root from the first host.
install -d -m 700 /root/.ssh
rm -f /etc/ssh/ssh_host_*
install -m 600 /mnt/host /etc/ssh/ssh_host_ed25519_key
install -m 600 /mnt/login.pub /root/.ssh/authorized_keys
systemctl start ssh systemd-user-sessions
if [ "$VM_INDEX" = 1 ]; then
  install -m 600 /mnt/login /root/.ssh/id_ed25519
  for host in 10.0.0.2 10.0.0.3 10.0.0.4; do
    echo "$host $(cat /mnt/host.pub)"
  done >/root/.ssh/known_hosts
fi

# run_block NAME [EDIT]...: a block of the page, after some edits of sed's.
run_block() {
  local name=$1 edit edits=(-e '')
  shift
  for edit in "$@"; do
    edits+=(-e "$edit")
  done
  sed "${edits[@]}" "$page/$name" >"block-$name"
  step "docs/deploy.md, $name:"
  cat "block-$name"
  bash -e "block-$name" </dev/null || fail "docs/deploy.md: $name"
}

met ready-for-keys
[ "$VM_INDEX" != 1 ] || run_block over-ip.first 's/10\.0\.0\.2 10\.0\.0\.3;/10.0.0.2 10.0.0.3 10.0.0.4;/'
met copied
if [ "$VM_INDEX" = 4 ]; then
  run_block over-ip.watching
else
  run_block over-ip.each "s/coordinator@1/coordinator@$VM_INDEX/; s/node-1/node-$VM_INDEX/"
fi

environment=$(grep '^export' "$page/7-check.look")
as_obol() {
  (cd / && runuser -u obol -- env TERM=xterm SHELL=/bin/bash bash -c "$environment; $1")
}
# sees NAME...: whether the cluster is healthy and has all of these as members.
sees() {
  local name
  as_obol "obol status --json" >status.json || return 1
  for name in "$@"; do
    jq -e "any(.processes[]; .name == \"$name\" and .incarnation > 0)" status.json >/dev/null || return 1
  done
}

if [ "$VM_INDEX" = 4 ]; then
  until_true "a healthy cluster as a fourth host sees it" sees coord-1 coord-2 coord-3 node-1 node-2 node-3
  as_obol "obol status" || [ "$?" = 1 ]
  # The console wants a terminal, and a key to end it, which comes when all is shown.
  # shellcheck disable=SC2094
  (
    until_true "a screen" grep -q node-3 screen
    printf q
  ) | as_obol "script -qefc 'stty rows 40 cols 150; obol console' /dev/null" >screen || fail "the console: $(cat -v screen)"
  step "the console of a host that only watches has shown the others"
else
  # A program on each host, by a unit of its name.
  cat >"/run/systemd/system/web-$VM_INDEX.service" <<UNIT
[Service]
User=obol
EnvironmentFile=/etc/obol/environment
Environment=OBOL_ROOT=/run/obol
ExecStart=/usr/bin/obol app --name web-$VM_INDEX --node node-$VM_INDEX
Restart=always
RestartSec=1
UNIT
  # As docs/upgrade.md says.
  echo 'obol ALL=(root) NOPASSWD: /usr/bin/systemctl restart obol-*' >/etc/sudoers.d/obol
  run_block drills.each
  systemctl daemon-reload
  systemctl start "web-$VM_INDEX"
fi
met started
# shellcheck source=guest/deploy-ip-faults.sh
[ "$VM_INDEX" != 1 ] || . "$VM_GUEST/deploy-ip-faults.sh"
met over
