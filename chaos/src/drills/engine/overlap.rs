//! Checks whether two incompatible views could be used at the same time. The evidence is what the
//! processes wrote: start and end of each lease page, its fence, and flight recorder stamps. The
//! time of reading plays no part.

use obol_fabric::{Incarnation, Instant, Nanos, Page, ViewId};
use obol_membership::Kind;
use obol_observe::timeline::History;
use obol_observe::{Process, Snapshot};

/// A lease page under which a process could act in a view of an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// The region of the page, which several processes may read.
    pub region: u32,
    /// As last published by its holder.
    pub page: Page,
    /// The fence beside it, read after the failover.
    pub fence: ViewId,
    /// Whether the process is a member of the view of that fence, so that it could go on in that one
    /// ahead of the holder.
    pub goes_on: bool,
    /// When the process was proved dead, if so.
    pub ended: Option<Instant>,
}

/// A run of compatible views that came into use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    /// Its first view.
    pub base: ViewId,
    /// When any process could first use it or a later one.
    pub at: Instant,
    /// When its leader knew that no older lease is left, and how many holders it had fenced by
    /// then.
    pub fenced: Option<(Instant, u64)>,
}

/// The longest time for which any of these pages could be used after an incompatible view was in
/// use; zero if the lease rule held. `seen` is when the pages were read.
///
/// Only the leader that raised a fence stamps it, so a fence counts from that stamp on, when it had
/// been raised at the latest. A fence without a leader's stamp does not count.
pub(super) fn overlap(begun: &[Begun], held: &[Held], seen: Instant) -> Nanos {
    begun.iter().map(|run| beside(run, held, seen)).fold(Nanos::ZERO, Nanos::max)
}

/// Until when a page could be used: to its end or, with confirmation, to the moment that the
/// acceptors confirmed.
fn used_until(page: &Page) -> Instant {
    page.end.max(page.confirmed)
}

fn beside(run: &Begun, held: &[Held], seen: Instant) -> Nanos {
    let older = held.iter().filter(|h| h.page.base < run.base && h.page.start < h.page.end);
    // A lease that an earlier run's fence ended is checked against that run, unless it went over to
    // that run's first view.
    let ends = |h: &Held| h.fence > h.page.view && !(h.goes_on && h.fence == h.page.view.next());
    let older = older.filter(|h| !ends(h) || h.fence >= run.base);
    // Neither over nor proved dead when the new run was in use: only a fence can have ended these.
    let open: Vec<&Held> = older
        .filter(|h| used_until(&h.page) > run.at && h.ended.is_none_or(|ended| ended > run.at))
        .collect();
    let mut regions: Vec<u32> = open.iter().filter(|h| h.fence >= run.base).map(|h| h.region).collect();
    regions.sort_unstable();
    regions.dedup();
    // A leader that fenced fewer holders than assumed did not fence one of them.
    let vouched = run.fenced.filter(|(_, many)| *many >= regions.len() as u64).map(|(at, _)| at);
    let until = |h: &Held| {
        let end = used_until(&h.page).min(h.ended.unwrap_or(Instant::NEVER));
        match vouched {
            Some(at) if h.fence >= run.base => end.min(at),
            _ if h.fence >= run.base => end.min(seen),
            _ => end,
        }
    };
    open.into_iter().map(|h| until(h).since(run.at)).fold(Nanos::ZERO, Nanos::max)
}

/// Killed processes, with the times of the injections, from which on they ran no code.
pub(super) type Killed = Vec<(Process, Instant)>;

/// The overlap in a cluster. `before` is the snapshot before the faults, `history` has all events
/// since, and `snapshot` was read from `from` on. A killed process could not act from the injection
/// on, whenever its death was noticed. Times of several hosts are compared within the errors of
/// their clocks.
pub(super) fn overlap_seen(
    history: &History,
    killed: &Killed,
    before: &Snapshot,
    snapshot: &Snapshot,
    from: Instant,
) -> Nanos {
    let old = before.view.as_ref().map(|view| view.base).unwrap_or_default();
    let acting = || snapshot.processes.iter().filter(|p| p.kind.acts());
    let pages = || acting().filter_map(|p| p.stamped_lease().map(|(page, fence)| (p, page, fence)));
    let mut bases: Vec<ViewId> = history.fenced().map(|(base, _)| base).collect();
    bases.extend(pages().map(|(_, page, _)| page.base));
    bases.retain(|base| *base > old);
    bases.sort_unstable();
    bases.dedup();
    let begun = bases.into_iter().filter_map(|base| {
        let fenced = history.fenced().find(|(of, _)| *of == base).map(|(_, fenced)| fenced);
        // A process that starts by a CLEAR dates the page from the event loop's turn, which may
        // have begun before the CLEAR was sent; the recorder's stamp is exact.
        let exact = |start: &Instant| fenced.is_none_or(|(done, _)| *start >= done);
        let starts = pages().filter(|(_, page, _)| page.base >= base && page.start < page.end);
        let starts = starts.map(|(_, page, _)| page.start).filter(exact);
        let at = starts.chain(history.first_active(base)).min()?;
        Some(Begun { base, at, fenced })
    });
    // A page that was read before the run began proves nothing about it.
    let begun: Vec<Begun> = begun.filter(|run| run.at <= from).collect();
    let lived = |p: &Process| before.processes.iter().any(|b| b.alive && b.is(p));
    let held = pages().map(|(p, page, fence)| {
        let ended = match p.alive {
            true => None,
            false if lived(p) => {
                let injections = killed.iter().filter(|(k, _)| k.is(p)).map(|(_, at)| *at);
                injections.chain(history.died(p.incarnation)).min()
            }
            false => Some(Instant::ZERO),
        };
        let was_member = p.incarnation != Incarnation::NONE
            && before.processes.iter().any(|b| b.alive && b.incarnation == p.incarnation);
        let mut departed = snapshot.view.iter().flat_map(|view| &view.departed);
        let is_out = departed.any(|d| d.incarnation == p.incarnation && d.at <= fence);
        let goes_on = p.kind == Kind::App && was_member && !is_out;
        Held { region: p.region, page, fence, goes_on, ended }
    });
    let found = overlap(&begun, &held.collect::<Vec<_>>(), snapshot.at);
    certain(found, acting().map(Process::clock_error).fold(history.clock_error(), Nanos::max))
}

