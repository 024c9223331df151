# The scripts of tests/vm and the kernel module are clean to shellcheck, to checkpatch (if $CHECKPATCH names it: Debian's
# kernel packages do not have it), and to the compiler with W=1 on every kernel line. The committed eBPF object is what its
# source gives; the compiler that made it is installed for that.
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

packages shellcheck clang-14
cd "$VM_HOME"
# `grep -q` ends at its first match: the command before it is then ended by the closed pipe, and pipefail takes that for a failure.
if grep -rnE '[|] *[ef]?grep (-[a-zA-Z]+ )*-[a-zA-Z]*q' run boot containers kernel lib.sh guest/* stages/* ../../packaging/* ../../.ci/*; then
  die "a pipe ends in grep -q: use grep >/dev/null"
fi
shellcheck -x run boot containers kernel extract-vmlinux lib.sh guest/* stages/*
sources=("$VM_HOME"/../../kernel/*.[ch])
if [ -n "${CHECKPATCH:-}" ]; then
  "$CHECKPATCH" --no-tree --strict --terse --quiet -f "${sources[@]}"
else
  skipped checkpatch "\$CHECKPATCH does not name it"
fi
for line in 6.1 6.12; do
  module=$(module "$line")
  if grep warning: "$module/log" >&2; then
    die "the module does not compile cleanly for $line"
  fi
done
"$VM_HOME/../../kernel/bpf/build" --check
say "the eBPF object is what its source gives"
