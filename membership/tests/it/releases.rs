//! Releases side by side: what this one has written stays readable, and a view never has members
//! that do not understand each other.

use obol_fabric::{Address, Evidence, Incarnation, Instant, Name, Nanos, Release, ViewId};
use obol_fuzz::recorded;
use obol_membership::metrics::{Counter, Histogram};
use obol_membership::view::{Acceptor, Edit, Newcomer};
use obol_membership::wire::{Addresses, Message, Refusal, apply_step, encode_addresses, encode_step};
use obol_membership::{ActiveMutant, Change, Kind, Reason, View};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::PathBuf;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn newcomer(region: u32, kind: Kind, release: Release) -> Newcomer {
    Newcomer {
        kind,
        name: name("newcomer"),
        address: Address { host: 7 << 100, port: 7471, region, generation: 3, seat: 0 },
        host: Incarnation::NONE,
        token: u64::MAX - u64::from(region),
        proposer: 0,
        release,
    }
}

/// The same with a name of its own.
fn named(region: u32, kind: Kind, release: Release) -> Newcomer {
    Newcomer { name: name(&format!("newcomer-{region}")), ..newcomer(region, kind, release) }
}

/// The same view as release 0.1 could decide it: it admitted members of one name.
fn with_one_name(mut view: View) -> View {
    let members = view.members.iter_mut().map(|m| &mut m.name);
    let names = members.chain(view.departed.iter_mut().map(|d| &mut d.name));
    names.filter(|n| n.as_str().starts_with("newcomer")).for_each(|n| *n = name("newcomer"));
    view
}

fn release(minor: u16) -> Release {
    format!("0.{minor}").parse().expect("a release")
}

/// A view with changes of all kinds that one can have, and its predecessor, as of this release.
pub(crate) fn views(release: Release) -> (View, View) {
    let coordinators: Vec<(Name, Address)> =
        (1..=3).map(|n| (name(&format!("coord-{n}")), Address::region(n))).collect();
    let genesis =
        View::genesis(&coordinators, Nanos::from_millis(20), Nanos::from_millis(40)).of_release(release);
    let of = |region, kind| named(region, kind, release);
    let admit = vec![of(10, Kind::Agent), of(11, Kind::App), of(12, Kind::LeaseCache)];
    let one = genesis.successor(&Edit { admit, ..Edit::default() }, ViewId(0), ActiveMutant::NONE);
    let failed =
        Change::Failed { accused: Incarnation(5), accuser: Incarnation(1), reason: Reason::Heartbeat };
    let edit = Edit {
        remove: vec![failed, Change::Left(Incarnation(6))],
        admit: vec![of(13, Kind::App)],
        lease: Some(Nanos::from_millis(2)),
        acceptor: Some(Change::AcceptorAdded(Acceptor { proposer: 4, address: Address::region(4) })),
    };
    let two = one.successor(&edit, ViewId(1), ActiveMutant::NONE);
    (one, two)
}

/// As release 0.1 could decide them.
fn first_views() -> (View, View) {
    let (one, two) = views(release(1));
    (with_one_name(one), with_one_name(two))
}

/// A datagram of every kind, about a view and its predecessor and as this release sends it, with its name.
pub(crate) fn datagrams((one, two): &(View, View), own: Release) -> Vec<(String, Vec<u8>)> {
    let (frame, pages) = (two.to_frame(), encode_addresses(&[Address::region(9), one.members[4].address]));
    let step = encode_step(one, two, &frame);
    let pages = Addresses::new(&pages).expect("addresses");
    let (who, nonce, view) = (Incarnation(4), 77, ViewId(9));
    let reply = |outcome| Message::JoinReply { token: 5, outcome };
    let all = [
        Message::View { frame: &frame, cleared: false },
        Message::View { frame: &frame, cleared: true },
        Message::Decided(view),
        Message::Step { id: two.id, cleared: ViewId(1), step: &step },
        Message::Clear(view),
        Message::Notice {
            accuser: who,
            accused: Incarnation(6),
            reason: Reason::Timeout,
            evidence: Evidence::Proof,
        },
        Message::Join { newcomer: newcomer(20, Kind::Agent, own), as_of: view, proved: true },
        reply(Ok((who, view))),
        reply(Err(Refusal::Full)),
        reply(Err(Refusal::Stale)),
        reply(Err(Refusal::Departed)),
        reply(Err(Refusal::NoHost)),
        reply(Err(Refusal::OnHold(Nanos(8)))),
        reply(Err(Refusal::Release(release(2)))),
        Message::Leave(who),
        Message::Settle(view),
        Message::SetLease(Nanos::from_millis(3)),
        Message::LeaseTooShort(Nanos::from_millis(3)),
        Message::SetAcceptor { number: 4, decides: true, as_of: view },
        Message::WhoDecides(view),
        Message::Deciders { id: view, acceptors: pages },
        Message::ClockRequest { nonce },
        Message::ClockReply { nonce, clock: Instant(10) },
        Message::Vouch { nonce, view },
        Message::Vouched { nonce, newest: view, vouched: true },
        Message::Raise { nonce, chunk: 2, base: view, pages },
        Message::Raised { nonce, chunk: 2, raised: &[3] },
        Message::Heartbeat(who),
        Message::Links { from: who, view, silent: &[5] },
        Message::Unheard(who),
        Message::Reach(Address::region(4)),
        Message::Reached { at: Address::region(4), reached: true },
    ];
    let named = |message: &Message<'_>| {
        let bytes = message.encode();
        let text = format!("{message:?}");
        let word = text.split([' ', '(', '{']).next().unwrap_or_default().to_lowercase();
        (format!("datagram-{}-{word}", bytes[0]), bytes)
    };
    all.iter().map(named).collect()
}

