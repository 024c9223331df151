//! The owner of a region as it is read, and the clock of its times.

use crate::snapshot::Elsewhere;
use obol_fabric::remote::ClockRelation;
use obol_fabric::{Incarnation, Instant, Name, Nanos, Page};
use obol_membership::Kind;

/// The owner of a region, from its host's table or the newest view.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) name: Name,
    pub(crate) kind: Kind,
    pub(crate) host: u8,
    pub(crate) process: obol_fabric::host::Process,
    pub(crate) region: u32,
    pub(crate) alive: bool,
    pub(crate) incarnation: Incarnation,
    pub(crate) time: Time,
}

/// Which clock stamped a region.
#[derive(Clone, Copy)]
pub(crate) enum Time {
    Here,
    /// Another host's, as of the READ of the region.
    Remotes {
        clock: ClockRelation,
        clock_error: Nanos,
        read: Instant,
        now: Instant,
    },
}

impl Time {
    pub(crate) const fn is_here(self) -> bool {
        matches!(self, Self::Here)
    }

    /// How a process of another host was read, with its page as it was stamped.
    pub(crate) fn elsewhere(self, stamped: Option<Page>) -> Option<Elsewhere> {
        let Self::Remotes { clock, clock_error, read, .. } = self else { return None };
        let here = |at: Instant| match at {
            Instant::ZERO | Instant::NEVER => at,
            at => clock.to_local(at),
        };
        let page = stamped.map(|page| Page {
            start: here(page.start),
            end: here(page.end),
            confirmed: here(page.confirmed),
            verified: here(page.verified),
            ..page
        });
        Some(Elsewhere { clock_error, page, read })
    }

    /// A lease page on this host's clock, shifted by the time since its READ. A lease that may be
    /// running within the clock error counts as running.
    pub(crate) fn page(self, page: Page) -> Page {
        let Self::Remotes { clock, clock_error, read, now } = self else { return page };
        let here = |at: Instant| match at {
            Instant::ZERO | Instant::NEVER => at,
            at => clock.to_local(at) + now.since(read),
        };
        Page { start: here(page.start) - clock_error, end: here(page.end) + clock_error, ..page }
    }
}
