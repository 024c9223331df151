//! Bytes from peers: encoding is reversible, and no input makes a decoder panic.

use obol_fabric::{Address, Evidence, Incarnation, Instant, Name, Nanos, Release, ViewId};
use obol_membership::timing::{LEASE_MAX, LEASE_MIN};
use obol_membership::view::{Acceptor, Departed, Edit, Member, Newcomer};
use obol_membership::wire::{
    ADDRESS_BYTES_MAX, Addresses, Message, NUMBER_MAX, Refusal, apply_step, decode_view, encode_addresses,
    encode_step, encode_view, removal_reserve,
};
use obol_membership::{ActiveMutant, Change, Kind, Reason, View};
use proptest::prelude::*;

/// A view's number, an incarnation, or what a clock shows.
fn number() -> impl Strategy<Value = u64> {
    0..=NUMBER_MAX
}

fn name() -> impl Strategy<Value = Name> {
    "[a-zA-Z0-9][a-zA-Z0-9._-]{0,22}".prop_map(|text| Name::new(&text).expect("the pattern of names"))
}

fn address() -> impl Strategy<Value = Address> {
    (any::<bool>(), any::<u128>(), any::<u16>(), any::<u16>(), any::<u32>(), any::<u32>()).prop_map(
        |(far, host, port, seat, region, generation)| {
            let (host, port) = if far { (host, port) } else { (0, 0) };
            Address { host, port, seat, region, generation }
        },
    )
}

fn kind() -> impl Strategy<Value = Kind> {
    proptest::sample::select(Kind::ALL.to_vec())
}