/// Consoles and `obol status` of one release read what processes of another one count.
#[test]
fn counters_and_histograms_keep_the_numbers_that_earlier_releases_know() {
    let number = |number: u16| number.to_le_bytes().to_vec();
    let counters = Counter::ALL.iter().map(|one| (format!("counter-{}", one.name()), number(*one as u16)));
    let histograms =
        Histogram::ALL.iter().map(|one| (format!("histogram-{}", one.name()), number(*one as u16)));
    let now: Vec<_> = counters.chain(histograms).collect();
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "testdata/counters"].iter().collect();
    for old in recorded::check(&folder, env!("CARGO_PKG_VERSION"), &now) {
        assert!(now.contains(&(old.name.clone(), old.bytes.clone())), "{old:?}");
    }
}

#[test]
fn views_and_datagrams_of_this_release_are_written_as_recorded_and_those_of_all_releases_are_read() {
    let views = first_views();
    let mut now = datagrams(&views, release(1));
    let kinds: BTreeSet<u8> = now.iter().map(|(_, bytes)| bytes[0]).collect();
    assert_eq!(kinds, (1..=26).collect(), "a datagram of every kind");
    let (one, two) = views;
    now.push(("view".to_owned(), two.to_frame().to_vec()));
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "testdata/releases"].iter().collect();
    for old in recorded::check(&folder, env!("CARGO_PKG_VERSION"), &now) {
        if old.name == "view" {
            assert_eq!(View::from_frame(&old.bytes).as_ref(), Some(&two), "{old:?}");
            continue;
        }
        let message = Message::decode(&old.bytes);
        assert!(message.is_ok_and(|message| message.encode() == old.bytes), "{old:?}");
        if let Ok(Message::Step { step, .. }) = message {
            assert_eq!(apply_step(&one, step).map(|(view, _)| view).as_ref(), Some(&two), "{old:?}");
        }
    }
}

/// A member that comes, of a minor version, or goes.
#[derive(Clone, Debug)]
enum Act {
    Join(u16),
    Leave(usize),
    /// Both in one view.
    Replace(usize, u16),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (1_u16..6).prop_map(Act::Join),
        (0_usize..8).prop_map(Act::Leave),
        (0_usize..8, 1_u16..6).prop_map(|(who, minor)| Act::Replace(who, minor)),
    ]
}

proptest! {
    /// Whichever members come and go: all of them are of the release that is spoken or of the next
    /// one, what is spoken never falls, and an upgrade of all members, one after another, raises it.
    #[test]
    fn members_of_a_view_always_understand_each_other(acts in prop::collection::vec(act(), 1..60)) {
        let (mut view, _) = first_views();
        for (n, act) in (100..).zip(acts) {
            let spoken = view.release().expect("it has members");
            let (goes, comes) = match act {
                Act::Join(minor) => (None, Some(minor)),
                Act::Leave(who) => (Some(who), None),
                Act::Replace(who, minor) => (Some(who), Some(minor)),
            };
            let gone = goes.and_then(|at| view.members.get(at)).map(|m| Change::Left(m.incarnation));
            if gone.is_some() && view.members.len() == 1 && comes.is_none() {
                continue;
            }
            let admit = comes.map(|minor| named(n, Kind::Agent, release(minor)));
            let edit = Edit {
                remove: gone.into_iter().collect(),
                admit: admit.into_iter().collect(),
                ..Edit::default()
            };
            let next = view.successor(&edit, view.cleared, ActiveMutant::NONE);
            if let Some(newcomer) = admit {
                let admitted = next.by_token(newcomer.token).is_some();
                prop_assert_eq!(admitted, spoken.admits(newcomer.release));
            }
            let Some(speaks) = next.release() else { continue };
            prop_assert!(speaks >= spoken);
            prop_assert!(next.members.iter().all(|m| speaks.admits(m.release)));
            view = next;
        }
    }
}

#[test]
fn an_upgrade_of_all_members_one_after_another_raises_what_is_spoken_with_the_last_one() {
    let (mut view, _) = first_views();
    let old: Vec<_> = view.members.clone();
    for (n, member) in (200..).zip(&old) {
        assert_eq!(view.release(), Some(release(1)));
        let edit = Edit {
            remove: vec![Change::Left(member.incarnation)],
            admit: vec![named(n, member.kind, release(2))],
            ..Edit::default()
        };
        view = view.successor(&edit, view.cleared, ActiveMutant::NONE);
    }
    assert_eq!((view.release(), view.members.len()), (Some(release(2)), old.len()));
    let back = Edit { admit: vec![named(300, Kind::Agent, release(1))], ..Edit::default() };
    let next = view.successor(&back, view.cleared, ActiveMutant::NONE);
    assert_eq!(next.members.len(), old.len(), "there is no way back");
}
