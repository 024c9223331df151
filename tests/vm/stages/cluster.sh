# A whole cluster beside the kernel module: it tells the deaths of apps and leaders, and comes and goes while they die.
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

packages gcc make
obol=$(binary obol)
kernel=$("$VM_HOME/kernel" "$OBOL_VM_KERNEL")
cp "$VM_HOME"/../../kernel/{Kbuild,Makefile,*.c,*.h} "$VM_WORK"
make -s -C "$VM_WORK" KDIR="$kernel/headers"
"$VM_HOME/boot" --timeout 600 "$VM_HOME/guest/cluster.sh" "/host$VM_WORK/deadbeat.ko" "/host$obol"
