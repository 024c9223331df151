//! Defects of a fabric, planted between the tests and a backend.

use crate::suite::{Fault, Feature, ME, PEER, Post, Testbed};
use crate::support::{Probe, Seen};
use obol_fabric::metrics::FabricCounter;
use obol_fabric::{Address, Evidence, Group, Layout, LinkError, Nanos, Permission, Remote, ViewId, Writers};
use std::cell::Cell;
use std::collections::HashMap;

/// A defect of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    Reorders,
    /// Does not fail an operation after an earlier failure.
    ForgetsFailures,
    LosesCompletions,
    RepeatsCompletions,
    LosesUnsignaledWrites,
    SwapsAlways,
    TearsWords,
    WrapsOffsets,
    IgnoresGenerations,
    AnswersForTheDead,
    LosesMemoryOfTheDead,
    IgnoresFences,
    CutsDatagramsShort,
    ForgetsSenders,
    LosesNothing,
    IgnoresCuts,
    IgnoresGroups,
    EchoesMulticast,
    ReportsTheFrozen,
    RepeatsDeaths,
    LosesProofs,
    IgnoresUnwatch,
    DeclaresRightsThatItHasNot,
    IgnoresPermits,
    /// Completes a change of permissions before it is in force.
    PermitsEarly,
    /// Grants before it revokes.
    GrantsFirst,
    /// Changes the permissions on all of the memory.
    IgnoresParts,
}

/// The token of what is posted late.
const LATE: u64 = u64::MAX;

thread_local! {
    pub(crate) static PRESENT: Cell<Option<Defect>> = const { Cell::new(None) };
}

/// What defects are planted in.
pub(crate) trait Sound: Testbed {
    /// Turns after which a change of permissions is posted late. One turn after the other, the peers'
    /// WRITEs are executed meanwhile.
    const LATE_BY: u32;
    /// The time after which a test with a defect hangs.
    const HANGS_AFTER: Nanos;

    /// Has processes that start find their memory empty, if the testbed can.
    fn lose_memory(&mut self) {}
}

/// A fabric with the defect that is [`PRESENT`].
pub(crate) struct Broken<B> {
    bed: B,
    defect: Option<Defect>,
    /// The expected values of pending CASes.
    swaps: HashMap<u64, u64>,
    /// Whether there is a lease page.
    published: bool,
    /// The last word read.
    last: Vec<u8>,
    /// Changes of permissions that are posted in this many turns.
    late: Vec<(u32, Post)>,
}

impl<B: Sound> Broken<B> {
    fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// The post in place of this one.
    fn instead(&mut self, post: &Post) -> Option<Post> {
        let bytes = self.layout().bytes() as u32;
        let ignores = self.is(Defect::IgnoresGenerations);
        let wraps = self.is(Defect::WrapsOffsets);
        let place = |at: Remote| Remote {
            at: if ignores { at.at.owner() } else { at.at },
            offset: if wraps { at.offset % bytes / 64 * 64 } else { at.offset },
        };
        Some(match post.clone() {
            Post::Read(from, len, token) => {
                Post::Read(place(from), if wraps { len.min(8) } else { len }, token)
            }
            Post::Write(to, bytes, token) => Post::Write(place(to), bytes, token),
            Post::WriteUnsignaled(..) if self.is(Defect::LosesUnsignaledWrites) => return None,
            Post::Cas(at, expected, desired, token) if self.is(Defect::SwapsAlways) => {
                self.swaps.insert(token, expected);
                Post::Write(at, desired.to_le_bytes().to_vec(), token)
            }
            Post::Cas(at, expected, desired, token) => Post::Cas(place(at), expected, desired, token),
            Post::Multicast(_, bytes) if self.is(Defect::IgnoresGroups) => {
                Post::Multicast(Group::Everyone, bytes)
            }
            Post::Multicast(group, bytes) if self.is(Defect::EchoesMulticast) => {
                self.probe().datagrams.push((Address::region(ME), bytes.clone()));
                Post::Multicast(group, bytes)
            }
            Post::Publish(_) => {
                self.published = true;
                post.clone()
            }
            Post::Permit(whom, permission, token)
                if self.is(Defect::IgnoresPermits) || self.is(Defect::PermitsEarly) =>
            {
                if self.is(Defect::PermitsEarly) {
                    self.late.push((B::LATE_BY, Post::Permit(whom, permission, LATE)));
                }
                // Of a process that does not exist.
                Post::Permit(Writers::Process(Address::region(63)), permission, token)
            }
            Post::PermitPart(whom, _, permission, token) if self.is(Defect::IgnoresParts) => {
                Post::Permit(whom, permission, token)
            }
            Post::Unwatch(_) if self.is(Defect::IgnoresUnwatch) => return None,
            other => other,
        })
    }

