# shellcheck shell=bash
# What the scripts of tests/vm share: progress, packages, the cache. Sourced, never run.

VM_HOME=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
VM_CACHE=${OBOL_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/obol-vm}
# shellcheck disable=SC2034 # used by those who source this
readonly VM_HOME VM_CACHE
PATH=$PATH:/usr/sbin:/sbin
# Seconds to wait for another user of apt or of the cache.
readonly LOCK_SECONDS=600

# Progress goes to standard error, so that a script can print its result.
say() {
  printf '[%4d s] %s\n' "$SECONDS" "$*" >&2
}

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 125
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "this needs root: $*; run as root or install sudo"
  fi
}

# skipped CHECK WHY: counts a check that cannot be made here, as obol_checks does. The summary of `run` names it.
skipped() {
  say "skipped: $1: $2"
  [ -z "${VM_SKIPS:-}" ] || printf '%s\n' "$1" >>"$VM_SKIPS"
  [ -z "${OBOL_SKIPS:-}" ] || printf '%s: %s\n' "$1" "$2" >>"$OBOL_SKIPS"
}

# Packages come from the lists of the host. Where those would remove something (a newer qemu-utils forbids the qemu of
# Debian 12), Debian's backports are tried; they are read into the cache, and the host's apt stays as it is.
apt_private() {
  local dir=$VM_CACHE/apt tool=$1
  shift
  mkdir -p "$dir/lists/partial" "$dir/archives/partial"
  if [ ! -e "$dir/sources.list" ]; then
    local suite
    for suite in "debian bookworm" "debian-security bookworm-security" "debian bookworm-backports"; do
      printf 'deb [signed-by=%s] http://deb.debian.org/%s main\n' \
        /usr/share/keyrings/debian-archive-keyring.gpg "$suite"
    done >"$dir/sources.list"
  fi
  # Stages run side by side, and apt does not wait for the lock of its lists.
  (
    flock 8
    "$tool" -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=- \
      -o Dir::State::lists="$dir/lists" -o Dir::Cache="$dir" -o APT::Sandbox::User=root "$@" 8>&-
  ) 8>"$dir/users.lock"
}

apt_private_update() {
  apt_private apt-get -qq update || die "the package lists of deb.debian.org cannot be read; is there a network?"
}

# packages NAME...: installs those that are missing.
packages() {
  local package missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep 'ok installed' >/dev/null || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  mkdir -p "$VM_CACHE"
  local installing
  exec {installing}>"$VM_CACHE/install.lock"
  flock -w "$LOCK_SECONDS" "$installing" || die "somebody else holds $VM_CACHE/install.lock"
  install_packages "${missing[@]}"
  exec {installing}>&-
}

install_packages() {
  say "installing $*"
  local apt=(-qq -y --no-remove --no-install-recommends -o "DPkg::Lock::Timeout=$LOCK_SECONDS")
  export DEBIAN_FRONTEND=noninteractive
  local log=$VM_CACHE/install.log
  if as_root apt-get "${apt[@]}" install "$@" >"$log" 2>&1; then
    return
  fi
  apt_private_update
  as_root env "VM_CACHE=$VM_CACHE" bash -c "$(declare -f apt_private); apt_private apt-get \"\$@\"" apt \
    "${apt[@]}" -t bookworm-backports install "$@" >>"$log" 2>&1 || {
    cat "$log" >&2
    die "apt cannot install $*; install them by hand"
  }
}

# module LINE: the folder where deadbeat.ko was built for a kernel line, once in a run, with what the compiler said in
# `log`. It is for reading.
module() {
  local dir=$VM_SHARED/module-$1 kernel lock
  # Another stage may be building it.
  exec {lock}>"$dir.lock"
  flock "$lock"
  if [ ! -e "$dir/complete" ]; then
    packages gcc make
    kernel=$("$VM_HOME/kernel" "$1")
    rm -rf "$dir"
    mkdir "$dir"
    cp "$VM_HOME"/../../kernel/{Kbuild,Makefile,*.c,*.h} "$dir"
    make -s -C "$dir" KDIR="$kernel/headers" W=1 >"$dir/log" 2>&1 || {
      cat "$dir/log" >&2
      die "the module cannot be built for $1"
    }
    touch "$dir/complete"
    say "the module is built for $(cat "$kernel/release")"
  fi
  exec {lock}>&-
  echo "$dir"
}

# binary NAME: the path of a program that was given to `run` as NAME=PATH.
binary() {
  local variable=VM_BINARY_$1
  [ -n "${!variable:-}" ] || die "this stage needs the program $1; give it to tests/vm/run as $1=PATH"
  echo "${!variable}"
}
