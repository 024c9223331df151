# A recovery after a disaster, by the runbook of docs/deploy.md: a cluster of three hosts; two lose
# their coordinators for good. Needs the program obol.
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

obol=$(binary obol)
packages libibverbs1 librdmacm1 ibverbs-providers iproute2
"$VM_HOME/boot" --memory 1G "$VM_HOME/guest/recover.sh" "$obol"