    /// Acts after this many completions, datagrams and deaths.
    fn spoil(&mut self, [from, datagrams, deaths]: [usize; 3]) {
        let Some(defect) = self.defect else { return };
        let probe = self.bed.probe();
        for (token, result) in &mut probe.completions[from..] {
            match (defect, &mut *result) {
                (Defect::SwapsAlways, Ok(Seen::Written)) => {
                    let Some(expected) = self.swaps.remove(&token.0) else { continue };
                    *result = Ok(Seen::Swapped(expected));
                }
                (Defect::TearsWords, Ok(Seen::Read(bytes))) if bytes.len() == 8 => {
                    let now = bytes.clone();
                    if self.last.len() == 8 {
                        bytes[4..].copy_from_slice(&self.last[4..]);
                    }
                    self.last = now;
                }
                (Defect::AnswersForTheDead, Err(LinkError::PeerDead)) => *result = Ok(Seen::Written),
                _ => {}
            }
        }
        if probe.completions.len() > from + 10 {
            match defect {
                Defect::LosesCompletions => drop(probe.completions.remove(from + 5)),
                Defect::RepeatsCompletions => probe.completions.push(probe.completions[from].clone()),
                _ => {}
            }
        }
        for (sender, bytes) in &mut probe.datagrams[datagrams..] {
            match defect {
                Defect::CutsDatagramsShort if bytes.len() > 1 => drop(bytes.pop()),
                Defect::ForgetsSenders => *sender = Address::default(),
                _ => {}
            }
        }
        match defect {
            Defect::RepeatsDeaths => probe.deaths.extend_from_within(deaths..),
            Defect::LosesProofs => probe.deaths.retain(|(_, evidence)| *evidence != Evidence::Proof),
            _ => {}
        }
    }
}

impl<B: Sound> Testbed for Broken<B> {
    const NAME: &'static str = "a broken fabric";
    const LACKS: &'static [(Feature, &'static str)] = &[];
    const HANG_TIMEOUT: Nanos = B::HANGS_AFTER;

    fn new() -> Option<Self> {
        let mut bed = B::new()?;
        let defect = PRESENT.get();
        if defect == Some(Defect::LosesMemoryOfTheDead) {
            bed.lose_memory();
        }
        Some(Self {
            bed,
            defect,
            swaps: HashMap::new(),
            published: false,
            last: Vec::new(),
            late: Vec::new(),
        })
    }

    fn layout(&self) -> Layout {
        self.bed.layout()
    }

    fn now(&self) -> Nanos {
        self.bed.now()
    }

    fn probe(&mut self) -> &mut Probe {
        self.bed.probe()
    }

    fn post(&mut self, posts: &[Post]) {
        let mut posts: Vec<Post> = posts.iter().filter_map(|post| self.instead(post)).collect();
        if self.is(Defect::GrantsFirst) {
            posts.sort_by_key(|post| !matches!(post, Post::Permit(_, Permission::Granted, _)));
        }
        if self.is(Defect::Reorders) {
            posts.reverse();
        }
        if !self.is(Defect::ForgetsFailures) {
            return self.bed.post(&posts);
        }
        for post in posts {
            self.bed.post(&[post]);
            (0..200).for_each(|_| self.bed.turn());
        }
    }

    fn turn(&mut self) {
        for (turns, post) in &mut self.late {
            *turns -= 1;
            if *turns == 0 {
                self.bed.post(core::slice::from_ref(post));
            }
        }
        self.late.retain(|(turns, _)| *turns > 0);
        let probe = self.bed.probe();
        let before = [probe.completions.len(), probe.datagrams.len(), probe.deaths.len()];
        self.bed.turn();
        self.bed.probe().completions.retain(|(token, _)| token.0 != LATE);
        self.spoil(before);
    }

    fn is_active(&self, view: ViewId) -> bool {
        self.bed.is_active(view) || self.is(Defect::IgnoresFences) && self.published && view == ViewId(7)
    }

    fn counter(&self, counter: FabricCounter) -> u64 {
        self.bed.counter(counter)
    }

    fn start(&mut self, region: u32) -> Address {
        self.bed.start(region)
    }

    fn start_member(&mut self) -> Address {
        self.bed.start_member()
    }

    fn kill(&mut self, region: u32) {
        self.bed.kill(region);
    }

    fn freeze(&mut self, region: u32) {
        self.bed.freeze(region);
        if self.is(Defect::ReportsTheFrozen) {
            self.probe().deaths.push((Address::region(PEER), Evidence::Suspicion));
        }
    }

    fn thaw(&mut self, region: u32) {
        self.bed.thaw(region);
    }

    fn is_connected(&self, to: u32) -> bool {
        self.bed.is_connected(to)
    }

    fn impair(&mut self, region: u32, fault: Fault) {
        let ignored = match fault {
            Fault::Loss => self.is(Defect::LosesNothing),
            Fault::Cut => self.is(Defect::IgnoresCuts),
            Fault::None => false,
        };
        if !ignored {
            self.bed.impair(region, fault);
        }
    }
}
