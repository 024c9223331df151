# Whole clusters of real processes over RDMA, in a guest with soft-RoCE.
# Needs the programs obol and processes (the tests with real processes).
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

obol=$(binary obol)
processes=$(binary processes)
packages gcc libc6-dev libibverbs-dev librdmacm1 ibverbs-providers iproute2
gcc -O2 -Wall -Wextra -Werror -o "$VM_WORK/decide" "$VM_HOME"/programs/decide/*.c -libverbs
"$VM_HOME/boot" --memory 1G "$VM_HOME/guest/rdma.sh" "$obol" "$processes" "$VM_WORK/decide"
