# A machine of a cluster over IP is stopped, clocks and all, and continued, as by a live migration: what the others make of it,
# and how long it acts in the old view. Needs the program obol, and libobol.so, as library.
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

obol=$(binary obol)
library=$(binary library)
packages gcc libc6-dev jq iproute2
gcc -O2 -Wall -Wextra -Werror -I"$VM_HOME/../../capi/include" -o "$VM_WORK/paused" "$VM_HOME"/programs/paused/*.c "$library"
"$VM_HOME/boot" --vms 2 --pausable "$VM_HOME/guest/pause.sh" "$obol" "$VM_WORK/paused" "$library"
