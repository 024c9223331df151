//! For any bytes of a peer, a region or a file: decoders reject them or return a usable value, and
//! no machine panics or stalls.

use crate::instant::{Cluster, TIMING};
use crate::releases;
use obol_fabric::layout::ViewHead;
use obol_fabric::{Address, Name, Nanos, Release, ViewId};
use obol_fuzz::{Shape, Target, outcome};
use obol_membership::consensus::{Head, SlotWord};
use obol_membership::view::{Acceptor, Edit, Newcomer};
use obol_membership::wire::{Message, apply_step, decode_view, encode_step, encode_view, removal_reserve};
use obol_membership::{ActiveMutant, Change, Kind, Reason, View, frame};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

fn corpus(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/corpus", name].iter().collect()
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn newcomer(region: u32, kind: Kind) -> Newcomer {
    let address = Address { region, generation: 1, ..Address::default() };
    Newcomer::new(kind, name(&format!("n-{region}")), address, 7)
}

/// A view of every kind of change, and its predecessor.
fn pair() -> (View, View) {
    releases::views(Release::THIS)
}

/// A program's use of a view.
fn use_view(view: &View) -> u64 {
    let (_, other) = pair();
    assert_eq!(decode_view(&encode_view(view)).as_ref(), Ok(view), "it comes back as it was");
    let frame = view.to_frame();
    assert_eq!(View::from_frame(&frame).as_ref(), Some(view));
    let first = view.members.first().map(|m| m.incarnation).unwrap_or_default();
    let failed = Change::Failed { accused: first, accuser: first, reason: Reason::Progress };
    let edit = Edit {
        remove: vec![failed],
        admit: vec![newcomer(10, Kind::App), newcomer(20, Kind::Agent)],
        lease: Some(Nanos::from_millis(3)),
        acceptor: view.acceptors.first().map(|first| Change::AcceptorRemoved(*first)),
    };
    let next = view.successor(&edit, view.base, ActiveMutant::NONE);
    assert!(next.id > view.id && next.departed.len() <= view.departed.len() + view.members.len());
    let step = encode_step(view, &next, &next.to_frame());
    if let Some((same, _)) = apply_step(view, &step) {
        assert_eq!(same, next);
    }
    let recovered = next.recovered(view.acceptors.clone(), TIMING.lease_max);
    assert!(recovered.id > next.id && removal_reserve(&recovered) > 0);
    assert!(recovered.wait >= next.wait);
    let leader = view.leader(|_| true).map(|m| m.kind);
    let earlier = view.earlier_life(Address { generation: u32::MAX, ..Address::region(1) }).is_some();
    outcome((
        (leader, earlier, view.deciders().len(), view.majority(), view.is_compatible(&other)),
        (view.members.len(), view.departed.len(), view.changes.len(), view.reach() == view.lease),
        (view.may_have(first), next.members.len(), next.changes.len(), next.departed.len()),
    ))
}

#[test]
fn views() {
    let (one, two) = pair();
    let recovered =
        two.recovered(vec![Acceptor { proposer: 7, address: Address::region(7) }], TIMING.lease_max);
    Target::new("views", Shape::Bytes, 400_000)
        .with(encode_view(&one))
        .with(encode_view(&two))
        .with(encode_view(&recovered))
        .with_files(corpus("views"), "")
        .run(|input| match decode_view(input) {
            Ok(view) => use_view(&view),
            Err(error) => outcome(format!("{error:?}")),
        });
}

/// The envelope itself, with checksums that hold.
#[test]
fn envelopes() {
    let (_, two) = pair();
    Target::new("envelopes", Shape::Bytes, 200_000).with(two.to_frame().to_vec()).run(|input| {
        let mut bytes = input.to_vec();
        if let Some((sum, rest)) = bytes.split_first_chunk_mut::<4>() {
            *sum = crc32fast::hash(rest).to_le_bytes();
        }
        match frame::decode_frame(&bytes) {
            Ok((_, whole)) => outcome((frame::body(whole).len(), View::from_frame(&bytes).is_some())),
            Err(error) => outcome(format!("{error:?}")),
        }
    });
}

/// A view as the difference from another one.
#[test]
fn steps() {
    let (one, two) = pair();
    let settled = two.successor(&Edit::default(), two.cleared, ActiveMutant::NONE);
    Target::new("steps", Shape::Bytes, 200_000)
        .with(encode_step(&one, &two, &two.to_frame()))
        .with(encode_step(&two, &settled, &settled.to_frame()))
        .run(|input| {
            let taken = [&one, &two].map(|before| apply_step(before, input));
            taken.iter().flatten().map(|(view, _)| use_view(view)).fold(0, u64::wrapping_add)
        });
}

/// A datagram of every kind, and the join of a coordinator that is a member.
fn messages() -> Vec<Vec<u8>> {
    let newcomer = newcomer(1, Kind::Coordinator);
    let again = Message::Join { newcomer, as_of: ViewId(1), proved: false }.encode();
    let all = releases::datagrams(&pair(), Release::THIS).into_iter().map(|(_, bytes)| bytes);
    all.chain([again]).collect()
}

/// Restores the checksums after a mutation, so that they do not hide other checks.
fn seal_again(input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    if let Some((1 | 22, frame)) = bytes.split_first_mut()
        && let Some((sum, rest)) = frame.split_first_chunk_mut::<4>()
    {
        let len = rest.first_chunk::<4>().map_or(0, |len| u32::from_le_bytes(*len)) as usize;
        let whole = frame::frame_len(len.min(rest.len())).saturating_sub(4).min(rest.len());
        *sum = crc32fast::hash(&rest[..whole]).to_le_bytes();
    }
    bytes
}

#[test]
fn datagrams() {
    let mut target = Target::new("datagrams", Shape::Bytes, 400_000).with_files(corpus("datagrams"), "");
    for message in messages() {
        target = target.with(message);
    }
    target.run(|input| {
        let bytes = seal_again(input);
        match Message::decode(&bytes) {
            Ok(Message::View { frame, .. }) => View::from_frame(frame).map_or(1, |view| use_view(&view)),
            Ok(message) => {
                let again = message.encode();
                assert_eq!(Message::decode(&again), Ok(message), "it comes back as it was");
                outcome(core::mem::discriminant(&message))
            }
            Err(error) => outcome(format!("{error:?}")),
        }
    });
}

/// Three coordinators, an agent, a cache and an embedded app, all of them members.
fn cluster() -> Cluster {
    let mut cluster = Cluster::with_room(3, 5, ActiveMutant::NONE);
    for (kind, name) in [(Kind::Agent, "agent"), (Kind::LeaseCache, "cache"), (Kind::App, "app")] {
        cluster.add_member(kind, name);
    }
    cluster.run(Nanos::from_millis(5));
    cluster
}

/// Machines accept any datagram from any sender, and continue.
#[test]
fn machines_take_any_datagram() {
    let mut target = Target::new("machines", Shape::Bytes, 6_000).with_files(corpus("datagrams"), "");
    for message in messages() {
        target = target.with(message);
    }
    target.run(|input| {
        let mut cluster = cluster();
        let bytes = seal_again(input);
        cluster.send_to_all(&bytes);
        // One more, which meets the resulting state.
        cluster.send_to_all(&bytes);
        cluster.run(Nanos::from_millis(3));
        let views: Vec<ViewId> = (0..cluster.nodes.len()).map(|at| cluster.view(at).id).collect();
        outcome(views)
    });
}

/// Arbitrary words in a ring, and beside a view.
#[test]
fn rings() {
    let word = |slot, accepted| {
        let state = obol_membership::consensus::SlotState {
            min_proposal: 2,
            accepted_proposal: accepted,
            accepted_value: accepted,
        };
        SlotWord::new(ViewId(slot), state).raw().to_le_bytes()
    };
    Target::new("rings", Shape::Bytes, 20_000)
        .with([word(4, 1), word(5, 2), word(6, 0), word(3, 1)].concat())
        .run(|input| {
            let words: Vec<u64> = input.as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w)).collect();
            let heads = [0, 5, 1 << 40, u64::MAX].map(|near| Head::of(&words, ViewId(near), 5));
            let states = words
                .iter()
                .map(|w| SlotWord::from_raw(*w).state(ViewId(5)).is_some())
                .filter(|is| *is)
                .count();
            outcome((heads.map(|head| (head.accepted.is_some(), head.prepared.is_some())), states))
        });
}

