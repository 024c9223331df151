# docs/deploy.md over IP, as it stands, from a bare Debian on: three hosts under systemd and a fourth that watches, which reach
# each other by ssh and TCP; then what can happen to them: deaths, a freeze, a host that is cut off, a drill on all of them,
# restarts one by one. In containers, which need no kernel of their own. Needs the Debian package, as deb.
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

# What a container needs of the host; whatever else it lacks is a failure.
mkdir "$VM_WORK/groups"
# shellcheck disable=SC2016 # expanded by the inner shell
if ! unshare --mount --uts --ipc --pid --net --cgroup --fork sh -c 'mount -t cgroup2 cgroup2 "$1"' sh "$VM_WORK/groups"; then
  skipped containers-here "this user or this kernel makes no namespaces, or mounts no cgroup2"
  exit 0
fi
deb=$(binary deb)
packages mmdebstrap openssh-client
share=$VM_WORK/share root=$VM_WORK/root
mkdir -p "$share/page"
# The blocks of the page, by section and for whom they are.
document=$VM_HOME/../../docs/deploy.md
awk -v to="$share/page/" '
  /^## / { section = tolower($0); sub(/^## /, "", section); gsub(/[^a-z0-9]+/, "-", section) }
  /^```/ { block = block == "" ? section "." $2 : ""; next }
  block != "" { print > (to block) }' "$document"
for block in 2-install.each over-ip.first over-ip.each over-ip.watching 7-check.look drills.each drills.first drills.login; do
  [ -s "$share/page/$block" ] || die "docs/deploy.md has no block '${block#*.}' in section '${block%.*}'"
done
# Who may log in, and by what the hosts are known.
ssh-keygen -q -t ed25519 -N '' -C operator -f "$share/login"
ssh-keygen -q -t ed25519 -N '' -C hosts -f "$share/host"

# A server's Debian, and what this test looks with.
mmdebstrap --quiet --variant=apt --include=systemd,systemd-sysv,openssh-server,sudo,iproute2,jq,bsdutils bookworm "$root"
say "a fresh Debian"
# Nobody is there to say yes.
echo 'APT::Get::Assume-Yes "true";' >"$root/etc/apt/apt.conf.d/test"
cp "$deb" "$root/root/"
# Without the first line, says the page: it is for RDMA. The hosts begin as copies of this one.
sed 1d "$share/page/2-install.each" >"$root/root/install"
unshare --mount --pid --fork --mount-proc="$root/proc" chroot "$root" \
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive sh -ec 'cd /root && . ./install' >"$VM_WORK/apt.log" 2>&1 || {
  cat "$VM_WORK/apt.log" >&2
  die "docs/deploy.md: $(cat "$root/root/install")"
}
say "$(cat "$root/root/install")"
"$VM_HOME/containers" --hosts 4 --share "$share" "$root" "$VM_HOME/guest/deploy-ip.sh"
