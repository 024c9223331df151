//! Calls of the kernel that nix does not have, and that belong to no other module; limits of a process.
#![allow(unsafe_code)]

use nix::sys::resource::{Resource, getrlimit};
use std::io;

/// What this process may use of a resource; `None` if that has no limit.
pub fn soft_limit(resource: Resource) -> Option<u64> {
    getrlimit(resource).ok().map(|(soft, _)| soft).filter(|limit| *limit != libc::RLIM_INFINITY)
}

/// Commands of linux/membarrier.h; libc does not have them yet.
const QUERY: libc::c_int = 0;
const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

/// Has [`barrier`]s of other processes concern this one, too.
pub(crate) fn take_part_in_barriers() -> io::Result<()> {
    membarrier(REGISTER_GLOBAL_EXPEDITED).map(drop)
}

/// Whether this kernel has [`barrier`].
pub(crate) fn has_barriers() -> bool {
    membarrier(QUERY).is_ok_and(|commands| commands & libc::c_long::from(GLOBAL_EXPEDITED) != 0)
}

/// Has every running thread of the processes that take part execute a full fence.
pub(crate) fn barrier() -> io::Result<()> {
    membarrier(GLOBAL_EXPEDITED).map(drop)
}

fn membarrier(command: libc::c_int) -> io::Result<libc::c_long> {
    // SAFETY: it takes numbers alone.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// An unpredictable number; `None` from a kernel without random numbers.
pub(crate) fn random() -> Option<u64> {
    let mut raw = [0u8; 8];
    // SAFETY: `raw` is valid for writes of its length.
    let bytes = unsafe { libc::getrandom(raw.as_mut_ptr().cast(), raw.len(), 0) };
    (bytes == 8).then(|| u64::from_le_bytes(raw))
}
