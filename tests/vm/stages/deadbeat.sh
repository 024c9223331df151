# The kernel module reports every death, once, by UDP and by verbs, and comes and goes under load; eBPF programs tell
# every death, too. Needs the programs obol and deadbeat (fabric's tests of that name).
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

obol=$(binary obol)
tests=$(binary deadbeat)
packages gcc libc6-dev libibverbs-dev ibverbs-providers iproute2
module=$(module "$OBOL_VM_KERNEL")
gcc -O2 -Wall -Wextra -Werror -pthread -I"$module" -o "$VM_WORK/deaths" "$VM_HOME"/programs/deaths/*.c -libverbs
cp "$module/deadbeat.ko" "$VM_WORK"

# Debian ships no kernel with KASAN, lockdep or kmemleak. Poisoned slabs find a use after free, and a cache that is not
# empty when the module goes is a complaint of the kernel.
# DEADBEAT_CPUS=2 has what unloads, registers and dies do so at the same time.
"$VM_HOME/boot" --cpus "${DEADBEAT_CPUS:-1}" --append "slub_debug=FZPU,deadbeat_registration" \
  "$VM_HOME/guest/deadbeat.sh" "/host$VM_WORK" "/host$obol" "/host$tests"
