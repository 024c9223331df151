//! The obligations of every backend to the protocol ([`obol_fabric::contract`]), as tests that are
//! independent of backends.
//!
//! A backend implements [`Testbed`] and invokes `contract!(ItsTestbed);` in a module of its own.

use crate::support::{Probe, SCRIBBLE, Seen};
use obol_fabric::metrics::FabricCounter;
use obol_fabric::{
    Address, Evidence, Fabric, Group, Instant, Layout, LinkError, Nanos, Page, Permission, Remote, Token,
    ViewId, Writers,
};
use std::ops::Range;

// Beside this file, also where that is a module of another test.
#[path = "permits.rs"]
mod permits;

pub(crate) use permits::*;

/// The coordinator that the test drives, and two more, whose memory outlives them.
pub(crate) const ME: u32 = 1;
pub(crate) const PEER: u32 = 2;
const OTHER: u32 = 3;
/// No process ever has this region.
const NEVER: Address = Address::region(7);

/// A feature that a backend may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// A region restricts the operations of its peers.
    Rights,
    /// A process changes whose WRITEs are executed.
    Permits,
    /// It names the part of its memory, to which that applies, by the change, not before.
    Parts,
    /// Links can be made to lose datagrams.
    Loss,
    /// Links can be cut.
    Cuts,
    /// Dropped datagrams for lack of room are counted at their sender.
    CountsLosses,
    /// A long READ is torn now and then, so that a test can wait for it.
    TearsOften,
    /// A death is proved without a successor.
    ProvesDeaths,
}

/// The impairment of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Half of the datagrams are lost.
    Loss,
    /// Nothing gets through either way.
    Cut,
}

/// What is posted to the fabric; numbers are tokens.
#[derive(Clone, Debug)]
pub(crate) enum Post {
    Read(Remote, u32, u64),
    Write(Remote, Vec<u8>, u64),
    WriteUnsignaled(Remote, Vec<u8>, u64),
    /// Expected, desired.
    Cas(Remote, u64, u64, u64),
    /// On all value areas.
    Permit(Writers, Permission, u64),
    /// On a part of them.
    PermitPart(Writers, Range<u32>, Permission, u64),
    Send(Address, Vec<u8>),
    Multicast(Group, Vec<u8>),
    Watch(Address),
    Unwatch(Address),
    Publish(Page),
}

impl Post {
    pub(crate) fn post(&self, fabric: &mut impl Fabric) {
        match self {
            Self::Read(from, len, token) => fabric.read(*from, *len, Token(*token)),
            Self::Write(to, bytes, token) => fabric.write(*to, bytes, Token(*token)),
            Self::WriteUnsignaled(to, bytes, token) => fabric.write_unsignaled(*to, bytes, Token(*token)),
            Self::Cas(at, expected, desired, token) => fabric.cas(*at, *expected, *desired, Token(*token)),
            Self::Permit(whom, permission, token) => {
                fabric.permit(*whom, 0..u32::MAX, *permission, Token(*token));
            }
            Self::PermitPart(whom, part, permission, token) => {
                fabric.permit(*whom, part.clone(), *permission, Token(*token));
            }
            Self::Send(to, bytes) => fabric.send(*to, bytes),
            Self::Multicast(group, bytes) => fabric.multicast(*group, bytes),
            Self::Watch(whom) => fabric.watch(*whom),
            Self::Unwatch(whom) => fabric.unwatch(*whom),
            Self::Publish(page) => fabric.publish_page(page),
        }
    }

    /// The operation whose completion is awaited.
    const fn token(&self) -> Option<u64> {
        match self {
            Self::Read(_, _, token)
            | Self::Write(_, _, token)
            | Self::Permit(_, _, token)
            | Self::PermitPart(_, _, _, token)
            | Self::Cas(_, _, _, token) => Some(*token),
            _ => None,
        }
    }
}

