# A cluster of several hosts in two VMs, by the commands of docs/deploy.md: one VM loses its power, the other goes on.
# Needs the program obol.
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

obol=$(binary obol)
packages libibverbs1 librdmacm1 ibverbs-providers iproute2
"$VM_HOME/boot" --vms 2 "$VM_HOME/guest/hosts.sh" "$obol"
