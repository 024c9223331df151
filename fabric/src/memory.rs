//! Regions as atomic words: copying bytes without data races. Copies may be torn, as with RDMA, and
//! have to be checked by the reader.

#![warn(missing_docs, reason = "others write programs and backends against this")]

use crate::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use core::sync::atomic::AtomicU32;

/// A relaxed load.
pub fn relaxed(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Both halves of a word, low first, as futexes.
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "a word becomes two")]
fn halves(word: &AtomicU64) -> &[AtomicU32; 2] {
    const { assert!(cfg!(target_endian = "little")) };
    // SAFETY: an `AtomicU64` is eight bytes, aligned to eight, as are two `AtomicU32`; on a
    // little-endian machine the first is the low half. The reference lives as long as the word.
    // Words that are documented as futexes are accessed by halves only, except for snapshots by
    // observers.
    unsafe { &*core::ptr::from_ref(word).cast::<[AtomicU32; 2]>() }
}

/// The low half of a word, as a futex.
#[cfg(not(loom))]
pub fn low_half(word: &AtomicU64) -> &AtomicU32 {
    &halves(word)[0]
}

/// The high half of a word whose low half is a futex.
#[cfg(not(loom))]
pub(crate) fn high_half(word: &AtomicU64) -> &AtomicU32 {
    &halves(word)[1]
}

/// The words that `[offset, offset + len)` touches, or `None` if it is misaligned or out of bounds.
pub fn span(words: &[AtomicU64], offset: u32, len: usize) -> Option<&[AtomicU64]> {
    let offset = offset as usize;
    if !offset.is_multiple_of(8) {
        return None;
    }
    words.get(offset / 8..offset.checked_add(len)?.checked_add(7)? / 8)
}

/// Copies bytes out, word by word. `from` must hold at least `out.len()` bytes.
pub fn copy_out(from: &[AtomicU64], out: &mut [u8]) {
    let (chunks, rest) = out.as_chunks_mut::<8>();
    for (chunk, word) in chunks.iter_mut().zip(from) {
        *chunk = word.load(Ordering::Relaxed).to_le_bytes();
    }
    if let Some(word) = from.get(chunks.len()) {
        rest.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[..rest.len()]);
    }
}

/// Copies bytes in, word by word; the last word is padded with zeros.
pub fn copy_in(to: &[AtomicU64], bytes: &[u8]) {
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (chunk, word) in chunks.iter().zip(to) {
        word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
    }
    if let Some(word) = to.get(chunks.len()).filter(|_| !rest.is_empty()) {
        let mut raw = [0; 8];
        raw[..rest.len()].copy_from_slice(rest);
        word.store(u64::from_le_bytes(raw), Ordering::Relaxed);
    }
}

/// WRITEs bytes into shared memory, ordered after all earlier writes.
pub(crate) fn write(words: &[AtomicU64], bytes: &[u8]) {
    // Earlier writes become visible first, and these bytes before anything published later.
    fence(Ordering::Release);
    copy_in(words, bytes);
    fence(Ordering::Release);
}

/// CASs a shared word; returns the value found.
#[inline]
pub(crate) fn swap(word: &AtomicU64, expected: u64, desired: u64) -> u64 {
    match word.compare_exchange(expected, desired, Ordering::AcqRel, Ordering::Acquire) {
        Ok(found) | Err(found) => found,
    }
}

/// Whether this process has stored into shared memory since it last made all stores visible. Stores
/// may wait in a core's store buffer while its later loads are executed. A complete operation must
/// not: its poster then checks its lease, or sends a message that depends on it.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    unsettled: bool,
}

impl Stores {
    /// Records a WRITE or a CAS.
    #[inline]
    pub(crate) fn add(&mut self) {
        self.unsettled = true;
    }

    /// Returns when all stores are visible to all: to be called before a completion is delivered,
    /// and before a READ that was posted later. Costs as much as the slowest cache line transfer,
    /// so it is called once for all completions of a batch.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if core::mem::take(&mut self.unsettled) {
            fence(Ordering::SeqCst);
        }
    }
}

/// Zeroed words. Their pages are allocated on first use: most of the regions of thousands of simulated
/// nodes is never used.
#[cfg(not(loom))]
#[expect(
    unsafe_code,
    reason = "a boxed slice of words becomes one of atomic words without touching its pages"
)]
pub fn zeroed(bytes: usize) -> Box<[AtomicU64]> {
    let raw = Box::into_raw(vec![0u64; bytes.div_ceil(8)].into_boxed_slice());
    // SAFETY: an `AtomicU64` has the size, alignment and bit validity of a `u64` on every 64-bit
    // target, and the box that `raw` came from is not used any more.
    unsafe { Box::from_raw(raw as *mut [AtomicU64]) }
}

/// Zeroed words.
#[cfg(loom)]
pub fn zeroed(bytes: usize) -> Box<[AtomicU64]> {
    (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_the_way_in_and_out() {
        let words = zeroed(64);
        let text = b"a text that is not a multiple of eight";
        copy_in(span(&words, 8, text.len()).expect("in bounds"), text);
        let mut out = vec![0; text.len()];
        copy_out(span(&words, 8, text.len()).expect("in bounds"), &mut out);
        assert_eq!(out, text);
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let words = zeroed(64);
        assert!(span(&words, 4, 8).is_none());
        assert!(span(&words, 64, 1).is_none());
        assert!(span(&words, 0, 65).is_none());
        assert!(span(&words, u32::MAX - 7, usize::MAX).is_none());
        assert!(span(&words, 56, 8).is_some());
    }
}
