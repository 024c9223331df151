//! A server: who it is in the newest view, and the backup's part.

use crate::area::{Area, LogAt, RING_BYTES};
use crate::entry::{ENTRY_BYTES, Entry, Kind};
use crate::flaw::{Flaw, Planted};
use crate::lead::{Lead, first_record};
use crate::store::Store;
use crate::{LOOKS, Shard, words};
use obol_fabric::{Address, Completion, Fabric, Incarnation, Instant, LinkError, Nanos, Remote, Token};
use obol_membership::View;
use std::sync::Arc;

/// The part of a service that posted an operation; with its argument in the low half of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Part {
    /// A WRITE of a record to the backup.
    Record = 0xf4,
    /// A READ of the own memory, which brings what is written there and not seen yet.
    Drain = 0xf5,
    /// A READ for nothing but the link that it makes.
    Meet = 0xf6,
    /// What is written again if need be: requests, answers, reports.
    Send = 0xf7,
}

impl Part {
    const ALL: [Self; 4] = [Self::Record, Self::Drain, Self::Meet, Self::Send];
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
    /// The oldest server splits the keys into another number of shards: this one can not serve.
    Misfit {
        /// Into how many.
        shards: u32,
    },
}

/// A server with something to do that nobody rings for looks so often at least, however rarely it looks otherwise.
const LOOK_EVERY_MAX: Nanos = Nanos::from_micros(20);

/// A backup reports when it has applied so much of its log since: the primary asks only when the ring is full.
const REPORT_BYTES: u64 = RING_BYTES / 4;

/// It reports so often in any case, lest a report was lost. More often would be the most that an idle cache sends.
const REPORT_EVERY: Nanos = Nanos::from_millis(20);

/// So many records are applied before the primary is told that it may write over them.
const APPLIED_MAX: u32 = 128;

/// A backup's progress in its log.
#[derive(Debug, Default)]
struct Follow {
    /// The next record.
    next: u64,
    /// Where the next one is looked for.
    at: LogAt,
    /// What the primary was told of, and when it is told the next time in any case.
    reported: LogAt,
    report_at: Instant,
    synced: bool,
    /// [`Part::Drain`] is on the way.
    draining: bool,
    /// The record that is being applied.
    record: Vec<u8>,
}

impl Follow {
    fn of(own: Incarnation, planted: Planted) -> Self {
        Self { next: first_record(own, planted), ..Self::default() }
    }

    /// Applies the records that are there, [`APPLIED_MAX`] at most. Tells whether there may be more.
    fn apply<F: Fabric>(&mut self, area: Area, store: &mut Store, fabric: &F) -> bool {
        for _ in 0..APPLIED_MAX {
            let (number, at) = (self.next, self.at.begin());
            let Some(place) = fabric.own(area.record(at), ENTRY_BYTES) else { return false };
            let Some(record) = Entry::decode(place, number, &mut self.record) else { return false };
            (self.next, self.at) = (number + 1, at.after(record.bytes()));
            match record.kind {
                Kind::Put | Kind::Copy => {
                    // The primary had room for it, so there is room.
                    let written = store.put(record.key, record.value, 0);
                    debug_assert!(written, "as many keys as the primary");
                    if record.kind == Kind::Put {
                        store.see(record.client, record.request);
                    }
                }
                Kind::Seen => store.see(record.client, record.request),
                Kind::Synced => self.synced = true,
                Kind::Get => {}
            }
        }
        true
    }

    /// Tells the primary how much of the log it may write again.
    fn report<F: Fabric>(&mut self, now: Instant, own: Incarnation, to: Remote, fabric: &mut F) {
        if self.at.0 - self.reported.0 < REPORT_BYTES && now < self.report_at {
            return;
        }
        (self.reported, self.report_at) = (self.at, now + REPORT_EVERY);
        words::seal([own.0, self.at.0], &mut self.record);
        fabric.write_untold(to, &self.record, token(Part::Send, 0));
    }
}

enum Role {
    Out,
    Spare,
    Backup(Follow),
    TakingOver(Follow),
    Primary(Box<Lead>),
    Lost,
    Misfit(u32),
}

/// A server of the cache.
pub struct Server {
    area: Area,
    shard: Shard,
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
    /// A server of a shard that looks into its memory so often. The name of its member has to tell the shard.
    #[must_use]
    pub fn new(area: Area, shard: Shard, poll_every: Nanos, view: Arc<View>) -> Self {
        Self {
            area: area.of_shard(shard),
            shard,
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
            Role::Misfit(shards) => Standing::Misfit { shards: *shards },
        }
    }

    /// Who it is in the newest view; `None` if it is no member.
    #[must_use]
    pub const fn incarnation(&self) -> Option<Incarnation> {
        self.own
    }

    /// Of a primary: whether its backup was given everything that there was when it came. Later PUTs may be on the way.
    #[must_use]
    pub fn has_synced_backup(&self) -> bool {
        matches!(&self.role, Role::Primary(lead) if lead.has_synced_backup())
    }

