# A cluster over RDMA whose three hosts are in two VMs, with a gateway each: marks, a drill on one cue over both VMs, a halt.
# Needs the program obol.
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

obol=$(binary obol)
packages libibverbs1 librdmacm1 ibverbs-providers iproute2 jq openssh-server openssh-client
"$VM_HOME/boot" --vms 2 "$VM_HOME/guest/rdma-hosts.sh" "$obol"
