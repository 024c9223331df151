# docs/deploy.md as it stands, over RDMA: three hosts under systemd, from bare to a running cluster with the console on it.
# Needs the Debian package, as deb.
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

deb=$(binary deb)
packages systemd libibverbs1 librdmacm1 ibverbs-providers iproute2 curl jq
mkdir -p "$VM_WORK/share"/to-{1,2,3}
# Each block says in its first line for which hosts it is: ```sh NAME
document=$VM_HOME/../../docs/deploy.md
for name in each first look; do
  grep -q "^\`\`\`sh $name\$" "$document" || die "docs/deploy.md has no block for '$name'"
done
! grep -q '^```$' <(awk '/^```/ && ++n % 2' "$document") || die "docs/deploy.md has a block that is for no host"
# What is over IP is the stage deploy-ip's.
awk '/^## / { skip = / (Over IP|Drills)$/ }
  /^```/ { block = block == "" ? $2 : ""; next }
  block != "" && !skip { print block "\t" $0 }' "$document" >"$VM_WORK/share/commands"
"$VM_HOME/boot" --vms 3 --systemd --share "$VM_WORK/share" "$VM_HOME/guest/deploy.sh" "$deb"