    /// What it serves.
    pub(crate) const fn shard(&self) -> Shard {
        self.shard
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
            crate::servers(view, self.shard).map(|member| (member.incarnation, member.address)).collect();
        let place = servers.iter().position(|(who, _)| Some(*who) == own);
        let is_new = place.is_some() && self.own != own;
        if place.is_none() || is_new {
            // A member that was removed and comes back is another, with nothing.
            self.role = Role::Out;
            self.store = Store::default();
        }
        self.own = own.filter(|_| place.is_some());
        self.primary = servers.first().map(|(_, at)| *at);
        let shards = crate::shards(view).unwrap_or(self.shard.count());
        let role = std::mem::replace(&mut self.role, Role::Out);
        self.role = match (place, role) {
            (None, _) => Role::Out,
            // Whatever later views say: one that was refused once never has a state.
            (Some(_), Role::Misfit(shards)) => Role::Misfit(shards),
            (Some(_), _) if shards != self.shard.count() => Role::Misfit(shards),
            // The first of all begins with nothing.
            (Some(0), Role::Out) => Role::Primary(Box::new(Lead::new(self.area, self.planted, 0))),
            (Some(0), Role::Backup(follow)) if self.planted.has(Flaw::LogNotDrained) => self.lead(&follow),
            (Some(0), Role::Backup(follow)) => Role::TakingOver(follow),
            (Some(0), Role::Spare) => Role::Lost,
            (Some(1), Role::Out | Role::Spare) => {
                Role::Backup(Follow::of(own.unwrap_or_default(), self.planted))
            }
            (Some(_), Role::Out) => Role::Spare,
            (_, role) => role,
        };
        self.lead_on();
        self.poll_at = Instant::ZERO;
    }

    /// Tells the primary's part who its backup and its clients are.
    fn lead_on(&mut self) {
        let Role::Primary(lead) = &mut self.role else { return };
        let backup =
            crate::servers(&self.view, self.shard).nth(1).map(|member| (member.incarnation, member.address));
        lead.install(backup, &self.area.clients(&self.view), &self.store);
    }

    /// The role of a backup that is the primary now.
    fn lead(&self, follow: &Follow) -> Role {
        if follow.synced {
            Role::Primary(Box::new(Lead::new(self.area, self.planted, follow.next)))
        } else {
            Role::Lost
        }
    }

    /// Looks into the own memory: once, or [`LOOKS`] times if it does nothing else.
    pub(crate) fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.poll_at = now + self.poll_every;
        let view = self.view.id;
        match &mut self.role {
            Role::Primary(lead) => {
                let looks = if self.poll_every == Nanos::ZERO { LOOKS } else { 1 };
                for _ in 0..looks {
                    if lead.poll(now, view, &mut self.store, fabric) {
                        self.answered += lead.settle(view, fabric);
                        // There may be more.
                        self.poll_at = now;
                    } else {
                        core::hint::spin_loop();
                    }
                    if lead.is_waiting() {
                        break;
                    }
                }
                if lead.is_behind() {
                    self.poll_at = self.poll_at.min(now + LOOK_EVERY_MAX);
                }
            }
            Role::Backup(follow) => {
                if follow.apply(self.area, &mut self.store, fabric) {
                    self.poll_at = now;
                }
                if let (Some(at), Some(own)) = (self.primary, self.own) {
                    follow.report(now, own, Remote { at, offset: self.area.applied() }, fabric);
                }
            }
            Role::TakingOver(follow) => {
                self.poll_at = self.poll_at.min(now + LOOK_EVERY_MAX);
                // Once this view is active no earlier one is: whoever was the primary before can not answer for a record that is
                // not in the log by now.
                let may_drain = fabric.is_active(view) || self.planted.has(Flaw::ServeEarly);
                if may_drain && !follow.draining {
                    follow.draining = true;
                    let from = Remote { at: fabric.address(), offset: self.area.record(follow.at.begin()) };
                    fabric.read(from, 8, token(Part::Drain, 0));
                }
            }
            _ => {}
        }
        self.settle(fabric);
    }

    /// Somebody rang: there are requests.
    pub(crate) fn on_ring(&mut self) {
        self.poll_at = Instant::ZERO;
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
        match (&mut self.role, part) {
            (Role::Primary(lead), Part::Record) => {
                lead.on_written(now, argument, result.is_ok());
                self.settle(fabric);
            }
            (Role::TakingOver(follow), Part::Drain) => {
                follow.draining = false;
                if result.is_ok() {
                    while follow.apply(self.area, &mut self.store, fabric) {}
                    let follow = std::mem::take(follow);
                    self.role = self.lead(&follow);
                    self.lead_on();
                }
            }
            // What was sent and is lost is sent again.
            _ => {}
        }
    }
}
