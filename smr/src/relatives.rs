//! The logs of other replicas, by their headers: a replica gives way to a newer log (see
//! [`crate::identity`]) wherever it sees one.
//!
//! A replica that was frozen or cut off while another log replaced its own one learns of it so. No leader
//! tells it: the leader of another log writes nothing to it, and one of its own log may lead again. So one
//! that comes back READs them before it does anything else.

use crate::area::{Area, HEADER_BYTES};
use crate::follow::Header;
use crate::identity;
use crate::tokens::{Part, token};
use obol_fabric::{Address, Fabric, Instant, LinkError, Nanos, Remote};

/// How long it waits for a view that is active, in times of patience. Without a majority of coordinators there
/// is none, and some presets need none.
const VIEW_AFTER: u64 = 4;

/// Another replica: of the view, or a voter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Relative {
    at: Address,
    id: u32,
    is_outstanding: bool,
    /// A READ of it has ended.
    was_read: bool,
}

/// The replicas whose headers are READ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Relatives {
    all: Vec<Relative>,
    read_at: Instant,
    ids: u32,
    /// Since when it is back, until it has read the others.
    back_since: Option<Instant>,
}

impl Relatives {
    /// There is a newer view: others may have come back.
    pub(crate) const fn read_soon(&mut self) {
        self.read_at = Instant::ZERO;
    }

    /// This replica comes back. What it has READ before says nothing.
    pub(crate) fn on_return(&mut self, now: Instant) {
        self.all.clear();
        (self.read_at, self.back_since) = (Instant::ZERO, Some(now));
    }

    /// Whether it is back, and has not read the others yet, or does not know yet whether its view is the newest
    /// one: then others may be there that it does not know. One that is not reached, and coordinators that are
    /// not, hold it up for a time only.
    pub(crate) fn is_to_wait(
        &mut self,
        now: Instant,
        patience: Nanos,
        is_active: impl FnOnce() -> bool,
    ) -> bool {
        let Some(since) = self.back_since else { return false };
        let lasts = now.since(since);
        let is_unread = lasts < patience && !self.all.iter().all(|one| one.was_read);
        let waits = is_unread || lasts < patience.saturating_mul(VIEW_AFTER) && !is_active();
        if !waits {
            self.back_since = None;
        }
        waits
    }

    /// READs the headers of these replicas, if that is due.
    pub(crate) fn poll<F: Fabric>(
        &mut self,
        now: Instant,
        every: Nanos,
        replicas: impl Iterator<Item = Address>,
        area: Area,
        fabric: &mut F,
    ) {
        if now < self.read_at {
            return;
        }
        self.read_at = now + every;
        let own = fabric.address();
        let replicas: Vec<Address> = replicas.filter(|at| *at != own).collect();
        self.all.retain(|one| replicas.contains(&one.at));
        for at in replicas {
            if !self.all.iter().any(|one| one.at == at) {
                self.ids = self.ids.wrapping_add(1);
                self.all.push(Relative { at, id: self.ids, is_outstanding: false, was_read: false });
            }
        }
        for one in self.all.iter_mut().filter(|one| !one.is_outstanding) {
            one.is_outstanding = true;
            let from = Remote { at: one.at, offset: area.header() };
            fabric.read(from, HEADER_BYTES, token(Part::Relatives, one.id));
        }
    }

    /// A header was READ. Returns whether that replica has a newer log than this one.
    pub(crate) fn on_read(&mut self, id: u32, result: Result<&[u8], LinkError>, log: u64) -> bool {
        let Some(one) = self.all.iter_mut().find(|one| one.id == id) else { return false };
        one.is_outstanding = false;
        match result.map(Header::decode) {
            // Its owner was just writing it. The next READ finds it whole.
            Ok(None) => {
                if self.back_since.is_some() {
                    self.read_soon();
                }
                false
            }
            Ok(Some(header)) => {
                one.was_read = true;
                identity::is_newer(header.log, log)
            }
            Err(_) => {
                one.was_read = true;
                false
            }
        }
    }
}
