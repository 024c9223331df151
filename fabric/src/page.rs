//! The lease page, which `active` reads on this host or by a one-sided READ.
//!
//! The holder writes it under a sequence lock. The holder never writes the fence word beside it:
//! coordinators raise it by CAS and it is never lowered. A page is active on view `M` iff it holds
//! `M`, `start <= now < end`, and `fence <= M`, all read within the call (uKharon, Algorithm 2, and
//! fencing).

#![warn(missing_docs, reason = "others write programs and backends against this")]

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::types::{Instant, Nanos, ViewId};

/// A lease as its holder knows it. The default stands for none: it ends before it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Page {
    /// The leased view.
    pub view: ViewId,
    /// The first view of its run of compatible views.
    pub base: ViewId,
    /// The first moment at which it may be used.
    pub start: Instant,
    /// The first moment at which it may not be used.
    pub end: Instant,
    /// When the latest READs were posted by which a majority of acceptors confirmed `view` as the
    /// newest.
    pub confirmed: Instant,
    /// When the latest READs were posted by which a majority of acceptors confirmed `view`, or a
    /// view that it follows without a gap, as the newest: no later view had been decided. Zero if
    /// there are none, or if an earlier release wrote the page.
    pub verified: Instant,
    /// How long the lease lasts from `verified` on, on a clock without drift. A lease cache may have
    /// renewed it since.
    pub lease: Nanos,
    /// The coordinators that recoveries up to `view` have given up, a bit for each.
    pub retired: u64,
}

impl Page {
    /// Whether the lease, fenced at `fence`, makes `view` active at `now`.
    #[must_use]
    pub const fn is_active(&self, view: ViewId, fence: ViewId, now: Instant) -> bool {
        self.view.0 == view.0 && self.start.0 <= now.0 && now.0 < self.end.0 && fence.0 <= view.0
    }

    /// Whether `view` was active at some moment from `since` on, even if its lease has expired: a
    /// majority polled at `since` or later knew no later view, and every older lease had ended by
    /// then. (uKharon, Algorithm 2, lines 10 to 12.)
    pub const fn is_confirmed(&self, view: ViewId, fence: ViewId, since: Instant) -> bool {
        let asked = self.view.0 == view.0 && since.0 <= self.confirmed.0;
        asked && self.start.0 <= self.confirmed.0 && fence.0 <= view.0
    }
}

/// Words of a page in a region: sequence, view, base, start, end, changes, confirmed and wanted,
/// then the fence's cache line with verified, lease and retired.
pub const WORDS: usize = 16;
/// The word that counts publications; odd during one.
const SEQUENCE: usize = 0;
pub(crate) const VIEW: usize = 1;
const BASE: usize = 2;
const START: usize = 3;
pub(crate) const END: usize = 4;
/// The fence word, on a cache line that the holder writes with each renewal only.
pub const FENCE: usize = 8;
/// The word whose low half attached programs wait on; it changes with every view and every start.
pub const CHANGED: usize = 5;
const CONFIRMED: usize = 6;
/// The latest requested time of a confirmation: see [`want`].
const WANTED: usize = 7;
const VERIFIED: usize = 9;
const LEASE: usize = 10;
const RETIRED: usize = 11;

/// The limit of torn reads before a reader gives up: the writer died, or is stopped, in the middle
/// of a publication.
pub(crate) const TORN_READS_MAX: u32 = if cfg!(loom) { 1 } else { 64 };

/// Publishes a page. Only the holder may call this, from one thread.
pub fn publish(words: &[AtomicU64; WORDS], page: &Page) {
    let sequence = words[SEQUENCE].load(Ordering::Relaxed) | 1;
    words[SEQUENCE].store(sequence, Ordering::Relaxed);
    fence(Ordering::Release);
    words[VIEW].store(page.view.0, Ordering::Relaxed);
    words[BASE].store(page.base.0, Ordering::Relaxed);
    words[START].store(page.start.0, Ordering::Relaxed);
    words[END].store(page.end.0, Ordering::Relaxed);
    words[CONFIRMED].store(page.confirmed.0, Ordering::Relaxed);
    words[VERIFIED].store(page.verified.0, Ordering::Relaxed);
    words[LEASE].store(page.lease.0, Ordering::Relaxed);
    words[RETIRED].store(page.retired, Ordering::Relaxed);
    words[SEQUENCE].store(sequence.wrapping_add(1), Ordering::Release);
}

/// Reads the whole page; `None` if its holder stopped in the middle of a publication.
#[inline]
pub fn load(words: &[AtomicU64; WORDS]) -> Option<Page> {
    load_counted(words, &mut 0)
}

