//! Whether two incompatible views could be used at the same time, judged from what the processes
//! themselves wrote: the start and end of each lease page, its fence, and the stamps of the flight
//! recorders. When they are read plays no part.

use obol_fabric::{Instant, Nanos, Page, ViewId};
use obol_observe::timeline::History;
use obol_observe::{Process, Snapshot};

/// A page that a process could act under in a view of an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The region of the page. Several processes may read one page.
    pub region: u32,
    /// As its holder published it last.
    pub page: Page,
    /// The fence beside it, as it was read after the failover.
    pub fence: ViewId,
    /// When the process was proved dead, if it was.
    pub ended: Option<Instant>,
}

/// A run of compatible views that came into use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its first view.
    pub base: ViewId,
    /// When it, or a later one, could first be used by anybody.
    pub at: Instant,
    /// When its leader knew that no older lease is left, and how many holders it had fenced by
    /// then.
    pub fenced: Option<(Instant, u64)>,
}

/// The longest time for which any of these pages could be used after an incompatible view was in
/// use. `seen` is when the pages were read. Zero if the lease rule held.
///
/// A fence is stamped by nobody but the leader that raised it, so it counts from the stamp of that
/// leader: at the latest then it was up. A fence that no leader vouches for counts for nothing.
#[must_use]
pub fn overlap(begun: &[Begun], held: &[Held], seen: Instant) -> Nanos {
    begun.iter().map(|run| beside(run, held, seen)).fold(Nanos::ZERO, Nanos::max)
}

/// Until when a page could be used: to its end, and by who asked the acceptors to the moment that
/// they confirmed.
fn used_until(page: &Page) -> Instant {
    page.end.max(page.confirmed)
}

fn beside(run: &Begun, held: &[Held], seen: Instant) -> Nanos {
    let older = held.iter().filter(|h| h.page.base < run.base && h.page.start < h.page.end);
    // What an earlier run's fence ended is judged beside that run.
    let older = older.filter(|h| h.fence <= h.page.view || h.fence >= run.base);
    // Neither over nor proved dead when the new run was in use: only a fence can have ended these.
    let open: Vec<&Held> = older
        .filter(|h| used_until(&h.page) > run.at && h.ended.is_none_or(|ended| ended > run.at))
        .collect();
    let mut regions: Vec<u32> = open.iter().filter(|h| h.fence >= run.base).map(|h| h.region).collect();
    regions.sort_unstable();
    regions.dedup();
    // A leader that fenced fewer holders than rely on it did not fence one of them.
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

/// When this process was injected so that it runs no code of its own any more.
pub(super) type Killed = Vec<(Process, Instant)>;

/// The same of a cluster. `before` was seen before the faults, `history` has all events since, and
/// `snapshot` was read from `from` on. Whoever was killed could not act from the fault on, whenever
/// its death was noticed.
pub(super) fn overlap_seen(
    (history, killed): (&History, &Killed),
    before: &Snapshot,
    snapshot: &Snapshot,
    from: Instant,
) -> Nanos {
    let old = before.view.as_ref().map(|view| view.base).unwrap_or_default();
    let acting = || snapshot.processes.iter().filter(|p| p.kind.acts());
    let pages = || acting().filter_map(|p| p.lease.map(|(page, fence)| (p, page, fence)));
    let mut bases: Vec<ViewId> = history.fenced().map(|(base, _)| base).collect();
    bases.extend(pages().map(|(_, page, _)| page.base));
    bases.retain(|base| *base > old);
    bases.sort_unstable();
    bases.dedup();
    let begun = bases.into_iter().filter_map(|base| {
        let fenced = history.fenced().find(|(of, _)| *of == base).map(|(_, fenced)| fenced);
        // Whoever starts by a CLEAR dates the page from the turn that it came in, which may have
        // begun before the CLEAR was sent; the recorder's stamp is exact there.
        let exact = |start: &Instant| fenced.is_none_or(|(done, _)| *start >= done);
        let starts = pages().filter(|(_, page, _)| page.base >= base && page.start < page.end);
        let starts = starts.map(|(_, page, _)| page.start).filter(exact);
        let at = starts.chain(history.first_active(base)).min()?;
        Some(Begun { base, at, fenced })
    });
    // A page that was read before the run began says nothing about what came of it.
    let begun: Vec<Begun> = begun.filter(|run| run.at <= from).collect();
    let lived = |p: &Process| before.processes.iter().any(|b| b.alive && b.process == p.process);
    let held = pages().map(|(p, page, fence)| {
        let ended = match p.alive {
            true => None,
            false if lived(p) => {
                let injections = killed.iter().filter(|(k, _)| k.process == p.process).map(|(_, at)| *at);
                injections.chain(history.died(p.incarnation)).min()
            }
            false => Some(Instant::ZERO),
        };
        Held { region: p.region, page, fence, ended }
    });
    overlap(&begun, &held.collect::<Vec<_>>(), snapshot.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The new run began to be used at 100; its leader was done with fences at 95, having raised
    /// one.
    const RUN: Begun = Begun { base: ViewId(8), at: Instant(100), fenced: Some((Instant(95), 1)) };

    fn held(end: u64) -> Held {
        let page = Page {
            view: ViewId(7),
            base: ViewId(5),
            start: Instant(10),
            end: Instant(end),
            confirmed: Instant::ZERO,
        };
        Held { region: 3, page, fence: ViewId(5), ended: None }
    }

    fn found(run: Begun, held: &[Held]) -> u64 {
        overlap(&[run], held, Instant(5_000)).0
    }

    #[test]
    fn a_lease_that_had_run_overlaps_with_nothing() {
        assert_eq!(found(RUN, &[held(100)]), 0);
        assert_eq!(found(RUN, &[]), 0);
        let never = Held { page: Page::default(), ..held(0) };
        assert_eq!(found(RUN, &[never]), 0);
    }

    /// However late the pages are read: at 5,000 this lease is long over, and a look at that time
    /// would find nothing.
    #[test]
    fn a_lease_that_ran_on_is_found_although_it_is_over_when_it_is_read() {
        assert_eq!(found(RUN, &[held(101)]), 1);
        assert_eq!(found(RUN, &[held(90), held(1_900)]), 1_800);
    }

    #[test]
    fn a_view_that_acceptors_confirmed_after_its_lease_was_used_until_then() {
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
    fn a_fence_or_a_death_that_came_too_late_leaves_what_lay_before_it() {
        let fenced = Held { fence: ViewId(8), ..held(1_900) };
        let late = Begun { fenced: Some((Instant(160), 1)), ..RUN };
        assert_eq!(found(late, &[fenced]), 60);
        let dead = Held { ended: Some(Instant(130)), ..held(1_900) };
        assert_eq!(found(RUN, &[dead]), 30);
    }

    #[test]
    fn a_fence_that_no_leader_vouches_for_ends_nothing() {
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
    }

    #[test]
    fn pages_of_the_new_run_are_not_older_than_it() {
        let page = Page {
            view: ViewId(9),
            base: ViewId(8),
            start: Instant(100),
            end: Instant(9_000),
            confirmed: Instant::ZERO,
        };
        assert_eq!(found(RUN, &[Held { page, ..held(0) }]), 0);
    }
}