fn member() -> impl Strategy<Value = Member> {
    (number(), kind(), name(), address(), number(), any::<u64>(), any::<(u16, u16)>()).prop_map(
        |(incarnation, kind, name, address, host, token, (proposer, release))| Member {
            incarnation: Incarnation(incarnation),
            kind,
            name,
            address,
            host: Incarnation(host),
            token,
            proposer,
            release: Release::of(release),
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    let reason = proptest::sample::select((0..=u8::MAX).filter_map(Reason::from_repr).collect::<Vec<_>>());
    prop_oneof![
        number().prop_map(|n| Change::Joined(Incarnation(n))),
        number().prop_map(|n| Change::Left(Incarnation(n))),
        (number(), number(), reason).prop_map(|(a, b, reason)| Change::Failed {
            accused: Incarnation(a),
            accuser: Incarnation(b),
            reason
        }),
        Just(Change::Lease),
        Just(Change::Settled),
        number().prop_map(|n| Change::Recovered(ViewId(n))),
        (any::<u16>(), address())
            .prop_map(|(proposer, address)| Change::AcceptorAdded(Acceptor { proposer, address })),
        (any::<u16>(), address())
            .prop_map(|(proposer, address)| Change::AcceptorRemoved(Acceptor { proposer, address })),
    ]
}

prop_compose! {
    fn view()(
        mut ids in proptest::array::uniform3(number()),
        spans in proptest::array::uniform4(0..=4 * LEASE_MAX.0),
        next in number(),
        acceptors in prop::collection::btree_map(any::<u16>(), address(), 1..7),
        retired in prop::collection::vec(1_u16..=7, 0..7),
        mut members in prop::collection::vec(member(), 0..20),
        departed in prop::collection::vec((any::<u64>(), number(), name(), kind(), number(), any::<bool>()), 0..10),
        mut changes in prop::collection::vec(change(), 0..10),
    ) -> View {
        let mut of_acceptors = 0;
        changes.retain(|change| {
            let is = matches!(change, Change::AcceptorAdded(_) | Change::AcceptorRemoved(_));
            of_acceptors += usize::from(is);
            !is || of_acceptors == 1
        });
        ids.sort_unstable();
        members.sort_by_key(|m| m.incarnation);
        View {
            id: ViewId(ids[2]),
            base: ViewId(ids[1]),
            cleared: ViewId(ids[0]),
            wait: Nanos(spans[0]),
            run_reach: Nanos(spans[1]),
            lease: Nanos(spans[2]),
            cache_lease: Nanos(spans[3]),
            next_incarnation: Incarnation(next),
            retired: retired.into_iter().filter(|n| acceptors.iter().all(|(a, _)| a != n)).collect(),
            acceptors: acceptors.into_iter().map(|(proposer, address)| Acceptor { proposer, address }).collect(),
            members,
            departed: departed
                .into_iter()
                .map(|(token, who, name, kind, at, left)| Departed {
                    token,
                    incarnation: Incarnation(who),
                    name,
                    kind,
                    at: ViewId(at.min(ids[2])),
                    left,
                })
                .collect(),
            changes,
        }
    }
}

proptest! {
    #[test]
    fn a_view_round_trips(view in view()) {
        prop_assert_eq!(decode_view(&encode_view(&view)), Ok(view.clone()));
        prop_assert_eq!(View::from_frame(&view.to_frame()), Some(view));
    }

    #[test]
    fn a_join_round_trips(m in member(), as_of in number(), proved in any::<bool>()) {
        let newcomer = m.newcomer();
        let join = Message::Join { newcomer, as_of: ViewId(as_of), proved };
        let bytes = join.encode();
        prop_assert_eq!(Message::decode(&bytes), Ok(join));
    }

    #[test]
    fn cache_messages_round_trip(
        nonce in number(),
        chunk in any::<u16>(),
        view in number(),
        vouched in any::<bool>(),
        pages in prop::collection::vec(address(), 0..100),
        raised in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let bytes = encode_addresses(&pages);
        prop_assert!(bytes.len() <= pages.len() * ADDRESS_BYTES_MAX);
        let list = Addresses::new(&bytes).expect("just encoded");
        prop_assert_eq!(list.collect::<Vec<_>>(), pages.clone());
        let base = ViewId(view);
        for at in pages.iter().copied() {
            for message in [Message::Reach(at), Message::Reached { at, reached: vouched }] {
                let bytes = message.encode();
                prop_assert_eq!(Message::decode(&bytes), Ok(message));
            }
        }
        for message in [
            Message::Vouch { nonce, view: base },
            Message::Vouched { nonce, newest: base, vouched },
            Message::Raise { nonce, chunk, base, pages: list },
            Message::Raised { nonce, chunk, raised: &raised },
            Message::Heartbeat(Incarnation(nonce)),
            Message::Unheard(Incarnation(nonce)),
            Message::Links { from: Incarnation(nonce), view: base, silent: &raised },
            Message::Deciders { id: base, acceptors: list },
        ] {
            let bytes = message.encode();
            prop_assert_eq!(Message::decode(&bytes), Ok(message));
        }
    }

    #[test]
    fn no_input_makes_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Message::decode(&bytes);
        let _ = decode_view(&bytes);
        let _ = View::from_frame(&bytes);
    }

    #[test]
    fn a_damaged_view_is_refused_or_is_a_view(view in view(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = encode_view(&view);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(other) = decode_view(&bytes) {
            prop_assert_eq!(&encode_view(&other), &bytes);
        }
        bytes.truncate(at);
        prop_assert!(decode_view(&bytes).is_err());
    }
}

#[test]
fn every_other_message_round_trips() {
    let (accuser, accused) = (Incarnation(3), Incarnation(9));
    let messages = [
        Message::Decided(ViewId(7)),
        Message::Clear(ViewId(7)),
        Message::Notice { accuser, accused, reason: Reason::Heartbeat, evidence: Evidence::Proof },
        Message::Notice { accuser, accused, reason: Reason::Deadbeat, evidence: Evidence::Suspicion },
        Message::JoinReply { token: 5, outcome: Ok((accused, ViewId(8))) },
        Message::JoinReply { token: 5, outcome: Err(Refusal::Full) },
        Message::JoinReply { token: 5, outcome: Err(Refusal::NoHost) },
        Message::JoinReply { token: 5, outcome: Err(Refusal::Unreachable) },
        Message::JoinReply { token: 5, outcome: Err(Refusal::NameTaken) },
        Message::JoinReply { token: 5, outcome: Err(Refusal::OnHold(Nanos(7))) },
        Message::Leave(accused),
        Message::Settle(ViewId(7)),
        Message::SetLease(Nanos(20_000)),
        Message::LeaseTooShort(Nanos(20_000)),
        Message::SetAcceptor { number: 4, decides: true, as_of: ViewId(7) },
        Message::SetAcceptor { number: 1, decides: false, as_of: ViewId(8) },
        Message::WhoDecides(ViewId(7)),
        Message::ClockRequest { nonce: 11 },
        Message::ClockReply { nonce: 11, clock: Instant(12) },
    ];
    for message in messages {
        assert_eq!(Message::decode(&message.encode()), Ok(message));
        let mut longer = message.encode();
        longer.push(0);
        assert!(Message::decode(&longer).is_err(), "{message:?}");
    }
}

#[test]
fn incarnations_that_would_overflow_are_refused_and_the_last_ones_are_not() {
    let coordinator = Name::new("c").expect("a name");
    let genesis = View::genesis(&[(coordinator, Address::region(1))], Nanos(10), Nanos(10));
    let counts = |next| View { next_incarnation: Incarnation(next), ..genesis.clone() };
    for next in [NUMBER_MAX + 1, u64::MAX - 1, u64::MAX] {
        assert!(decode_view(&encode_view(&counts(next))).is_err(), "{next}");
        assert_eq!(View::from_frame(&counts(next).to_frame()), None, "{next}");
    }
    let last = decode_view(&encode_view(&counts(NUMBER_MAX))).expect("within the bounds");
    let name = |region: u32| Name::new(&format!("n-{region}")).expect("a name");
    let newcomer =
        |region: u32| Newcomer::new(Kind::Agent, name(region), Address::region(region), region.into());
    let admit = vec![newcomer(2), newcomer(3)];
    let next = last.successor(&Edit { admit, ..Edit::default() }, last.cleared, ActiveMutant::NONE);
    assert_eq!(next.next_incarnation, Incarnation(NUMBER_MAX + 2));
    let recovered = next.recovered(next.acceptors.clone(), Nanos::ZERO);
    assert!(recovered.next_incarnation > next.next_incarnation);
    for beyond in [next, recovered] {
        assert_eq!(View::from_frame(&beyond.to_frame()), None, "its numbers are out of range");
    }
}

#[test]
fn leases_outside_a_profiles_bounds_are_rejected() {
    let set = |lease| Message::decode(&Message::SetLease(lease).encode()).is_ok();
    assert!(set(LEASE_MIN) && set(LEASE_MAX));
    assert!(!set(Nanos(LEASE_MIN.0 - 1)) && !set(Nanos(LEASE_MAX.0 + 1)) && !set(Nanos(u64::MAX)));
}

proptest! {
    #[test]
    fn admitted_members_can_be_removed_in_any_steps(
        names in proptest::collection::btree_set("[a-z]{1,5}", 1..20),
        steps in proptest::collection::vec(proptest::collection::vec(0usize..20, 0..8), 1..6),
    ) {
        let coordinator = Name::new("c").expect("a name");
        let genesis = View::genesis(&[(coordinator, Address::region(1))], Nanos(10), Nanos(10));
        let newcomer = |(at, name): (usize, &String)| {
            let name = Name::new(name).expect("a name");
            Newcomer::new(Kind::Agent, name, Address::region(2 + at as u32), 100 + at as u64)
        };
        let admit = names.iter().enumerate().map(newcomer).collect();
        let full = genesis.successor(&Edit { admit, ..Edit::default() }, genesis.cleared, ActiveMutant::NONE);
        let room = full.to_frame().len() + removal_reserve(&full);
        let (mut view, accuser) = (full, Incarnation(1));
        for (number, step) in steps.iter().enumerate() {
            let failed = |at: &usize| Change::Failed {
                accused: Incarnation(2 + *at as u64), accuser, reason: Reason::Heartbeat
            };
            let edit = Edit {
                remove: step.iter().map(failed).collect(),
                lease: Some(Nanos(11 + number as u64)),
                ..Edit::default()
            };
            let before = view;
            view = before.successor(&edit, before.cleared, ActiveMutant::NONE);
            prop_assert!(view.to_frame().len() <= room.next_multiple_of(8), "{view:?}");
        }
    }
}

proptest! {
    #[test]
    fn a_view_follows_from_its_predecessor_and_what_differs(
        agents in proptest::collection::vec(any::<bool>(), 0..40),
        joins in 0usize..4,
        leaves in proptest::collection::vec((0u64..45, any::<bool>()), 0..4),
        lease in proptest::option::of(5u64..20),
        damaged in any::<proptest::sample::Index>(),
    ) {
        let coordinator = Name::new("c").expect("a name");
        let genesis = View::genesis(&[(coordinator, Address::region(1))], Nanos(10), Nanos(10));
        let newcomer = |at: usize| {
            let kind = if at.is_multiple_of(3) { Kind::App } else { Kind::Agent };
            let name = Name::new(&format!("n-{at}")).expect("a name");
            Newcomer::new(kind, name, Address::region(2 + at as u32), 100 + at as u64)
        };
        let admit = (0..agents.len()).map(newcomer).collect();
        let mut before = genesis.successor(&Edit { admit, ..Edit::default() }, genesis.cleared, ActiveMutant::NONE);
        // Some have departed earlier.
        let gone = |(at, left): (u64, bool)| {
            let accused = Incarnation(2 + at);
            let failed = Change::Failed { accused, accuser: Incarnation(1), reason: Reason::Heartbeat };
            if left { Change::Left(accused) } else { failed }
        };
        let earlier = agents.iter().enumerate().filter(|(_, gone)| **gone).map(|(at, _)| gone((at as u64, true)));
        before = before.successor(&Edit { remove: earlier.collect(), ..Edit::default() }, before.base, ActiveMutant::NONE);
        let edit = Edit {
            remove: leaves.into_iter().map(gone).collect(),
            admit: (50..50 + joins).map(newcomer).collect(),
            lease: lease.map(Nanos),
            acceptor: None,
        };
        let view = before.successor(&edit, before.cleared, ActiveMutant::NONE);
        let frame = view.to_frame();
        let mut step = encode_step(&before, &view, &frame);
        prop_assert_eq!(apply_step(&before, &step), Some((view.clone(), frame)));
        prop_assert_eq!(apply_step(&view, &step), None, "of another predecessor");
        prop_assert_eq!(apply_step(&genesis, &step), None, "of another predecessor");
        prop_assert_eq!(apply_step(&before, &step[..damaged.index(step.len())]), None, "cut off");
        let at = damaged.index(step.len());
        step[at] ^= 1;
        prop_assert_eq!(apply_step(&before, &step), None, "damaged");
    }
}