/// A cluster on one backend: the coordinator [`ME`], whose [`Probe`] the test holds, and peers that
/// return each datagram to its sender ([`crate::support::Actor`]).
pub(crate) trait Testbed: Sized {
    /// Its name in messages.
    const NAME: &'static str;
    /// The missing features, with reasons.
    const LACKS: &'static [(Feature, &'static str)];
    /// The time, by [`Testbed::now`], after which a test hangs.
    const HANG_TIMEOUT: Nanos;

    /// Without peers; `None` if this backend cannot run here, which has been reported and counted.
    fn new() -> Option<Self>;
    fn layout(&self) -> Layout;
    fn now(&self) -> Nanos;
    fn probe(&mut self) -> &mut Probe;
    /// Posts all of this in one step.
    fn post(&mut self, posts: &[Post]);
    /// Lets the driven process handle pending events.
    fn turn(&mut self);
    fn is_active(&self, view: ViewId) -> bool;
    fn counter(&self, counter: FabricCounter) -> u64;

    /// Starts a process in a coordinator's region, as a successor or the first. The driven process
    /// takes no turn meanwhile.
    fn start(&mut self, region: u32) -> Address;
    /// Starts a process whose only group is everyone's.
    fn start_member(&mut self) -> Address;
    /// Returns when the process has ended.
    fn kill(&mut self, region: u32);
    fn freeze(&mut self, region: u32);
    fn thaw(&mut self, region: u32);
    /// Whether all connections to a peer are made, after it has answered.
    fn is_connected(&self, _to: u32) -> bool {
        true
    }
    /// Sets the impairment of a coordinator's links.
    fn impair(&mut self, region: u32, fault: Fault);
}

/// A running test: [`PEER`] runs and is reachable.
pub(crate) struct Case<B: Testbed> {
    bed: B,
    layout: Layout,
    peer: Address,
}

type Completions = Vec<(u64, Result<Seen, LinkError>)>;

/// Runs a test, where its backend can run.
pub(crate) fn run<B: Testbed>(test: fn(&mut Case<B>)) {
    let Some(mut bed) = B::new() else { return };
    let (layout, peer) = (bed.layout(), bed.start(PEER));
    let mut case = Case { bed, layout, peer };
    case.reach(peer);
    test(&mut case);
}

impl<B: Testbed> Case<B> {
    /// Whether the backend has this feature. A missing one is printed.
    fn has(feature: Feature) -> bool {
        let lack = B::LACKS.iter().find(|(lacking, _)| *lacking == feature);
        if let Some((_, why)) = lack {
            eprintln!("{} lacks {feature:?}: {why}", B::NAME);
        }
        lack.is_none()
    }

    fn slot(&self, id: u64) -> Remote {
        Remote { at: Address::region(PEER), offset: self.layout.slot(id) }
    }

    fn value(&self, id: u64) -> Remote {
        Remote { at: Address::region(PEER), offset: self.layout.value(id, 1) }
    }

    #[track_caller]
    fn until(&mut self, mut done: impl FnMut(&mut Probe) -> bool) {
        let start = self.bed.now();
        while !done(self.bed.probe()) {
            assert!(self.bed.now().0 - start.0 < B::HANG_TIMEOUT.0, "{}: this hangs", B::NAME);
            self.bed.turn();
        }
    }

    /// Enough turns for an unexpected event.
    fn settle(&mut self) {
        (0..200).for_each(|_| self.bed.turn());
    }

    /// Takes the completions of all posts; there must be no others.
    #[track_caller]
    fn completions(&mut self, n: usize) -> Completions {
        self.until(|probe| probe.completions.len() >= n);
        let taken = core::mem::take(&mut self.bed.probe().completions);
        assert_eq!(taken.len(), n, "{taken:?}");
        taken.into_iter().map(|(token, result)| (token.0, result)).collect()
    }

    /// Posts, and takes the completions.
    #[track_caller]
    fn run(&mut self, posts: &[Post]) -> Completions {
        self.bed.post(posts);
        self.completions(posts.iter().filter_map(Post::token).count())
    }

    /// The value of a word.
    #[track_caller]
    fn word(&mut self, at: Remote) -> u64 {
        match &self.run(&[Post::Read(at, 8, 0)])[..] {
            [(0, Ok(Seen::Read(bytes)))] => u64::from_le_bytes(bytes[..].try_into().expect("a word")),
            other => panic!("{other:?}"),
        }
    }

    /// READs until there is an answer, and all connections are made.
    #[track_caller]
    fn reach(&mut self, at: Address) {
        let start = self.bed.now();
        while self.run(&[Post::Read(Remote { at, offset: 0 }, 8, 0)])[0].1.is_err()
            || !self.bed.is_connected(at.region)
        {
            assert!(self.bed.now().0 - start.0 < B::HANG_TIMEOUT.0, "{}: {at} is not reached", B::NAME);
            self.bed.turn();
        }
    }