/// As [`load`]; adds the number of repeated reads to `torn`.
#[inline]
#[must_use]
pub fn load_counted(words: &[AtomicU64; WORDS], torn: &mut u64) -> Option<Page> {
    for _ in 0..TORN_READS_MAX {
        let before = words[SEQUENCE].load(Ordering::Acquire);
        let page = Page {
            view: ViewId(words[VIEW].load(Ordering::Relaxed)),
            base: ViewId(words[BASE].load(Ordering::Relaxed)),
            start: Instant(words[START].load(Ordering::Relaxed)),
            end: Instant(words[END].load(Ordering::Relaxed)),
            confirmed: Instant(words[CONFIRMED].load(Ordering::Relaxed)),
            verified: Instant(words[VERIFIED].load(Ordering::Relaxed)),
            lease: Nanos(words[LEASE].load(Ordering::Relaxed)),
            retired: words[RETIRED].load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        if before & 1 == 0 && words[SEQUENCE].load(Ordering::Relaxed) == before {
            return Some(page);
        }
        *torn += 1;
        core::hint::spin_loop();
    }
    None
}

/// The current fence.
#[inline]
#[must_use]
pub fn fenced(words: &[AtomicU64; WORDS]) -> ViewId {
    ViewId(words[FENCE].load(Ordering::Acquire))
}

/// Whether `view` is active: one seqlock read, one fence read, one clock read, all ordered after
/// the caller's earlier reads, and after the WRITEs and CASs whose completions it got.
///
/// uKharon, Algorithm 2, line 9, with the fence. `now` must read the clock when it is called.
#[inline]
#[must_use]
pub fn active(words: &[AtomicU64; WORDS], view: ViewId, now: impl FnOnce() -> Instant) -> bool {
    // No fence is needed for the caller's earlier reads: `load` reads the sequence again after its
    // fence, and fence word and clock are read after that.
    match load(words) {
        Some(page) if page.view == view => page.is_active(view, fenced(words), now()),
        _ => false,
    }
}

/// As [`active`], also ordered after the caller's writes: for programs that write into shared
/// memory themselves. Without the full fence a core may read the page while those writes wait in
/// its store buffer, invisible to the process that raised the fence in between.
#[inline]
#[must_use]
pub fn still_active(words: &[AtomicU64; WORDS], view: ViewId, now: impl FnOnce() -> Instant) -> bool {
    fence(Ordering::SeqCst);
    active(words, view, now)
}

/// Whether `view` was active at some moment from `since` on, according to the page. `since` must
/// have been read from the clock when the requesting call began.
#[must_use]
pub fn confirmed(words: &[AtomicU64; WORDS], view: ViewId, since: Instant) -> bool {
    load(words).is_some_and(|page| page.is_confirmed(view, fenced(words), since))
}

/// Requests that the holder polls the acceptors, so that [`confirmed`] can answer for `since`. Any
/// reader of the page may call it.
pub fn want(words: &[AtomicU64; WORDS], since: Instant) {
    words[WANTED].fetch_max(since.0, Ordering::SeqCst);
    // A later check of the page sees whatever the holder published before it could see the request.
    fence(Ordering::SeqCst);
}

/// The latest requested time.
pub fn wanted(words: &[AtomicU64; WORDS]) -> Instant {
    Instant(words[WANTED].load(Ordering::Acquire))
}

/// The word that changes when attached programs should check again, as a 32-bit futex.
#[cfg(not(loom))]
pub fn changed(words: &[AtomicU64; WORDS]) -> &core::sync::atomic::AtomicU32 {
    crate::memory::low_half(&words[CHANGED])
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words() -> [AtomicU64; WORDS] {
        core::array::from_fn(|_| AtomicU64::new(0))
    }

    const PAGE: Page = Page {
        view: ViewId(7),
        base: ViewId(5),
        start: Instant(100),
        end: Instant(200),
        confirmed: Instant(150),
        verified: Instant(150),
        lease: Nanos(50),
        retired: 2,
    };

    #[test]
    fn a_view_is_confirmed_for_requests_before_the_reads_and_after_older_leases() {
        let words = words();
        publish(&words, &PAGE);
        let since = |view, t| confirmed(&words, ViewId(view), Instant(t));
        assert_eq!([since(7, 149), since(7, 150), since(7, 151), since(6, 149)], [true, true, false, false]);
        publish(&words, &Page { start: Instant(151), ..PAGE });
        assert!(!confirmed(&words, ViewId(7), Instant(149)), "an older lease may still have run then");
        publish(&words, &PAGE);
        words[FENCE].store(8, Ordering::Release);
        assert!(!confirmed(&words, ViewId(7), Instant(149)));
    }

    #[test]
    fn the_latest_request_counts() {
        let words = words();
        want(&words, Instant(9));
        want(&words, Instant(7));
        assert_eq!(wanted(&words), Instant(9));
    }

    #[test]
    fn a_page_is_active_from_its_start_until_its_end() {
        let words = words();
        publish(&words, &PAGE);
        let at = |t| active(&words, ViewId(7), || Instant(t));
        assert_eq!([at(99), at(100), at(199), at(200)], [false, true, true, false]);
        assert!(!active(&words, ViewId(6), || Instant(150)));
    }

    #[test]
    fn a_fence_above_the_view_ends_it_at_once() {
        let words = words();
        publish(&words, &PAGE);
        words[FENCE].store(7, Ordering::Release);
        assert!(active(&words, ViewId(7), || Instant(150)));
        words[FENCE].store(8, Ordering::Release);
        assert!(!active(&words, ViewId(7), || Instant(150)));
        publish(&words, &PAGE);
        assert_eq!(fenced(&words), ViewId(8), "a publication leaves the fence alone");
    }

    #[test]
    fn a_holder_that_died_while_it_published_is_not_active_and_blocks_nobody() {
        let words = words();
        publish(&words, &PAGE);
        words[SEQUENCE].fetch_add(1, Ordering::Relaxed);
        assert!(!active(&words, ViewId(7), || Instant(150)));
        publish(&words, &PAGE);
        assert!(active(&words, ViewId(7), || Instant(150)), "its successor repairs the page");
    }

    #[test]
    fn an_empty_page_is_never_active() {
        assert!(!active(&words(), ViewId(0), || Instant(0)));
    }
}
