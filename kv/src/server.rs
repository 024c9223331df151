//! A server: who it is in the newest view, and the backup's part.

use crate::area::Area;
use crate::entry::{ENTRY_BYTES, Entry, Kind};
use crate::flaw::{Flaw, Planted};
use crate::lead::Lead;
use crate::store::Store;
use obol_fabric::{Address, Completion, Fabric, Incarnation, Instant, LinkError, Nanos, Remote, Token};
use obol_membership::View;
use std::sync::Arc;

/// The part of a service that posted an operation; with its argument in the low half of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Part {
    /// A client's head in the own memory.
    ClientHead = 0xf1,
    /// A client's request in the own memory.
    Request = 0xf2,
    /// What the backup has applied, in the own memory.
    Applied = 0xf3,
    /// A WRITE of a record to the backup.
    Record = 0xf4,
    /// The next record in the own memory.
    NextRecord = 0xf5,
    /// A WRITE of what was applied to the primary.
    Report = 0xf6,
    /// A client's WRITE to the primary.
    Send = 0xf7,
}

impl Part {
    const ALL: [Self; 7] = [
        Self::ClientHead,
        Self::Request,
        Self::Applied,
        Self::Record,
        Self::NextRecord,
        Self::Report,
        Self::Send,
    ];
}

pub(crate) const fn token(part: Part, argument: u32) -> Token {
    Token((part as u64) << 56 | argument as u64)
}

/// The reverse of [`token`]; `None` for the membership protocol's.
pub(crate) fn part_of(token: Token) -> Option<(Part, u32)> {
    let part = Part::ALL.into_iter().find(|part| *part as u64 == token.0 >> 56)?;
    Some((part, token.0 as u32))
}

/// Where a server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It is no member.
    Out,
    /// It has no task yet.
    Spare,
    /// It follows the primary.
    Backup {
        /// It has everything that the primary has answered for.
        synced: bool,
    },
    /// It is the primary, but may not serve yet.
    TakingOver,
    /// It serves.
    Primary {
        /// Its backup has everything.
        redundant: bool,
    },
    /// It is the primary of a state that is lost: it never got all of it, and those that had it are gone.
    Lost,
}

/// A backup's progress in its log.
#[derive(Debug, Default)]
struct Follow {
    /// Records applied.
    applied: u64,
    synced: bool,
    /// A READ of the next record is on the way.
    reading: bool,
    /// The READ that is on the way was posted when nobody could add to the log any more.
    is_last: bool,
}

enum Role {
    Out,
    Spare,
    Backup(Follow),
    TakingOver(Follow),
    Primary(Box<Lead>),
    Lost,
}

/// A server of the cache.
pub struct Server {
    area: Area,
    poll_every: Nanos,
    planted: Planted,
    view: Arc<View>,
    own: Option<Incarnation>,
    primary: Option<Address>,
    store: Store,
    role: Role,
    poll_at: Instant,
    answered: u64,
}

impl Server {
    /// A server that looks into its memory so often.
    #[must_use]
    pub fn new(area: Area, poll_every: Nanos, view: Arc<View>) -> Self {
        Self {
            area,
            poll_every,
            planted: Planted::default(),
            view,
            own: None,
            primary: None,
            store: Store::default(),
            role: Role::Out,
            poll_at: Instant::ZERO,
            answered: 0,
        }
    }

