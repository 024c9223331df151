# The scripts of tests/vm and the kernel module are clean to shellcheck, to checkpatch (if $CHECKPATCH names it: Debian's
# kernel packages do not have it), and to the compiler with W=1 on every kernel line.
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

packages shellcheck gcc make
cd "$VM_HOME"
shellcheck -x run boot kernel extract-vmlinux lib.sh guest/* stages/*
sources=("$VM_HOME"/../../kernel/*.[ch])
if [ -n "${CHECKPATCH:-}" ]; then
  "$CHECKPATCH" --no-tree --strict --terse --quiet -f "${sources[@]}"
else
  say "checkpatch is left out: \$CHECKPATCH does not name it"
fi
for line in 6.1 6.12; do
  kernel=$("$VM_HOME/kernel" "$line")
  mkdir "$VM_WORK/$line"
  cp "$VM_HOME"/../../kernel/{Kbuild,Makefile,*.c,*.h} "$VM_WORK/$line"
  make -s -C "$VM_WORK/$line" KDIR="$kernel/headers" W=1 2>&1 | tee "$VM_WORK/log"
  if grep -q warning: "$VM_WORK/log"; then
    die "the module does not compile cleanly for $line"
  fi
done
