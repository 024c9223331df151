//! The detector of links: which members this process can reach. It judges links, not processes.
//!
//! uKharon, section 4.2, catastrophic failures. Every process with a core multicasts a heartbeat.
//! Beyond the paper, silence alone breaks no link. It triggers a READ of the silent member's
//! memory; the link is down if that fails, too, until a READ succeeds. So a broken multicast tree,
//! a lost datagram, or a stopped process (which heartbeats find) does not count as a broken link, and
//! links do not flap.
//!
//! A READ needs both directions of the network, a heartbeat only one: of a link that is cut one way,
//! one end reports the other. That this process can READ another one does not imply the reverse:
//! over IP, each needs the other's gateway, and a connection of its own. So a leader reads newcomers
//! itself (`coordinator/newcomers.rs`), and a report must not depend on the link that it is about:
//! every process also names the coordinators that it cannot reach in its own region, where a
//! coordinator that does not hear it reads that together with its heartbeat. And since a process hears
//! also those to which it cannot connect, one that is read for its silence is notified of it, and
//! checks its own link.

use super::{Detector, Id, Scope, Verdict};
use crate::Config;
use crate::mutants::Mutant;
use crate::tokens::Labelled;
use crate::view::{Kind, Member, View};
use crate::wire::Message;
use obol_fabric::{Address, Completion, Fabric, Group, Incarnation, Instant, LinkError, Remote};
use std::ops::Range;

/// The largest number of members with a core for which links are watched. All pairs are watched, so
/// the cost is quadratic; in a larger view the detector is off.
pub const LINK_MEMBERS_MAX: usize = 1024;
/// Concurrent READs. A silent member whose READ is queued is not down yet.
pub const PROBES_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Link {
    /// A heartbeat or a successful READ since.
    Up(Instant),
    /// Unknown: see [`Links::prove`].
    Unproved,
    /// The last READ failed.
    Down,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Target {
    who: Incarnation,
    address: Address,
    /// Its number, if it is a coordinator.
    proposer: u16,
    /// It is a coordinator that decides, so it leads or may come to.
    decides: bool,
    link: Link,
    reading: bool,
    /// Not read before.
    due: Instant,
    /// What the last READ found, and whether the one before found something else.
    beat: Option<u64>,
    moves: bool,
    /// The coordinators that it could not reach, as the last READ found: bit `n - 1` for number `n`.
    unreachable: u64,
    /// When that READ completed.
    read: Instant,
    /// Its memory was read, and its heartbeats do not arrive: it is to be notified.
    unheard: bool,
    /// It is to be read now, whatever was heard of it.
    recheck: bool,
}

/// What a member could not reach when its memory was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    pub from: Incarnation,
    /// The coordinators: bit `n - 1` for number `n`.
    pub coordinators: u64,
    /// When its memory was read.
    pub read: Instant,
}

/// The links of one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Links {
    /// By incarnation.
    targets: Vec<Target>,
    beat_due: Instant,
    report_due: Instant,
    /// A report that names a member was sent and not retracted yet.
    reported: bool,
    /// When the next member has to be checked.
    check_due: Instant,
    /// Links count as up only once they are proved.
    proving: bool,
    /// Set in a coordinator that is not a member: see [`Links::seek_leader`].
    seeking: bool,
    /// What the own region says of the coordinators that this process cannot reach; `None` before it
    /// was written.
    published: Option<u64>,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            beat_due: Instant::ZERO,
            report_due: Instant::ZERO,
            reported: false,
            check_due: Instant::NEVER,
            proving: false,
            seeking: false,
            published: None,
        }
    }
}

/// Whether the profile enables the watching of links.
pub const fn are_watched(config: &Config) -> bool {
    config.timing.link_watch
}

impl Links {
    /// Called when the process was excluded. It requests admission only once all of its links are
    /// proved; otherwise one broken link would have it admitted and excluded again and again.
    pub fn prove(&mut self, config: &Config) {
        self.proving = are_watched(config) && !config.mutant.has(Mutant::RejoinUnproved);
        self.seeking = false;
        self.reported = false;
        for target in &mut self.targets {
            target.link = Link::Unproved;
            target.due = Instant::ZERO;
            target.beat = None;
            target.moves = true;
            target.unreachable = 0;
        }
        self.check_due = Instant::ZERO;
    }

    /// Whether the process may request admission: it was not excluded, or every link has been
    /// proved since.
    pub fn are_proved(&self) -> bool {
        !self.proving || self.targets.iter().all(|target| matches!(target.link, Link::Up(_)))
    }