/// The places for the next test.
const PLACES: u64 = 5;

/// Machines read arbitrary values and view areas from a coordinator's memory.
#[test]
fn machines_read_any_memory() {
    let (_, two) = pair();
    let mut target = Target::new("memory", Shape::Bytes, 2_000);
    for place in 0..PLACES {
        target = target.with([&place.to_le_bytes()[..], &two.to_frame()].concat());
    }
    target.run(|input| {
        let mut cluster = cluster();
        let Some((place, value)) = input.split_first_chunk::<8>() else { return 0 };
        let mut frame = value.to_vec();
        if let Some((sum, rest)) = frame.split_first_chunk_mut::<4>() {
            *sum = crc32fast::hash(rest).to_le_bytes();
        }
        let layout = cluster.config.layout;
        let seed = u64::from_le_bytes(*place);
        // Slot words are left alone: a reader of invalid words at a majority polls continuously, at
        // the pace of the fabric.
        let head = layout.view() + size_of::<ViewHead>() as u32;
        let offsets = [layout.value(seed, 1), layout.value(seed, 2), layout.view(), layout.view() + 8, head];
        let offset = offsets[(seed % PLACES) as usize];
        for at in 0..2 {
            cluster.overwrite(at, offset, &frame[..frame.len().min(1024) / 8 * 8]);
        }
        // The next readers: a newcomer, and processes that poll.
        cluster.add_member(Kind::App, "late");
        cluster.run(Nanos::from_millis(3));
        let of = |at: usize| (cluster.view(at).id, cluster.nodes[at].records.len());
        outcome((0..cluster.nodes.len()).map(of).collect::<Vec<_>>())
    });
}

/// The inputs of the corpus that once caused failures are complete, so that they keep testing the
/// same. One is exactly at a bound, and valid.
#[test]
fn inputs_that_once_panicked_are_refused_now() {
    for file in std::fs::read_dir(corpus("views")).expect("the corpus") {
        let file = file.expect("a file");
        let bytes = std::fs::read(file.path()).expect("its bytes");
        let refused = catch_unwind(AssertUnwindSafe(|| decode_view(&bytes).is_err()));
        let at_bound = file.file_name() == "incarnations-at-the-bound";
        assert_eq!(refused.expect("no panic"), !at_bound, "{:?}", file.file_name());
    }
}