    /// Kills the peer, and waits until all posts to it fail.
    #[track_caller]
    fn lose_peer(&mut self) {
        self.bed.kill(PEER);
        let start = self.bed.now();
        loop {
            let posts = [
                Post::Write(self.value(6), vec![1; 64], 0),
                Post::Cas(self.slot(6), 0, 0, 1),
                Post::Read(self.slot(6), 8, 2),
            ];
            // Its memory may remain for a while.
            let results = self.run(&posts);
            // READs change nothing.
            assert!(
                results[..2].is_sorted_by_key(|(_, result)| result.is_err()),
                "later without earlier: {results:?}"
            );
            if results[0].1.is_err() && results[2].1.is_err() {
                assert!(results.iter().all(|(_, result)| *result == Err(LinkError::PeerDead)), "{results:?}");
                return;
            }
            assert!(self.bed.now().0 - start.0 < B::HANG_TIMEOUT.0, "{}: the dead answers", B::NAME);
            self.bed.turn();
        }
    }

    /// Starts a later process in the peer's region.
    fn replace_peer(&mut self) -> Address {
        let new = self.bed.start(PEER);
        assert_eq!(new.generation, self.peer.generation + 1);
        self.reach(new);
        new
    }

    /// Sends a datagram repeatedly until it comes back.
    #[track_caller]
    fn echo(&mut self, to: Address, bytes: &[u8]) -> Address {
        let start = self.bed.now();
        loop {
            self.bed.post(&[Post::Send(to, bytes.to_vec())]);
            self.settle();
            let found = self.bed.probe().datagrams.iter().find(|(_, echo)| echo == bytes);
            if let Some((from, _)) = found {
                return *from;
            }
            assert!(self.bed.now().0 - start.0 < B::HANG_TIMEOUT.0, "{}: no echo from {to}", B::NAME);
        }
    }