    /// Called when a coordinator waits for its admission. It reads the deciders of the view from
    /// now on, because the leader may have reason not to admit it: see
    /// [`Links::reaches_coordinator`].
    pub fn seek_leader(&mut self, config: &Config) {
        self.seeking = are_watched(config) && !self.proving;
    }

    /// Whether a coordinator that decides is reachable and runs, so that there is a leader or soon
    /// will be. Known only to a process that is not a member.
    pub fn reaches_coordinator(&self) -> bool {
        self.is_outside()
            && self
                .targets
                .iter()
                .any(|target| target.decides && matches!(target.link, Link::Up(_)) && target.moves)
    }

    const fn is_outside(&self) -> bool {
        self.proving || self.seeking
    }

    /// Records a heartbeat.
    pub fn on_heartbeat(&mut self, who: Incarnation, now: Instant) {
        if let Some(target) = self.target(who)
            && let Link::Up(since) = &mut target.link
        {
            *since = now;
        }
    }

    /// A READ of another detector failed, or the member does not hear this process: check the link now.
    pub fn recheck(&mut self, who: Incarnation, now: Instant) {
        if let Some(target) = self.target(who)
            && matches!(target.link, Link::Up(_))
        {
            target.recheck = true;
            self.check_due = now;
        }
    }

    /// The members that said in their memory which coordinators they cannot reach.
    pub fn unreachable(&self) -> impl Iterator<Item = Unreachable> {
        let say = self.targets.iter().filter(|target| target.unreachable != 0);
        say.map(|target| Unreachable {
            from: target.who,
            coordinators: target.unreachable,
            read: target.read,
        })
    }

    /// Notifies members that this process does not hear.
    fn notify_unheard<F: Fabric>(&mut self, me: Incarnation, fabric: &mut F) {
        for target in self.targets.iter_mut().filter(|target| target.unheard) {
            target.unheard = false;
            fabric.send(target.address, &Message::Unheard(me).encode());
        }
    }

    /// Says in the own region which coordinators this process cannot reach.
    fn publish<F: Fabric>(&mut self, fabric: &mut F) {
        let down = self.targets.iter().filter(|target| target.link == Link::Down);
        let bits =
            down.filter_map(|target| target.proposer.checked_sub(1)).fold(0, |bits, at| bits | 1 << at);
        if self.published != Some(bits) {
            self.published = Some(bits);
            fabric.publish_unreachable(bits);
        }
    }

    fn target(&mut self, who: Incarnation) -> Option<&mut Target> {
        let at = self.targets.binary_search_by_key(&who, |target| target.who).ok()?;
        self.targets.get_mut(at)
    }

    /// The members to which the link is down.
    pub fn down(&self) -> impl Iterator<Item = Incarnation> {
        self.targets.iter().filter(|target| target.link == Link::Down).map(|target| target.who)
    }

    fn has_report(&self) -> bool {
        !self.is_outside() && (self.reported || self.down().next().is_some())
    }

    /// Reads the members that were silent for too long.
    fn check_silent<F: Fabric>(&mut self, id: Id, config: &Config, now: Instant, fabric: &mut F) {
        let mut free = PROBES_MAX.saturating_sub(self.targets.iter().filter(|target| target.reading).count());
        let mut next = Instant::NEVER;
        for target in self.targets.iter_mut().filter(|target| !target.reading) {
            let due = match target.link {
                Link::Up(_) if target.recheck => Instant::ZERO,
                Link::Up(since) if target.unreachable == 0 => since + config.timing.link_timeout,
                Link::Up(_) | Link::Unproved | Link::Down => target.due,
            };
            if due > now || free == 0 {
                // A queued member is read when an earlier READ completes.
                next = next.min(if due > now { due } else { Instant::NEVER });
                continue;
            }
            free -= 1;
            target.reading = true;
            target.recheck = false;
            let Range { start, end } = probed(target.address, config);
            // The lower half of an incarnation is unique among all members that views name at a
            // time.
            let at = Remote { at: target.address, offset: start };
            fabric.read(at, end - start, id.token(0, target.who.0 as u32));
        }
        self.check_due = next;
    }

    /// Reports to every coordinator which links are down, by the index of their members in the
    /// view.
    fn report<F: Fabric>(&mut self, me: Incarnation, view: &View, fabric: &mut F) {
        let mut silent = vec![0u8; view.members.len().div_ceil(8)];
        for who in self.down() {
            if let Ok(at) = view.members.binary_search_by_key(&who, |m| m.incarnation) {
                silent[at / 8] |= 1 << (at % 8);
            }
        }
        self.reported = silent.iter().any(|byte| *byte != 0);
        let report = Message::Links { from: me, view: view.id, silent: &silent }.encode();
        for coordinator in view.of_kind(Kind::Coordinator).filter(|m| m.incarnation != me) {
            fabric.send(coordinator.address, &report);
        }
    }
}

