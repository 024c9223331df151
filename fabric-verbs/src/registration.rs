//! Memory registered with a device, and the rights of peers on it.
#![allow(unsafe_code)]

use super::context::ProtectionDomain;
use super::error::VerbsError;
use super::sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, ibv_mr,
};
use core::fmt::Debug;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use derive_more::BitOr;
use nix::sys::resource::Resource;
use obol_fabric::host::soft_limit;
use std::io;
use std::sync::Arc;

/// Memory that stays mapped at a constant address and length as long as it exists.
///
/// # Safety
///
/// [`Memory::words`] returns the same slice on every call until the value is dropped, and it is
/// mapped for writing.
pub unsafe trait Memory: Debug + Send + Sync + 'static {
    /// Its words. A device changes them at any time, word by word.
    fn words(&self) -> &[AtomicU64];
}

/// The rights of peers: of a registration, or of a queue pair. Both must allow an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, BitOr)]
pub struct Rights(u32);

impl Rights {
    /// Nothing.
    pub const NONE: Self = Self(0);
    pub const READ: Self = Self(IBV_ACCESS_REMOTE_READ);
    pub const WRITE: Self = Self(IBV_ACCESS_REMOTE_WRITE);
    pub const CAS: Self = Self(IBV_ACCESS_REMOTE_ATOMIC);
    /// Everything.
    pub const ALL: Self = Self(Self::READ.0 | Self::WRITE.0 | Self::CAS.0);

    /// Whether it includes all of `other`.
    pub const fn allows(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn flags(self) -> u32 {
        self.0
    }
}

/// Local memory in a posted operation. The device refuses accesses outside the registration of the
/// key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// Its address in this process.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u32,
    /// The registration's key.
    pub lkey: u32,
}

/// A peer's memory in a posted operation. The peer's device refuses accesses that the key does not
/// allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its address in the peer's process.
    pub address: u64,
    /// The registration's key.
    pub rkey: u32,
}

/// A registration: a range of pinned memory, with a key for the own device and one for peers.
#[derive(Debug)]
pub struct Registration {
    raw: NonNull<ibv_mr>,
    domain: Arc<ProtectionDomain>,
    memory: Arc<dyn Memory>,
    keys: (u32, u32),
}

// SAFETY: as for `Context`.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers a range, in bytes, of some memory. The own device may always read and write it.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        memory: Arc<dyn Memory>,
        range: Range<usize>,
        rights: Rights,
    ) -> Result<Self, VerbsError> {
        let (words, context) = (memory.words(), domain.context());
        let max = size_of_val(words);
        if range.start >= range.end || range.end > max {
            return Err(VerbsError::OutOfBounds {
                what: "the end of a range of memory",
                value: range.end as u64,
                max: max as u64,
            });
        }
        let at = words.as_ptr().cast::<u8>().cast_mut();
        let flags = IBV_ACCESS_LOCAL_WRITE | rights.flags();
        // SAFETY: the range lies within the words, which stay mapped as long as `memory` is held,
        // that is, until after the registration has ended. They are atomics, so the device's
        // accesses race with nothing.
        let raw = unsafe {
            (context.verbs().reg_mr)(domain.raw().as_ptr(), at.add(range.start).cast(), range.len(), flags)
        };
        let Some(raw) = NonNull::new(raw) else {
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            return Err(match locked_memory_limit() {
                Some(limit) if errno == libc::ENOMEM && range.len() as u64 > limit => {
                    VerbsError::LockedMemory { bytes: range.len(), limit }
                }
                _ => VerbsError::failed("ibv_reg_mr", context.device(), errno),
            });
        };
        // SAFETY: the library's structure lives until `ibv_dereg_mr`.
        let keys = unsafe { (raw.as_ref().lkey, raw.as_ref().rkey) };
        Ok(Self { raw, domain: Arc::clone(domain), memory, keys })
    }

    /// The whole memory that includes the range.
    pub fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    /// The key for peers.
    pub const fn rkey(&self) -> u32 {
        self.keys.1
    }

    /// The address of byte `offset` of the memory, which may be registered only in part.
    pub fn address(&self, offset: usize) -> u64 {
        (self.memory.words().as_ptr().expose_provenance() + offset) as u64
    }

    /// Bytes of the memory, as addressed by the own device.
    pub fn local(&self, offset: usize, bytes: u32) -> Local {
        Local { address: self.address(offset), bytes, lkey: self.keys.0 }
    }

    /// A location of the memory, as addressed by a peer's device.
    pub fn target(&self, offset: usize) -> Target {
        Target { address: self.address(offset), rkey: self.keys.1 }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the registration ends once; `memory` is dropped only after this.
        unsafe { (self.domain.context().verbs().dereg_mr)(self.raw.as_ptr()) };
    }
}

/// The limit of bytes that this process may lock; `None` if there is none.
pub(crate) fn locked_memory_limit() -> Option<u64> {
    soft_limit(Resource::RLIMIT_MEMLOCK)
}
