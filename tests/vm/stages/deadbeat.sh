# The kernel module reports every death, once, by UDP and by verbs, and comes and goes under load.
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

packages gcc make libc6-dev libibverbs-dev ibverbs-providers iproute2
kernel=$("$VM_HOME/kernel" "$OBOL_VM_KERNEL")
cp "$VM_HOME"/../../kernel/{Kbuild,Makefile,*.c,*.h} "$VM_WORK"
make -s -C "$VM_WORK" KDIR="$kernel/headers" W=1
gcc -O2 -Wall -Wextra -Werror -pthread -I"$VM_WORK" -o "$VM_WORK/deaths" "$VM_HOME"/programs/deaths/*.c -libverbs
say "module and test program are built"

# Debian ships no kernel with KASAN, lockdep or kmemleak. Poisoned slabs find a use after free, and a cache that is not
# empty when the module goes is a complaint of the kernel.
"$VM_HOME/boot" --append "slub_debug=FZPU,deadbeat_registration" \
  "$VM_HOME/guest/deadbeat.sh" "/host$VM_WORK"
