//! The heartbeat detector: who is suspected because its counter stands still.
//!
//! uKharon, section 4.2, kernel failures. Processes with a core form a ring by incarnation and each
//! READs its successor's counter; an agent also READs those of the programs in its seats. Beyond
//! the paper, a coordinator READs those of all others, and suspects them after twice as many: were
//! its predecessor the leader's only watcher, nobody would act when both stand still at once.
//!
//! The pause runs from the completion of a READ, so a slow network delays a suspicion but does not
//! cause one. The paper suspects at the second equal value; here a profile says how many, because
//! shared cores schedule late.
//!
//! A program may promise progress: then its agent also READs the word that the application itself
//! advances, and suspects it although its process lives. (Mu, section 5.1, fate sharing.)

use crate::Config;
use crate::tokens::{self, Part};
use crate::view::{Kind, Level, View};
use obol_fabric::{Address, Completion, Fabric, Incarnation, Instant, LinkError, Nanos, Remote};

/// What a READ brought to light.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This member stands still, or can not be reached.
    Suspect(Incarnation, Level),
    /// A member that was suspected here moves again.
    Retract(Incarnation),
}

/// What of a member is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Word {
    /// Its process's heartbeat.
    Heartbeat,
    /// The same, of another coordinator whose predecessor in the ring watches it, too.
    Peer,
    /// What its application advances, and within what time it promised to.
    Progress(Nanos),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Target {
    incarnation: Incarnation,
    address: Address,
    word: Word,
    last: Option<u64>,
    /// READs in a row that found `last`.
    same: u32,
    /// When the first of them was complete.
    since: Instant,
    /// When the READ that is out, or was last, was posted.
    posted: Instant,
    suspected: bool,
    reading: bool,
    due: Instant,
}

/// One process's detector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Detector {
    targets: Vec<Target>,
    round: u32,
}

impl Target {
    /// Whether what was read makes it a suspect. Both rules date from the completion of one READ to
    /// the post of a later one, so a slow fabric delays a suspicion and never causes one.
    fn stands_still(&self, config: &Config) -> bool {
        match self.word {
            Word::Heartbeat => self.same >= config.timing.heartbeat_confirm,
            // It is its predecessor's to accuse, unless that stands still as well.
            Word::Peer => self.same >= config.timing.heartbeat_confirm.saturating_mul(2),
            Word::Progress(within) => self.same > 1 && self.posted.since(self.since) >= within,
        }
    }

    fn pause(&self, config: &Config) -> Nanos {
        match self.word {
            Word::Heartbeat | Word::Peer => config.timing.heartbeat_period,
            // A promise is found broken at most a quarter late.
            Word::Progress(within) => Nanos(within.0 / 4),
        }
    }
}

impl Detector {
    /// Watches whom `me` has to watch in this view; who was watched before keeps its history.
    /// `promises` are those of programs in the own seats.
    pub fn follow(
        &mut self,
        view: &View,
        me: Incarnation,
        promises: impl Iterator<Item = (Incarnation, Nanos)>,
        config: &Config,
        now: Instant,
    ) {
        let ring = || view.members.iter().filter(|m| m.has_core());
        let successor = ring().find(|m| m.incarnation > me).or_else(|| ring().next());
        let own = ring().find(|m| m.incarnation == me);
        let successor = successor.filter(|m| own.is_some() && m.incarnation != me);
        let apps = view.of_kind(Kind::App).filter(|m| m.host == me);
        let beats = successor.into_iter().chain(apps).map(|m| (m, Word::Heartbeat));
        let coordinates = own.is_some_and(|m| m.kind == Kind::Coordinator);
        let peers = view.of_kind(Kind::Coordinator);
        let peers = peers.filter(|m| coordinates && m.incarnation != me && successor != Some(m));
        let beats = beats.chain(peers.map(|m| (m, Word::Peer)));
        let promises = promises.filter_map(|(who, within)| Some((view.member(who)?, Word::Progress(within))));
        let wanted = beats.chain(promises);
        let old = core::mem::take(&mut self.targets);
        self.targets = wanted
            .map(|(m, word)| match old.iter().find(|t| (t.incarnation, t.word) == (m.incarnation, word)) {
                // A READ that is out belongs to the old list and will not be recognised: read
                // again.
                Some(t) => Target { reading: false, ..t.clone() },
                None => Target {
                    incarnation: m.incarnation,
                    address: m.address,
                    word,
                    last: None,
                    same: 0,
                    since: now,
                    posted: now,
                    suspected: false,
                    reading: false,
                    due: now + config.timing.heartbeat_period,
                },
            })
            .collect();
        self.round = self.round.wrapping_add(1);
    }

    /// Watches nobody.
    pub fn clear(&mut self) {
        self.targets.clear();
        self.round = self.round.wrapping_add(1);
    }

    /// When the next READ is due.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.targets.iter().filter(|t| !t.reading).map(|t| t.due).min().unwrap_or(Instant::NEVER)
    }

    /// Posts the READs that are due.
    pub fn tick<F: Fabric>(&mut self, config: &Config, now: Instant, fabric: &mut F) {
        for (at, target) in self.targets.iter_mut().enumerate() {
            if target.reading || target.due > now {
                continue;
            }
            target.reading = true;
            target.posted = now;
            let offset = match target.word {
                Word::Heartbeat | Word::Peer => config.layout.heartbeat(target.address.seat),
                Word::Progress(_) => config.layout.progress(target.address.seat),
            };
            let token = tokens::pack(Part::Heartbeat, at as u16, self.round);
            fabric.read(Remote { at: target.address, offset }, 8, token);
        }
    }

    /// Takes the completion of a READ.
    pub fn complete(
        &mut self,
        peer: u16,
        round: u32,
        result: &Result<Completion<'_>, LinkError>,
        config: &Config,
        now: Instant,
    ) -> Option<Verdict> {
        if round != self.round {
            return None;
        }
        let target = self.targets.get_mut(usize::from(peer))?;
        target.reading = false;
        target.due = now + target.pause(config);
        let level = match *result {
            Ok(Completion::Read(bytes)) => {
                let value = bytes.try_into().map(u64::from_le_bytes).ok()?;
                if target.last == Some(value) {
                    target.same = target.same.saturating_add(1);
                } else {
                    target.same = 1;
                    target.since = now;
                    target.last = Some(value);
                }
                if !target.stands_still(config) {
                    let moved = target.same == 1 && core::mem::take(&mut target.suspected);
                    return moved.then_some(Verdict::Retract(target.incarnation));
                }
                match target.word {
                    Word::Heartbeat | Word::Peer => Level::Heartbeat,
                    Word::Progress(_) => Level::Progress,
                }
            }
            Err(LinkError::PeerReplaced) => Level::Replaced,
            // The fault is this process's own.
            Err(LinkError::Unmapped) => return None,
            _ => Level::Timeout,
        };
        if core::mem::replace(&mut target.suspected, true) {
            return None;
        }
        Some(Verdict::Suspect(target.incarnation, level))
    }
}
