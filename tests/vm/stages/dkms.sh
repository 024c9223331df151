# What docs/kernel.md says of DKMS: the folder kernel/ is a source tree that it builds. That the module compiles for every
# kernel line is lint's.
# shellcheck shell=bash source-path=SCRIPTDIR/..
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_HOME/lib.sh"

packages dkms gcc make kmod
conf() {
  sed -n "s/^$1=\"\(.*\)\"$/\1/p" "$VM_HOME/../../kernel/dkms.conf"
}
name_version=$(conf PACKAGE_NAME)/$(conf PACKAGE_VERSION)
mkdir "$VM_WORK/tree"
cp -r "$VM_HOME/../../kernel" "$VM_WORK/${name_version/\//-}"
kernel=$("$VM_HOME/kernel" "$OBOL_VM_KERNEL")
release=$(cat "$kernel/release")
# A tree of its own: what the host's DKMS knows is left alone.
dkms build --dkmstree "$VM_WORK/tree" --sourcetree "$VM_WORK" --kernelsourcedir "$kernel/headers" \
  -k "$release" "$name_version" >"$VM_WORK/log" 2>&1 || {
  cat "$VM_WORK/log" "$VM_WORK/tree/${name_version%/*}"/*/build/make.log >&2 || true
  die "dkms cannot build the module for $release"
}
module=$(find "$VM_WORK/tree/$name_version/$release" -name 'deadbeat.ko*')
built=$(modinfo -F vermagic "$module")
[ "${built%% *}" = "$release" ] || die "$module was built for $built, not for $release"
say "dkms has built $name_version for $release"
