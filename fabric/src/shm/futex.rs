//! The kernel's futexes on words of shared memory.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The low half of a word, as the futex that the kernel knows.
#[must_use]
pub fn low_half(word: &AtomicU64) -> &AtomicU32 {
    const { assert!(cfg!(target_endian = "little")) };
    // SAFETY: an `AtomicU64` is eight bytes, aligned to eight; on a little-endian machine its first four are the low
    // half. The reference lives as long as the word. Mixed-size accesses only ever touch words that are documented as
    // futexes, whose high half stays zero.
    unsafe { &*core::ptr::from_ref(word).cast::<AtomicU32>() }
}
