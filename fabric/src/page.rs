//! The lease page: what `active` reads, on this host or by a one-sided READ.
//!
//! The holder writes it under a sequence lock. The fence word beside it is never written by the
//! holder: coordinators raise it by CAS and nobody lowers it. A page is active on view `M` iff it
//! holds `M`, `start <= now < end`, and `fence <= M`, all read afresh inside the call (uKharon,
//! Algorithm 2, and fencing).

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::types::{Instant, ViewId};

/// A lease as its holder knows it. The default holds nothing: it ends before it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Page {
    /// The leased view.
    pub view: ViewId,
    /// The first view of its run of compatible views.
    pub base: ViewId,
    /// From when on it may be used.
    pub start: Instant,
    /// From when on it may not.
    pub end: Instant,
    /// When the newest READs were posted by which a majority of acceptors showed that `view` was
    /// the newest.
    pub confirmed: Instant,
}

impl Page {
    /// Whether the lease, fenced at `fence`, makes `view` active at `now`.
    #[must_use]
    pub const fn is_active(&self, view: ViewId, fence: ViewId, now: Instant) -> bool {
        self.view.0 == view.0 && self.start.0 <= now.0 && now.0 < self.end.0 && fence.0 <= view.0
    }

    /// Whether `view` was active at some moment from `since` on, whether or not its lease still
    /// runs: a majority that was asked at `since` or later knew no other, and every older lease had
    /// ended by then. (uKharon, Algorithm 2, lines 10 to 12.)
    #[must_use]
    pub const fn is_confirmed(&self, view: ViewId, fence: ViewId, since: Instant) -> bool {
        let asked = self.view.0 == view.0 && since.0 <= self.confirmed.0;
        asked && self.start.0 <= self.confirmed.0 && fence.0 <= view.0
    }
}

/// Words of a page in a region: sequence, view, base, start, end, changes, confirmed and wanted,
/// then the fence's cache line.
pub const WORDS: usize = 16;
/// The word that counts publications, odd while one is under way.
const SEQUENCE: usize = 0;
pub(crate) const VIEW: usize = 1;
const BASE: usize = 2;
const START: usize = 3;
pub(crate) const END: usize = 4;
/// The fence word, alone on its cache line.
pub const FENCE: usize = 8;
/// The word whose low half attached programs wait on; it changes with every view and every start.
pub const CHANGED: usize = 5;
const CONFIRMED: usize = 6;
/// When a program last wanted to know whether the view was active then: see [`want`].
const WANTED: usize = 7;

/// A reader gives up after so many torn reads: the writer died, or is stopped, in the middle of a
/// publication.
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
    words[SEQUENCE].store(sequence.wrapping_add(1), Ordering::Release);
}

/// Reads the page whole, or `None` if its holder stopped in the middle of a publication.
#[inline]
#[must_use]
pub fn load(words: &[AtomicU64; WORDS]) -> Option<Page> {
    load_counted(words, &mut 0)
}

/// As [`load`]; adds to `torn` how many times it had to read again.
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

/// The fence now.
#[inline]
#[must_use]
pub fn fenced(words: &[AtomicU64; WORDS]) -> ViewId {
    ViewId(words[FENCE].load(Ordering::Acquire))
}

/// Whether `view` is active: one seqlock read, one fence read, one clock read, all of them behind
/// whatever the caller has read before, and behind the WRITEs and CASs whose completions it was
/// given.
///
/// uKharon, Algorithm 2, line 9, with the fence. `now` must read the clock when it is called.
#[inline]
#[must_use]
pub fn active(words: &[AtomicU64; WORDS], view: ViewId, now: impl FnOnce() -> Instant) -> bool {
    // What the caller read before is older than this look, though nothing stands here for it:
    // `load` looks at the sequence once more behind its fence, and fence word and clock are read
    // behind that, too.
    match load(words) {
        Some(page) if page.view == view => page.is_active(view, fenced(words), now()),
        _ => false,
    }
}

/// As [`active`], and behind all that the caller has written, too: for programs that write into
/// shared memory by themselves. Without the full fence a core may look at the page while what it
/// wrote waits in its store buffer, and whoever raised the fence in between does not find it.
#[inline]
#[must_use]
pub fn still_active(words: &[AtomicU64; WORDS], view: ViewId, now: impl FnOnce() -> Instant) -> bool {
    fence(Ordering::SeqCst);
    active(words, view, now)
}

/// Runs `work` if `view` is active before it, and gives its result if `view` still is active after
/// it. `words` finds the page for each look: after a `work` that forks, the child finds another.
/// (uKharon, section 6.1.)
#[inline]
pub fn guard<'a, T>(
    words: impl Fn() -> &'a [AtomicU64; WORDS],
    view: ViewId,
    now: impl Fn() -> Instant,
    work: impl FnOnce() -> T,
) -> Option<T> {
    // Nothing rests on this look, which only spares work that would be in vain.
    if !active(words(), view, &now) {
        return None;
    }
    let done = work();
    still_active(words(), view, now).then_some(done)
}

/// Whether `view` was active at some moment from `since` on, by what the page shows now. `since`
/// must have been read from the clock when the call began that wants to know.
#[must_use]
pub fn confirmed(words: &[AtomicU64; WORDS], view: ViewId, since: Instant) -> bool {
    load(words).is_some_and(|page| page.is_confirmed(view, fenced(words), since))
}

/// Asks the holder to ask the acceptors, so that [`confirmed`] can answer for `since`. Any program
/// that reads the page may.
pub fn want(words: &[AtomicU64; WORDS], since: Instant) {
    words[WANTED].fetch_max(since.0, Ordering::SeqCst);
    // Whoever looks at the page after this sees what was published before the holder could not see
    // the wish.
    fence(Ordering::SeqCst);
}

/// The latest time that anybody wanted an answer for.
#[must_use]
pub fn wanted(words: &[AtomicU64; WORDS]) -> Instant {
    Instant(words[WANTED].load(Ordering::Acquire))
}

/// The word that changes when attached programs should look again, as a 32-bit futex.
#[cfg(not(loom))]
#[must_use]
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
    };

    #[test]
    fn a_view_is_confirmed_for_who_asked_before_the_reads_were_posted_and_after_older_leases_had_ended() {
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
    fn the_latest_wish_counts() {
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