    /// The numbers that were sent and came back, each once.
    fn echoed(&mut self) -> Vec<u8> {
        let numbered = self.bed.probe().datagrams.iter().filter(|(_, bytes)| bytes.len() == 1);
        let mut numbers: Vec<u8> = numbered.map(|(_, bytes)| bytes[0]).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    fn deaths(&mut self) -> Vec<(Address, Evidence)> {
        self.bed.probe().deaths.clone()
    }
}

fn bytes_of(word: u64) -> Result<Seen, LinkError> {
    Ok(Seen::Read(word.to_le_bytes().to_vec()))
}

/// Hands the names of all tests to a macro.
macro_rules! each_contract_test {
    ($with:ident! $($arguments:tt)*) => {
        $with! { $($arguments)*
            operations_are_executed_and_complete_in_the_order_of_their_posts
            a_burst_keeps_its_order
            an_unsignaled_write_is_executed_in_its_place
            a_word_is_read_whole_and_more_may_be_torn
            the_own_region_takes_the_same_path
            an_operation_outside_of_a_region_or_on_none_fails
            a_frozen_process_is_read_written_and_swapped_and_not_reported
            operations_on_the_dead_fail
            what_is_posted_before_a_failure_was_taken_fails_with_it
            a_successor_is_not_its_predecessor_and_a_coordinators_memory_outlives_it
            a_fence_is_seen_by_who_is_fenced
            a_peer_without_the_right_changes_nothing
            no_revoked_write_is_executed_after_the_permits_completion
            changes_of_permissions_take_effect_in_the_order_of_their_posts
            a_permission_concerns_its_part_of_the_memory_alone
            a_datagram_arrives_whole_with_its_sender
            what_is_too_long_or_for_no_process_is_lost
            a_receiver_that_does_not_take_its_datagrams_loses_some
            a_lossy_link_loses_some_datagrams_and_no_operation
            a_multicast_reaches_its_group_and_not_its_sender
            over_a_link_that_is_cut_nothing_gets_through_and_no_death_is_reported
            a_death_is_reported_once_as_a_suspicion_and_once_as_a_proof
            a_process_that_died_before_it_was_watched_is_reported
            a_process_that_is_not_watched_any_more_is_not_reported
        }
    };
}
pub(crate) use each_contract_test;

/// All tests of the contract for a [`Testbed`].
macro_rules! contract {
    ($testbed:ty) => { crate::suite::each_contract_test!(contract_tests! $testbed,); };
}
pub(crate) use contract;

macro_rules! contract_tests {
    ($testbed:ty, $($test:ident)+) => {
        $(#[test]
        fn $test() {
            crate::suite::run::<$testbed>(crate::suite::$test);
        })+
    };
}
pub(crate) use contract_tests;

/// The common part of testbeds whose peers are processes listed by the cluster in this field.
macro_rules! of_processes {
    ($cluster:ident) => {
        fn layout(&self) -> Layout {
            *self.$cluster.layout()
        }

        fn now(&self) -> Nanos {
            Nanos(clock::now().0)
        }

        fn probe(&mut self) -> &mut Probe {
            &mut self.probe
        }

        fn post(&mut self, posts: &[Post]) {
            posts.iter().for_each(|post| post.post(&mut self.me));
            self.me.flush();
        }

        fn turn(&mut self) {
            self.me.poll_once(&mut self.probe);
            std::thread::yield_now();
        }

        fn is_active(&self, view: ViewId) -> bool {
            self.me.is_active(view)
        }

        fn counter(&self, counter: FabricCounter) -> u64 {
            self.me.region().reader().counters(0)[counter as usize]
        }

        fn kill(&mut self, region: u32) {
            drop(self.peers.remove(&region));
        }

        fn freeze(&mut self, region: u32) {
            kill(&self.peers[&region], "STOP");
        }

        fn thaw(&mut self, region: u32) {
            kill(&self.peers[&region], "CONT");
        }

        fn impair(&mut self, region: u32, fault: Fault) {
            let impairment = match fault {
                Fault::None => Impairment::default(),
                Fault::Loss => Impairment { loss_percent: 50, ..Impairment::default() },
                Fault::Cut => Impairment { island: 1, ..Impairment::default() },
            };
            let generation = self.$cluster.region_info(region).expect("it was started").generation;
            assert!(self.$cluster.impair(region, generation, impairment));
        }
    };
}
pub(crate) use of_processes;

pub(crate) fn operations_are_executed_and_complete_in_the_order_of_their_posts<B: Testbed>(
    case: &mut Case<B>,
) {
    let value: Vec<u8> = (0..512u32).map(|n| n as u8).collect();
    let (a, b) = (case.value(3), case.value(4));
    let slot = case.slot(3);
    let results = case.run(&[
        Post::Write(a, value.clone(), 0),
        Post::Cas(slot, 0, 77, 1),
        Post::Read(a, 512, 2),
        Post::Write(b, value[..64].to_vec(), 3),
        Post::Write(b, value[8..16].to_vec(), 4),
        Post::Cas(slot, 77, 78, 5),
        Post::Cas(slot, 77, 79, 6),
        Post::Read(slot, 8, 7),
        Post::Read(b, 16, 8),
    ]);
    let twice = [&value[8..16], &value[8..16]].concat();
    let wanted = [
        Seen::Written,
        Seen::Swapped(0),
        Seen::Read(value),
        Seen::Written,
        Seen::Written,
        Seen::Swapped(77),
        Seen::Swapped(78),
        Seen::Read(78u64.to_le_bytes().to_vec()),
        Seen::Read(twice),
    ];
    assert_eq!(results, (0..).zip(wanted.map(Ok)).collect::<Completions>());
}

pub(crate) fn a_burst_keeps_its_order<B: Testbed>(case: &mut Case<B>) {
    // More than a device takes at once.
    let posts: Vec<Post> = (0..3000).map(|n| Post::Cas(case.slot(1), n, n + 1, n)).collect();
    let wanted: Completions = (0..3000).map(|n| (n, Ok(Seen::Swapped(n)))).collect();
    assert_eq!(case.run(&posts), wanted);
}

pub(crate) fn an_unsignaled_write_is_executed_in_its_place<B: Testbed>(case: &mut Case<B>) {
    let value = case.value(2);
    case.bed.post(&[
        Post::Write(value, vec![1; 8], 0),
        Post::WriteUnsignaled(value, vec![2; 8], 1),
        Post::Read(value, 8, 2),
    ]);
    case.until(|probe| probe.read(Token(2)).is_some());
    assert_eq!(case.bed.probe().read(Token(2)), Some(vec![2; 8]));
    assert_eq!(case.bed.probe().failures(), []);
}

pub(crate) fn a_word_is_read_whole_and_more_may_be_torn<B: Testbed>(case: &mut Case<B>) {
    // From now on the peer rewrites its own value area, all words alike, repeatedly.
    let (word, area) = (case.slot(SCRIBBLE), case.value(SCRIBBLE));
    case.run(&[Post::Cas(word, 0, 1, 0)]);
    let often = Case::<B>::has(Feature::TearsOften);
    let (mut seen, mut torn) = (std::collections::BTreeSet::new(), 0);
    let start = case.bed.now();
    for round in 0.. {
        for (_, result) in case.run(&[Post::Read(area, 8, 0), Post::Read(area, 64, 1)]) {
            let Ok(Seen::Read(bytes)) = result else { panic!("{result:?}") };
            for word in bytes.chunks(8) {
                assert!(word.iter().all(|byte| *byte == word[0]), "half a word: {word:?}");
                seen.insert(word[0]);
            }
            torn += u32::from(bytes.iter().any(|byte| *byte != bytes[0]));
        }
        if round >= 100 && seen.len() > 2 && (torn > 2 || !often) {
            break;
        }
        assert!(case.bed.now().0 - start.0 < B::HANG_TIMEOUT.0, "{}: {torn} torn, seen {seen:?}", B::NAME);
    }
}

pub(crate) fn the_own_region_takes_the_same_path<B: Testbed>(case: &mut Case<B>) {
    let own = Remote { at: Address::region(ME), offset: case.layout.slot(5) };
    let results = case.run(&[Post::Cas(own, 0, 3, 0), Post::Cas(own, 0, 4, 1), Post::Read(own, 8, 2)]);
    assert_eq!(results, [(0, Ok(Seen::Swapped(0))), (1, Ok(Seen::Swapped(3))), (2, bytes_of(3))]);
}

pub(crate) fn an_operation_outside_of_a_region_or_on_none_fails<B: Testbed>(case: &mut Case<B>) {
    let end = case.layout.bytes() as u32;
    let at = |offset| Remote { at: Address::region(PEER), offset };
    let (slot, value) = (case.slot(0), case.value(0));
    let misaligned = Remote { offset: slot.offset + 4, ..slot };
    let outside = |post| (post, LinkError::OutOfBounds);
    let nowhere = |at| (Post::Read(Remote { at, offset: 0 }, 8, 0), LinkError::PeerReplaced);
    for (post, error) in [
        outside(Post::Read(at(end - 8), 16, 0)),
        outside(Post::Read(at(end), 8, 0)),
        outside(Post::Read(at(u32::MAX - 7), 16, 0)),
        outside(Post::Read(at(0), u32::MAX, 0)),
        outside(Post::Read(at(4), 8, 0)),
        outside(Post::Cas(misaligned, 0, 1, 0)),
        outside(Post::Cas(at(end), 0, 1, 0)),
        outside(Post::Write(value, vec![1; 12], 0)),
        nowhere(NEVER),
        nowhere(Address::region(u32::MAX)),
    ] {
        assert_eq!(case.run(core::slice::from_ref(&post)), [(0, Err(error))], "{post:?}");
        assert_eq!(case.word(slot), 0, "nothing was executed, and the link works: {post:?}");
    }
    assert_eq!(case.word(value), 0);
}

pub(crate) fn a_frozen_process_is_read_written_and_swapped_and_not_reported<B: Testbed>(case: &mut Case<B>) {
    let peer = case.peer;
    case.bed.post(&[Post::Watch(peer)]);
    case.bed.freeze(PEER);
    let (slot, value) = (case.slot(1), case.value(1));
    for round in 0..50u8 {
        let n = u64::from(round);
        let posts = [
            Post::Write(value, vec![round; 512], 0),
            Post::Cas(slot, n, n + 1, 1),
            Post::Read(value, 512, 2),
        ];
        let wanted = [Seen::Written, Seen::Swapped(n), Seen::Read(vec![round; 512])];
        assert_eq!(case.run(&posts), (0..).zip(wanted.map(Ok)).collect::<Completions>());
    }
    case.bed.post(&[Post::Send(peer, b"frozen".to_vec())]);
    case.settle();
    assert_eq!(case.bed.probe().datagrams.iter().filter(|(_, bytes)| bytes == b"frozen").count(), 0);
    case.bed.thaw(PEER);
    case.echo(peer, b"thawed");
    assert_eq!(case.deaths(), []);
}

pub(crate) fn operations_on_the_dead_fail<B: Testbed>(case: &mut Case<B>) {
    case.lose_peer();
    for at in [case.peer, Address::region(PEER)] {
        let word = Remote { at, offset: case.layout.slot(0) };
        let posts =
            [Post::Read(word, 8, 0), Post::Write(case.value(0), vec![1; 8], 1), Post::Cas(word, 0, 1, 2)];
        assert_eq!(case.run(&posts), [0, 1, 2].map(|token| (token, Err(LinkError::PeerDead))));
    }
}

pub(crate) fn what_is_posted_before_a_failure_was_taken_fails_with_it<B: Testbed>(case: &mut Case<B>) {
    let (slot, value) = (case.slot(0), case.value(0));
    // The first WRITE may still be executed: a killed process leaves its memory later.
    for _ in 0..20 {
        case.bed.kill(PEER);
        case.bed.post(&[Post::Write(value, vec![1; 8], 0)]);
        // The successor answers long before the WRITE's completion is taken.
        case.peer = case.bed.start(PEER);
        case.bed.post(&[Post::Cas(slot, 0, 1, 1), Post::Read(slot, 8, 2)]);
        let results = case.completions(3);
        assert!(
            results.iter().map(|(token, _)| *token).eq(0..3)
                && results.is_sorted_by_key(|(_, result)| result.is_err()),
            "{results:?}"
        );
        let peer = case.peer;
        case.reach(peer);
        if results[0].1.is_err() {
            assert_eq!(case.word(slot), 0, "the CAS must not reach the successor");
            return;
        }
        let before = case.word(slot);
        assert_eq!(case.run(&[Post::Cas(slot, before, 0, 0)]), [(0, Ok(Seen::Swapped(before)))]);
    }
    panic!("{}: a dead process answered each time", B::NAME);
}

pub(crate) fn a_successor_is_not_its_predecessor_and_a_coordinators_memory_outlives_it<B: Testbed>(
    case: &mut Case<B>,
) {
    let (slot, value) = (case.slot(5), case.value(5));
    let written = [Post::Write(value, vec![0xab; 64], 0), Post::Cas(slot, 0, 77, 1)];
    assert_eq!(case.run(&written), [(0, Ok(Seen::Written)), (1, Ok(Seen::Swapped(0)))]);
    case.lose_peer();
    let old = case.peer;
    let new = case.replace_peer();
    let of = |at, slot| Remote { at, ..slot };
    for post in [
        Post::Read(of(old, slot), 8, 0),
        Post::Write(of(old, value), vec![1; 8], 0),
        Post::Cas(of(old, slot), 77, 78, 0),
    ] {
        assert_eq!(case.run(core::slice::from_ref(&post)), [(0, Err(LinkError::PeerReplaced))], "{post:?}");
    }
    let results = case.run(&[
        Post::Read(slot, 8, 0),
        Post::Read(of(new, value), 64, 1),
        Post::Cas(of(new, slot), 77, 79, 2),
    ]);
    assert_eq!(results, [(0, bytes_of(77)), (1, Ok(Seen::Read(vec![0xab; 64]))), (2, Ok(Seen::Swapped(77)))]);
    let from = case.echo(Address::region(PEER), b"the live owner");
    assert_eq!((from.region, from.generation), (new.region, new.generation));
}

pub(crate) fn a_fence_is_seen_by_who_is_fenced<B: Testbed>(case: &mut Case<B>) {
    let end = Instant(u64::MAX / 2);
    let page = Page { view: ViewId(7), base: ViewId(7), end, ..Page::default() };
    assert!(!case.bed.is_active(ViewId(7)), "without a page none ever is");
    case.bed.post(&[Post::Publish(page)]);
    assert!(case.bed.is_active(ViewId(7)) && !case.bed.is_active(ViewId(6)));
    let fence = Remote { at: Address::region(ME), offset: case.layout.fence() };
    assert_eq!(case.run(&[Post::Cas(fence, 0, 7, 0)]), [(0, Ok(Seen::Swapped(0)))]);
    assert!(case.bed.is_active(ViewId(7)), "fences are for views before them");
    assert_eq!(case.run(&[Post::Cas(fence, 7, 8, 0)]), [(0, Ok(Seen::Swapped(7)))]);
    assert!(!case.bed.is_active(ViewId(7)));
}

pub(crate) fn a_peer_without_the_right_changes_nothing<B: Testbed>(case: &mut Case<B>) {
    // Coordinators may raise a member's fence, and nothing else there.
    let at = case.bed.start_member();
    case.reach(at);
    let word = |offset| Remote { at, offset };
    let (fence, value) = (word(case.layout.fence()), word(case.layout.value(0, 1)));
    let slot = word(case.layout.slot(0));
    assert_eq!(case.run(&[Post::Cas(fence, 0, 4, 0)]), [(0, Ok(Seen::Swapped(0)))]);
    let refused = Case::<B>::has(Feature::Rights);
    let allow = |seen| if refused { Err(LinkError::Denied) } else { Ok(seen) };
    assert_eq!(case.run(&[Post::Write(value, vec![1; 8], 0)]), [(0, allow(Seen::Written))]);
    assert_eq!(case.run(&[Post::Cas(slot, 0, 1, 0)]), [(0, allow(Seen::Swapped(0)))]);
    let changed = [case.word(value), case.word(slot)].map(|word| word != 0);
    assert_eq!(changed, [!refused; 2]);
    assert_eq!(case.word(fence), 4);
}

pub(crate) fn a_datagram_arrives_whole_with_its_sender<B: Testbed>(case: &mut Case<B>) {
    let peer = case.peer;
    let longest = case.layout.limits().datagram_bytes as usize;
    for len in [1, 8, 13, longest] {
        let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let from = case.echo(peer, &bytes);
        assert_eq!((from.region, from.generation), (peer.region, peer.generation));
    }
    assert_eq!(case.bed.counter(FabricCounter::DatagramsRefused), 0);
    assert!(case.bed.counter(FabricCounter::DatagramsReceived) >= 4);
}

pub(crate) fn what_is_too_long_or_for_no_process_is_lost<B: Testbed>(case: &mut Case<B>) {
    let long = vec![9; case.layout.limits().datagram_bytes as usize + 1];
    let peer = case.peer;
    case.bed.post(&[Post::Send(peer, long.clone()), Post::Send(NEVER, b"nobody".to_vec())]);
    case.echo(peer, b"behind");
    let echoes: Vec<_> = case.bed.probe().datagrams.drain(..).map(|(_, bytes)| bytes).collect();
    assert!(echoes.iter().all(|echo| echo == b"behind"), "{echoes:?}");
    assert!(case.bed.counter(FabricCounter::DatagramsLost) >= 1);
}

pub(crate) fn a_receiver_that_does_not_take_its_datagrams_loses_some<B: Testbed>(case: &mut Case<B>) {
    const SENT: u8 = 64;
    let (peer, slot) = (case.peer, case.slot(0));
    case.echo(peer, b"it has heard of this process");
    case.bed.freeze(PEER);
    let before = case.bed.counter(FabricCounter::DatagramsLost);
    for n in 0..SENT {
        case.bed.post(&[Post::Send(peer, vec![n])]);
        case.bed.turn();
    }
    // A gateway reports losses behind the answers to what came with them: so before the second answer.
    for _ in 0..2 {
        case.word(slot);
    }
    assert_eq!(case.echoed(), []);
    let lost = case.bed.counter(FabricCounter::DatagramsLost) - before;
    case.bed.thaw(PEER);
    case.echo(peer, b"behind");
    if Case::<B>::has(Feature::CountsLosses) {
        let start = case.bed.now();
        while case.echoed().len() as u64 + lost < u64::from(SENT) {
            assert!(case.bed.now().0 - start.0 < B::HANG_TIMEOUT.0, "{}: lost and not counted", B::NAME);
            case.bed.turn();
        }
        assert!(lost > 0 && case.echoed().len() as u64 + lost == u64::from(SENT), "{lost} lost");
    }
    assert!(case.echoed().iter().all(|n| *n < SENT));
}

pub(crate) fn a_lossy_link_loses_some_datagrams_and_no_operation<B: Testbed>(case: &mut Case<B>) {
    const SENT: u8 = 200;
    let (peer, slot) = (case.peer, case.slot(0));
    case.bed.impair(PEER, Fault::Loss);
    for n in 0..SENT {
        case.bed.post(&[Post::Send(peer, vec![n])]);
        assert_eq!(case.word(slot), 0);
        (0..20).for_each(|_| case.bed.turn());
    }
    case.bed.impair(PEER, Fault::None);
    case.echo(peer, b"whole");
    let echoed = case.echoed().len();
    if Case::<B>::has(Feature::Loss) {
        assert!((1..usize::from(SENT)).contains(&echoed), "{echoed} of {SENT}");
    }
}

pub(crate) fn a_multicast_reaches_its_group_and_not_its_sender<B: Testbed>(case: &mut Case<B>) {
    let member = case.bed.start_member();
    case.reach(member);
    let from = |case: &mut Case<B>, text: &[u8]| {
        let echoes = case.bed.probe().datagrams.iter().filter(|(_, bytes)| bytes == text);
        let mut from: Vec<u32> = echoes.map(|(from, _)| from.region).collect();
        from.sort_unstable();
        from.dedup();
        from
    };
    let start = case.bed.now();
    // Receivers may join after they start, and datagrams may be lost.
    while from(case, b"all").len() < 2 || from(case, b"few").is_empty() {
        case.bed.post(&[
            Post::Multicast(Group::Everyone, b"all".to_vec()),
            Post::Multicast(Group::Coordinators, b"few".to_vec()),
        ]);
        case.settle();
        assert!(case.bed.now().0 - start.0 < B::HANG_TIMEOUT.0, "{}: not all answer", B::NAME);
    }
    assert_eq!((from(case, b"all"), from(case, b"few")), (vec![PEER, member.region], vec![PEER]));
}

pub(crate) fn over_a_link_that_is_cut_nothing_gets_through_and_no_death_is_reported<B: Testbed>(
    case: &mut Case<B>,
) {
    let (peer, slot) = (case.peer, case.slot(0));
    case.bed.post(&[Post::Watch(peer)]);
    case.bed.impair(PEER, Fault::Cut);
    let result = case.run(&[Post::Cas(slot, 0, 1, 0)]);
    if !Case::<B>::has(Feature::Cuts) {
        assert_eq!(result, [(0, Ok(Seen::Swapped(0)))], "it is declared that there are no cuts");
        return;
    }
    assert_eq!(result, [(0, Err(LinkError::PeerDead))]);
    case.bed.post(&[Post::Send(peer, b"cut".to_vec()), Post::Multicast(Group::Everyone, b"cut".to_vec())]);
    case.settle();
    let own = Remote { at: Address::region(ME), ..slot };
    assert_eq!(case.word(own), 0, "the own memory does not belong to a peer");
    case.bed.impair(PEER, Fault::None);
    case.reach(peer);
    case.echo(peer, b"whole");
    assert!(case.bed.probe().datagrams.iter().all(|(_, bytes)| bytes != b"cut"));
    assert_eq!(case.word(slot), 0, "what failed does not come back");
    assert_eq!(case.deaths(), []);
}

/// Waits for the proof, with a successor if that is the proof.
fn await_proof<B: Testbed>(case: &mut Case<B>, n: usize) {
    if !Case::<B>::has(Feature::ProvesDeaths) {
        case.until(|probe| probe.deaths.len() + 1 >= n);
        case.replace_peer();
    }
    case.until(|probe| probe.deaths.len() >= n);
    case.settle();
}

pub(crate) fn a_death_is_reported_once_as_a_suspicion_and_once_as_a_proof<B: Testbed>(case: &mut Case<B>) {
    let (peer, other) = (case.peer, case.bed.start(OTHER));
    case.reach(other);
    case.bed.post(&[Post::Watch(peer), Post::Watch(peer), Post::Watch(other)]);
    case.settle();
    assert_eq!(case.deaths(), []);
    case.lose_peer();
    await_proof(case, 2);
    assert_eq!(case.deaths(), [(peer, Evidence::Suspicion), (peer, Evidence::Proof)]);
}

pub(crate) fn a_process_that_died_before_it_was_watched_is_reported<B: Testbed>(case: &mut Case<B>) {
    let old = case.peer;
    case.lose_peer();
    let new = case.replace_peer();
    case.bed.post(&[Post::Watch(old), Post::Watch(new)]);
    case.until(|probe| probe.deaths.len() >= 2);
    case.settle();
    assert_eq!(case.deaths(), [(old, Evidence::Suspicion), (old, Evidence::Proof)]);
}

pub(crate) fn a_process_that_is_not_watched_any_more_is_not_reported<B: Testbed>(case: &mut Case<B>) {
    let (peer, other) = (case.peer, case.bed.start(OTHER));
    case.reach(other);
    case.bed.post(&[Post::Watch(peer), Post::Watch(other), Post::Unwatch(peer)]);
    case.lose_peer();
    case.bed.kill(OTHER);
    // Posts to it break the link to it.
    case.bed.post(&[Post::Read(Remote { at: other, offset: 0 }, 8, 0)]);
    case.until(|probe| !probe.deaths.is_empty());
    case.settle();
    let deaths = case.deaths();
    assert!(deaths.iter().all(|(who, _)| *who == other), "{deaths:?}");
}
