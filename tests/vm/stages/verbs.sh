# The RDMA backend: its definitions are those of the real headers; on a soft-RoCE device it does what it says.
# Needs the programs verbs (the tests of that name), units (the unit tests of fabric-verbs) and obol.
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

tests=$(binary verbs)
units=$(binary units)
obol=$(binary obol)
module=$(module "$OBOL_VM_KERNEL")
packages gcc libc6-dev libibverbs-dev librdmacm-dev ibverbs-providers iproute2
OBOL_VERBS_HEADERS=require "$units" --nocapture sys::layout
# The tests start processes and wait for connections; on a busy host the emulated guest needs minutes for that.
"$VM_HOME/boot" "$VM_HOME/guest/verbs.sh" "/host$tests" "/host$obol" "/host$module/deadbeat.ko"
