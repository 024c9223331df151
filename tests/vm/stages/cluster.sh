# A whole cluster beside the kernel module, then beside eBPF programs: they tell the deaths of apps and leaders, and come
# and go while those die. Needs the program obol.
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

obol=$(binary obol)
module=$(module "$OBOL_VM_KERNEL")
"$VM_HOME/boot" "$VM_HOME/guest/cluster.sh" "/host$module/deadbeat.ko" "/host$obol"