/// The part of an overlap that the errors of two clocks cannot explain.
fn certain(found: Nanos, error: Nanos) -> Nanos {
    Nanos(found.0.saturating_sub(error.saturating_mul(2).0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The new run came into use at 100; its leader was done with fencing at 95, with one fence
    /// raised.
    const RUN: Begun = Begun { base: ViewId(8), at: Instant(100), fenced: Some((Instant(95), 1)) };

    fn held(end: u64) -> Held {
        let page = Page {
            view: ViewId(7),
            base: ViewId(5),
            start: Instant(10),
            end: Instant(end),
            ..Page::default()
        };
        Held { region: 3, page, fence: ViewId(5), goes_on: false, ended: None }
    }

    fn found(run: Begun, held: &[Held]) -> u64 {
        overlap(&[run], held, Instant(5_000)).0
    }

    #[test]
    fn an_overlap_is_one_beyond_the_errors_of_both_clocks() {
        let cases = [(9, 0, 9), (9, 4, 1), (9, 5, 0), (9, u64::MAX, 0)];
        for (found, error, rest) in cases {
            assert_eq!(certain(Nanos(found), Nanos(error)), Nanos(rest), "{found} with {error}");
        }
    }

    #[test]
    fn an_ended_lease_has_no_overlap() {
        assert_eq!(found(RUN, &[held(100)]), 0);
        assert_eq!(found(RUN, &[]), 0);
        let never = Held { page: Page::default(), ..held(0) };
        assert_eq!(found(RUN, &[never]), 0);
    }

    /// However late the pages are read: at 5,000 this lease is long over.
    #[test]
    fn an_overlapping_lease_is_found_although_it_is_over_when_read() {
        assert_eq!(found(RUN, &[held(101)]), 1);
        assert_eq!(found(RUN, &[held(90), held(1_900)]), 1_800);
    }

    #[test]
    fn a_confirmed_view_was_used_until_its_confirmation() {
        let page = Page { confirmed: Instant(130), ..held(90).page };
        assert_eq!(found(RUN, &[Held { page, ..held(90) }]), 30);
    }

    #[test]
    fn a_fence_or_a_death_before_the_new_view_ends_a_lease() {
        let fenced = Held { fence: ViewId(8), ..held(1_900) };
        assert_eq!(found(RUN, &[fenced]), 0);
        let dead = Held { ended: Some(Instant(99)), ..held(1_900) };
        assert_eq!(found(RUN, &[dead]), 0);
    }

    #[test]
    fn a_late_fence_or_death_leaves_the_overlap_before_it() {
        let fenced = Held { fence: ViewId(8), ..held(1_900) };
        let late = Begun { fenced: Some((Instant(160), 1)), ..RUN };
        assert_eq!(found(late, &[fenced]), 60);
        let dead = Held { ended: Some(Instant(130)), ..held(1_900) };
        assert_eq!(found(RUN, &[dead]), 30);
    }

    #[test]
    fn a_fence_without_a_leaders_stamp_does_not_count() {
        let fenced = Held { fence: ViewId(8), ..held(1_900) };
        let silent = Begun { fenced: None, ..RUN };
        assert_eq!(found(silent, &[fenced]), 1_800);
        let other = Held { region: 4, ..fenced };
        assert_eq!(found(RUN, &[fenced, other]), 1_800, "two rely on the one that was raised");
        assert_eq!(found(RUN, &[fenced, fenced]), 0, "two processes read one page");
        let lower = Held { fence: ViewId(7), ..fenced };
        assert_eq!(found(RUN, &[lower]), 1_800, "the view's own base does not end it");
        let page = Page { view: ViewId(5), ..fenced.page };
        assert_eq!(found(RUN, &[Held { page, ..lower }]), 0, "an earlier run's fence had ended it");
        let page = Page { view: ViewId(6), ..page };
        let member = Held { page, goes_on: true, ..lower };
        assert_eq!(found(RUN, &[member]), 1_800, "a program went on in that run");
        assert_eq!(found(RUN, &[Held { goes_on: false, ..member }]), 0, "that run excludes it");
        let page = Page { view: ViewId(5), ..page };
        assert_eq!(found(RUN, &[Held { page, ..member }]), 0, "over a gap no lease goes on");
    }

    #[test]
    fn pages_of_the_new_run_do_not_overlap() {
        let page = Page {
            view: ViewId(9),
            base: ViewId(8),
            start: Instant(100),
            end: Instant(9_000),
            ..Page::default()
        };
        assert_eq!(found(RUN, &[Held { page, ..held(0) }]), 0);
    }
}
