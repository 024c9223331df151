//! What a leader waits for before it sends CLEAR.

use crate::common::{LIMITS, Noted, Post};
use obol_fabric::{Address, Completion, Instant, Layout, Limits, Name, Nanos, Release, ViewId};
use obol_membership::clearing::{Clearing, Known};
use obol_membership::log::Log;
use obol_membership::timing::Timing;
use obol_membership::tokens::Labelled;
use obol_membership::view::{Change, Edit, Kind, Newcomer, Reason, coordinator_name};
use obol_membership::{ActiveMutant, Config, View};
use std::collections::BTreeSet;
use std::sync::Arc;

const LEASE: Nanos = Nanos::from_millis(20);
const AGENT: Address = Address::region(5);

fn config() -> Config {
    let limits = Limits { proposers: 7, value_bytes: 2048, datagram_bytes: 2048, ..LIMITS };
    let timing = Timing { lease: LEASE, lease_max: LEASE, fencing: true, ..Timing::default() };
    let layout = Layout::new(limits).expect("these limits are in bounds");
    Config { release: Release::THIS, timing, layout, mutant: ActiveMutant::NONE }
}

fn genesis() -> Arc<View> {
    let seat = |n: u16| (coordinator_name(n), Address { generation: 1, ..Address::region(u32::from(n)) });
    Arc::new(View::genesis(&[seat(1), seat(2), seat(3)], LEASE, LEASE))
}

/// Every fence that was posted is raised.
fn raise(clearing: &mut Clearing, posted: Noted, config: &Config) {
    for (post, token) in posted.posts {
        let Post::Cas { expected, .. } = post else { panic!("not a fence: {post:?}") };
        let done = Labelled::new(token, Ok(Completion::Swapped(expected))).expect("a fence's token");
        clearing.complete(done, config, &mut Noted::default());
    }
}

fn after(view: &View, edit: &Edit) -> Arc<View> {
    Arc::new(view.successor(edit, ViewId::GENESIS, ActiveMutant::NONE))
}

fn with_agent(view: &View, token: u64) -> Arc<View> {
    let newcomer = Newcomer::new(Kind::Agent, Name::new("node-1").expect("a name"), AGENT, token);
    after(view, &Edit { admit: vec![newcomer], ..Edit::default() })
}

fn without_agent(view: &View) -> Arc<View> {
    let agent = view.members.iter().find(|member| member.kind == Kind::Agent).expect("there is one");
    let (accused, accuser, reason) = (agent.incarnation, agent.incarnation, Reason::Timeout);
    after(view, &Edit { remove: vec![Change::Failed { accused, accuser, reason }], ..Edit::default() })
}

/// An agent that is excluded, admitted again and excluded before there is a CLEAR is two holders, of one
/// page. A fence on it ends the leases of both, also one that was posted for the first of them.
#[test]
fn a_fence_clears_all_holders_of_its_page() {
    let (config, now) = (config(), Instant(1_000_000_000));
    let genesis = genesis();
    let first = with_agent(&genesis, 1);
    let out = without_agent(&first);
    let second = with_agent(&out, 2);
    let last = without_agent(&second);
    let mut log = Log::new(genesis, now);
    [first, out, second].into_iter().for_each(|view| log.push(view, now));
    let (proofs, mut early_posts) = (BTreeSet::new(), Noted::default());
    let cleared = ViewId::GENESIS;
    let known = Known { log: &log, cleared, proofs: &proofs, suspected: &|_| false };
    let mut early = Clearing::prepare(&known, last.base, 1, &config, now).expect("all holders are known");
    early.raise_all(&config, &mut early_posts);
    log.push(last, now);
    let known = Known { log: &log, cleared, proofs: &proofs, suspected: &|_| false };
    let mut later_posts = Noted::default();
    let mut clearing = Clearing::begin(&known, Some(early), 2, 1, &config, now, &mut later_posts);
    raise(&mut clearing, early_posts, &config);
    raise(&mut clearing, later_posts, &config);
    assert!(clearing.is_done(now, &config), "{clearing:?}");
}

/// Fences that were raised early for a slot which then went to another leader's value, and that value is
/// compatible with its predecessor: holders were active in it at once, so for the next base they count
/// for nothing.
#[test]
fn fences_of_a_slot_that_went_to_another_value_do_not_count_for_the_next_base() {
    let (config, now) = (config(), Instant(1_000_000_000));
    let genesis = genesis();
    let first = with_agent(&genesis, 1);
    let mut log = Log::new(genesis, now);
    log.push(Arc::clone(&first), now);
    let (proofs, cleared) = (BTreeSet::new(), ViewId::GENESIS);
    let known = Known { log: &log, cleared, proofs: &proofs, suspected: &|_| false };
    let mut posted = Noted::default();
    let mut early =
        Clearing::prepare(&known, first.id.next(), 1, &config, now).expect("all holders are known");
    early.raise_all(&config, &mut posted);
    raise(&mut early, posted, &config);
    assert!(early.is_done(now, &config), "{early:?}");

    let adopted = after(&first, &Edit { lease: Some(LEASE.saturating_mul(2)), ..Edit::default() });
    assert_eq!((adopted.id, adopted.base), (first.id.next(), first.base), "it is compatible");
    let last = without_agent(&adopted);
    [adopted, Arc::clone(&last)].into_iter().for_each(|view| log.push(view, now));
    let known = Known { log: &log, cleared, proofs: &proofs, suspected: &|_| false };
    let mut later = Noted::default();
    let clearing = Clearing::begin(&known, Some(early), 2, 1, &config, now, &mut later);
    assert!(!clearing.is_done(now, &config) && !later.posts.is_empty(), "{clearing:?}");
}