/// What a probe reads of a member's region: from the coordinators that it cannot reach to its
/// heartbeat, so that one READ has both.
fn probed(member: Address, config: &Config) -> Range<u32> {
    config.layout.unreachable()..config.layout.heartbeat(member.seat) + 8
}

impl Detector for Links {
    /// Until the process is a member it watches links only to prove them, or to find a leader.
    fn follow(&mut self, scope: &Scope<'_>, now: Instant) {
        let &Scope { view, me, config, .. } = scope;
        if me.is_some() {
            // Earlier proofs are dropped: as a member it gets heartbeats from all others.
            (self.proving, self.seeking) = (false, false);
        }
        let seeking = self.seeking;
        let decides = |m: &Member| m.kind == Kind::Coordinator && view.acceptor(m.proposer).is_some();
        let counts = |m: &&Member| m.has_core() && Some(m.incarnation) != me && (!seeking || decides(m));
        let cores = || view.members.iter().filter(counts);
        if !are_watched(config) || (me.is_none() && !self.is_outside()) || cores().count() >= LINK_MEMBERS_MAX
        {
            self.targets.clear();
            self.check_due = Instant::NEVER;
            return;
        }
        let link = if me.is_none() { Link::Unproved } else { Link::Up(now) };
        let mut old = std::mem::take(&mut self.targets).into_iter().peekable();
        self.targets = cores()
            .map(|m| {
                while old.next_if(|target| target.who < m.incarnation).is_some() {}
                let known = old.next_if(|target| target.who == m.incarnation).unwrap_or(Target {
                    who: m.incarnation,
                    address: m.address,
                    proposer: m.proposer,
                    decides: false,
                    link,
                    reading: false,
                    due: now,
                    beat: None,
                    moves: true,
                    unreachable: 0,
                    read: Instant::ZERO,
                    unheard: false,
                    recheck: false,
                });
                Target { decides: decides(m), ..known }
            })
            .collect();
        self.check_due = now;
    }

    fn deadline(&self) -> Instant {
        if self.targets.is_empty() {
            return Instant::NEVER;
        }
        let beat = if self.is_outside() { Instant::NEVER } else { self.beat_due };
        let report = if self.has_report() { self.report_due } else { Instant::NEVER };
        self.check_due.min(beat).min(report)
    }

    /// Sends the heartbeat, the READs and the report that are due.
    fn tick<F: Fabric>(&mut self, id: Id, scope: &Scope<'_>, now: Instant, fabric: &mut F) {
        let &Scope { view, me, config, .. } = scope;
        if self.targets.is_empty() {
            return;
        }
        self.publish(fabric);
        if let Some(me) = me {
            if self.beat_due <= now {
                self.beat_due = now + config.timing.link_every;
                fabric.multicast(Group::Everyone, &Message::Heartbeat(me).encode());
            }
            if self.has_report() && self.report_due <= now {
                self.report_due = now + config.timing.link_every;
                self.report(me, view, fabric);
            }
        }
        if self.check_due <= now {
            if let Some(me) = me {
                self.notify_unheard(me, fabric);
            }
            self.check_silent(id, config, now, fabric);
        }
    }

    fn complete(&mut self, done: Labelled<'_>, config: &Config, now: Instant) -> Option<Verdict> {
        let Labelled { round, result, .. } = done;
        let target = self.targets.iter_mut().find(|target| target.who.0 as u32 == round && target.reading)?;
        target.reading = false;
        target.due = now + config.timing.link_every;
        // A local fault, which says nothing about the link.
        if matches!(result, Err(LinkError::Unmapped)) {
            return None;
        }
        let before = target.link;
        let silent = matches!(before, Link::Up(since) if since + config.timing.link_timeout <= now);
        if let Ok(Completion::Read(bytes)) = result {
            let beat = bytes.last_chunk().map(|word| u64::from_le_bytes(*word));
            target.unreachable = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            target.read = now;
            target.unheard = silent;
            target.moves = target.beat.is_none() || target.beat != beat;
            target.beat = beat;
            target.link = Link::Up(now);
        } else {
            target.link = Link::Down;
            target.unreachable = 0;
        }
        let (who, after) = (target.who, target.link);
        self.check_due = now;
        match (before, after) {
            (Link::Up(_) | Link::Unproved, Link::Down) => Some(Verdict::LinkDown(who)),
            (Link::Down, Link::Up(_)) => Some(Verdict::LinkUp(who)),
            _ => None,
        }
    }
}