    /// The same with a bug.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_flaw(self, flaw: Flaw) -> Self {
        Self { planted: Planted::new(flaw), ..self }
    }

    /// Where it stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match &self.role {
            Role::Out => Standing::Out,
            Role::Spare => Standing::Spare,
            Role::Backup(follow) => Standing::Backup { synced: follow.synced },
            Role::TakingOver(_) => Standing::TakingOver,
            Role::Primary(lead) => Standing::Primary { redundant: lead.is_redundant() },
            Role::Lost => Standing::Lost,
        }
    }

    /// Of a primary: whether its backup was given everything that there was when it came. Later PUTs may be on the way.
    #[must_use]
    pub fn has_synced_backup(&self) -> bool {
        matches!(&self.role, Role::Primary(lead) if lead.has_synced_backup())
    }

    /// How many requests it has answered.
    #[must_use]
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// When [`Server::tick`] is wanted next.
    #[must_use]
    pub(crate) const fn deadline(&self) -> Instant {
        self.poll_at
    }

    /// Takes note of the newest view and of who this server is in it.
    pub(crate) fn install(&mut self, view: &Arc<View>, own: Option<Incarnation>) {
        self.view = Arc::clone(view);
        let servers: Vec<(Incarnation, Address)> =
            crate::servers(view).map(|member| (member.incarnation, member.address)).collect();
        let place = servers.iter().position(|(who, _)| Some(*who) == own);
        let is_new = place.is_some() && self.own != own;
        if place.is_none() || is_new {
            // A member that was removed and comes back is another, with nothing.
            self.role = Role::Out;
            self.store = Store::default();
        }
        self.own = own.filter(|_| place.is_some());
        self.primary = servers.first().map(|(_, at)| *at);
        let role = std::mem::replace(&mut self.role, Role::Out);
        self.role = match (place, role) {
            (None, _) => Role::Out,
            // The first of all begins with nothing.
            (Some(0), Role::Out) => Role::Primary(Box::new(Lead::new(self.area, self.planted, 0))),
            (Some(0), Role::Backup(follow)) if self.planted.has(Flaw::LogNotDrained) => self.lead(&follow),
            (Some(0), Role::Backup(follow)) => Role::TakingOver(follow),
            (Some(0), Role::Spare) => Role::Lost,
            (Some(1), Role::Out | Role::Spare) => Role::Backup(Follow::default()),
            (Some(_), Role::Out) => Role::Spare,
            (_, role) => role,
        };
        self.lead_on();
    }

    /// Tells the primary's part who its backup and its clients are.
    fn lead_on(&mut self) {
        let Role::Primary(lead) = &mut self.role else { return };
        let backup = crate::servers(&self.view).nth(1).map(|member| (member.incarnation, member.address));
        let regions = crate::clients(&self.view).map(|member| member.address.region);
        let clients: Vec<u32> = regions.filter(|region| self.area.has_room_for(*region)).collect();
        lead.install(backup, &clients, &self.store);
    }

    /// The role of a backup that is the primary now.
    fn lead(&self, follow: &Follow) -> Role {
        if follow.synced {
            Role::Primary(Box::new(Lead::new(self.area, self.planted, follow.applied)))
        } else {
            Role::Lost
        }
    }

    /// Looks into the own memory.
    pub(crate) fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.poll_at = now + self.poll_every;
        match &mut self.role {
            Role::Primary(lead) => lead.poll(now, self.view.id, &self.store, fabric),
            Role::Backup(follow) => read_next(follow, self.area, false, fabric),
            // Once this view is active no earlier one is: whoever was the primary before can not answer for a record that is
            // not in the log by now.
            Role::TakingOver(follow)
                if fabric.is_active(self.view.id) || self.planted.has(Flaw::ServeEarly) =>
            {
                read_next(follow, self.area, true, fabric);
            }
            _ => {}
        }
        self.settle(fabric);
    }

    fn settle<F: Fabric>(&mut self, fabric: &mut F) {
        if let Role::Primary(lead) = &mut self.role {
            self.answered += lead.settle(self.view.id, fabric);
        }
    }

    pub(crate) fn on_completion<F: Fabric>(
        &mut self,
        now: Instant,
        part: Part,
        argument: u32,
        result: Result<Completion<'_>, LinkError>,
        fabric: &mut F,
    ) {
        match (&mut self.role, part, result) {
            (Role::Primary(lead), Part::ClientHead, Ok(Completion::Read(bytes))) => {
                lead.on_head(argument, bytes, fabric);
            }
            (Role::Primary(lead), Part::Request, Ok(Completion::Read(bytes))) => {
                lead.on_request(argument, bytes, &mut self.store, fabric);
            }
            (Role::Primary(lead), Part::Applied, Ok(Completion::Read(bytes))) => lead.on_applied(bytes),
            (Role::Primary(lead), Part::ClientHead | Part::Request | Part::Applied, _) => {
                lead.on_unread(part, argument);
            }
            (Role::Primary(lead), Part::Record, result) => lead.on_written(now, argument, result.is_ok()),
            (Role::Backup(_) | Role::TakingOver(_), Part::NextRecord, result) => {
                let bytes = if let Ok(Completion::Read(bytes)) = result { bytes } else { &[] };
                self.on_record(bytes, fabric);
            }
            // A report that is lost is followed by another one.
            _ => {}
        }
        self.settle(fabric);
    }

    /// The next record was read, if it is there.
    fn on_record<F: Fabric>(&mut self, bytes: &[u8], fabric: &mut F) {
        let (area, primary) = (self.area, self.primary);
        let (follow, takes_over) = match &mut self.role {
            Role::Backup(follow) => (follow, false),
            Role::TakingOver(follow) => (follow, true),
            _ => return,
        };
        follow.reading = false;
        let was_last = std::mem::take(&mut follow.is_last);
        let record = Entry::decode(bytes).filter(|record| record.number == follow.applied + 1);
        if let Some(record) = record {
            follow.applied += 1;
            match record.kind {
                Kind::Put | Kind::Copy => {
                    // The primary had room for it, so there is room.
                    let written = self.store.put(record.key, record.value, 0);
                    debug_assert!(written, "as many keys as the primary");
                    if record.kind == Kind::Put {
                        self.store.see(record.client, record.request);
                    }
                }
                Kind::Seen => self.store.see(record.client, record.request),
                Kind::Synced => follow.synced = true,
                Kind::Get => {}
            }
            return read_next(follow, area, was_last, fabric);
        }
        if !takes_over {
            // The end of the log, for now: the primary may write as much again.
            if let Some(at) = primary {
                let to = Remote { at, offset: area.applied() };
                fabric.write(to, &follow.applied.to_le_bytes(), token(Part::Report, 0));
            }
        } else if was_last {
            let follow = std::mem::take(follow);
            self.role = self.lead(&follow);
            self.lead_on();
        }
    }
}

/// Reads the next record of the log. `is_last`: nobody can add to the log any more.
fn read_next<F: Fabric>(follow: &mut Follow, area: Area, is_last: bool, fabric: &mut F) {
    if follow.reading {
        return;
    }
    (follow.reading, follow.is_last) = (true, is_last);
    let from = Remote { at: fabric.address(), offset: area.record(follow.applied + 1) };
    fabric.read(from, ENTRY_BYTES as u32, token(Part::NextRecord, 0));
}
