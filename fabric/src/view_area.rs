//! The newest view of a region's owner, under a sequence lock, and beside it the latest CLEAR that a
//! coordinator knows. Both are facts that stay true, whatever becomes of the owner.

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::layout::ViewHead;
use crate::memory;
use crate::page::TORN_READS_MAX;
use crate::types::ViewId;
use core::mem::offset_of;

const SEQUENCE: usize = offset_of!(ViewHead, sequence) / 8;
const ID: usize = offset_of!(ViewHead, id_plus_one) / 8;
const LEN: usize = offset_of!(ViewHead, len) / 8;
const CLEARED: usize = offset_of!(ViewHead, cleared) / 8;
/// Words before the bytes of the view.
const HEAD: usize = size_of::<ViewHead>() / 8;

/// Publishes a view. Only the owner may call this. `false` if it does not fit.
pub(crate) fn publish(area: &[AtomicU64], id: ViewId, bytes: &[u8]) -> bool {
    let Some((head, body)) = area.split_at_checked(HEAD) else { return false };
    if bytes.len() > body.len() * 8 {
        return false;
    }
    let sequence = head[SEQUENCE].load(Ordering::Relaxed) | 1;
    head[SEQUENCE].store(sequence, Ordering::Relaxed);
    fence(Ordering::Release);
    head[ID].store(id.0.wrapping_add(1), Ordering::Relaxed);
    head[LEN].store(bytes.len() as u64, Ordering::Relaxed);
    memory::copy_in(body, bytes);
    head[SEQUENCE].store(sequence.wrapping_add(1), Ordering::Release);
    true
}

/// Publishes a CLEAR, unless an earlier life of the owner knew a later one. Only the owner may call
/// this.
pub(crate) fn publish_cleared(area: &[AtomicU64], base: ViewId) {
    if let Some(word) = area.get(CLEARED) {
        word.fetch_max(base.0, Ordering::Release);
    }
}

/// The latest CLEAR; [`ViewId::GENESIS`] if the owner knows none.
#[inline]
pub(crate) fn cleared(area: &[AtomicU64]) -> ViewId {
    area.get(CLEARED).map_or(ViewId::GENESIS, |word| ViewId(word.load(Ordering::Acquire)))
}

/// The id of the view, without reading it; `None` if there is none yet or it is being written.
#[inline]
pub(crate) fn id(area: &[AtomicU64]) -> Option<ViewId> {
    let head = area.get(..HEAD)?;
    let before = head[SEQUENCE].load(Ordering::Acquire);
    let id = head[ID].load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    let whole = before & 1 == 0 && head[SEQUENCE].load(Ordering::Relaxed) == before;
    id.checked_sub(1).map(ViewId).filter(|_| whole)
}

/// Reads the view into a reusable buffer; adds the number of repeated reads to `torn`. `None` if
/// there is none yet, or its owner stopped in the middle of a publication.
pub(crate) fn load(area: &[AtomicU64], bytes: &mut Vec<u8>, torn: &mut u64) -> Option<ViewId> {
    let (head, body) = area.split_at_checked(HEAD)?;
    for _ in 0..TORN_READS_MAX {
        let before = head[SEQUENCE].load(Ordering::Acquire);
        let id = head[ID].load(Ordering::Relaxed);
        let len = usize::try_from(head[LEN].load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        if before & 1 == 0 && len <= body.len() * 8 {
            bytes.resize(len, 0);
            memory::copy_out(body, bytes);
            fence(Ordering::Acquire);
            if head[SEQUENCE].load(Ordering::Relaxed) == before {
                return id.checked_sub(1).map(ViewId);
            }
        }
        *torn += 1;
        core::hint::spin_loop();
    }
    None
}
