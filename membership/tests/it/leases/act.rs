//! The effect of a step.

use super::*;
use obol_membership::lease::Voucher;

impl Leases {
    pub(crate) fn step(&self, state: &mut State, step: Step) {
        let now = |state: &State, holder: usize| local(state.now, state.holders[holder].rate);
        state.program.has_used = false;
        match step {
            Step::Tick(span) => state.now += Nanos(span),
            Step::Propose { leader } => {
                let Leader { log, cleared, .. } = &state.leaders[leader];
                let newest = &log.newest().view;
                let next = self.successor(newest, *cleared, self.turns[state.views.len() - 1]);
                if next.is_recovered() {
                    self.recover(state, Arc::new(next));
                    return self.settle(state);
                }
                let base = (next.base == next.id).then_some(next.id);
                state.views.push((Arc::new(next), 0));
                if let Some(base) = base {
                    self.fence_early(state, leader, base);
                }
            }
            Step::Accept { acceptor } => {
                if let Some((_, accepted)) = state.views.last_mut() {
                    *accepted |= if self.coarse { ANY_MAJORITY } else { 1 << acceptor };
                }
            }
            Step::Learn { holder, view } => self.learn(state, holder, view),
            Step::Post(holder) => {
                let posted = now(state, holder);
                let h = &mut state.holders[holder];
                h.reading = Some(Reading {
                    view: h.known,
                    posted,
                    empty: if self.coarse { ANY_MAJORITY } else { 0 },
                });
            }
            Step::Read { holder, acceptor } => {
                let Some(mut reading) = state.holders[holder].reading else { return };
                reading.empty |= 1 << acceptor;
                state.holders[holder].reading = Some(reading);
            }
            Step::Install(holder) => self.install(state, holder),
            Step::Hear { holder, base } => {
                let now = now(state, holder);
                state.holders[holder].lease.clear(base, now);
            }
            Step::Die(holder) => {
                state.deaths -= 1;
                let h = &mut state.holders[holder];
                h.alive = false;
                h.reading = None;
            }
            Step::AppDies => {
                state.deaths -= 1;
                state.app_alive = false;
            }
            Step::LeaderLearns { leader, view } => self.leader_learns(state, leader, view),
            Step::LeaderHears { leader, base } => {
                let l = &mut state.leaders[leader];
                l.cleared = l.cleared.max(base);
                l.clearing = l.clearing.take().filter(|clearing| clearing.base() > base);
            }
            Step::Prove { leader, who } => {
                let Leader { proofs, clearing, .. } = &mut state.leaders[leader];
                proofs.insert(who);
                if let Some(clearing) = clearing {
                    clearing.proved(proofs, &self.config, &mut Noted::default());
                }
            }
            Step::Fence(at) => self.execute(state, at),
            Step::Fenced(at) => self.fenced(state, at, false),
            Step::FenceFails(at) => {
                state.failures -= 1;
                self.fenced(state, at, true);
            }
            Step::Call(holder) => {
                let latest = state.latest;
                let h = &mut state.holders[holder];
                h.call = Some((*h.lease.page(), latest));
            }
            Step::Return(holder) => self.returned(state, holder),
            Step::Vouch(holder) => {
                let now = now(state, holder);
                let h = &mut state.holders[holder];
                h.lease.renewed(h.known, Voucher::Cache, now, now);
            }
            Step::Look(_) | Step::LookCleared | Step::UsePage | Step::UseFence | Step::Use => {
                self.program_step(state, step);
            }
        }
        self.settle(state);
    }

    /// As `Member::install` does: an excluded holder drops its lease.
    fn learn(&self, state: &mut State, holder: usize, id: ViewId) {
        let now = local(state.now, state.holders[holder].rate);
        let view = Arc::clone(state.view(id));
        let before = state.holders[holder].known;
        let was = (before != ViewId::GENESIS).then(|| incarnation(state.view(before), holder)).flatten();
        let h = &mut state.holders[holder];
        h.known = id;
        h.learned = now;
        h.reading = None;
        let stays = was.is_none_or(|who| view.member(who).is_some());
        if !stays {
            h.lease.drop_lease();
            h.gone = !self.turns.iter().any(|turn| matches!(turn, Turn::Rejoin(back) if *back == holder));
            if h.gone {
                h.known = ViewId::GENESIS;
            }
        }
        if stays && incarnation(&view, holder).is_some() {
            h.lease.learn(&view, now);
        }
        if !stays && self.config.mutant.has(Mutant::ReinitialisePage) {
            let leader = u8::MAX;
            let (holder, expected, executed) = (holder as u8, None, None);
            let fence =
                Fence { leader, peer: 0, round: 0, holder, expected, desired: 0, executed, awaited: false };
            state.fences.push(fence);
        }
    }

    /// The READs complete; the shipped poll judges them.
    fn install(&self, state: &mut State, holder: usize) {
        let now = local(state.now, state.holders[holder].rate);
        let Some(reading) = state.holders[holder].reading else { return };
        let (mut poll, mut fabric) = (Poll::default(), Noted::default());
        poll.check(state.view(reading.view), &self.config, reading.posted, &mut fabric);
        for acceptor in 0..ACCEPTORS {
            if reading.empty & 1 << acceptor == 0 {
                continue;
            }
            let empty = Ok(Completion::Read(&[0; 8]));
            let done = Labelled::new(fabric.posts[acceptor].1, empty).expect("a token");
            let found = poll.complete(done, &self.config, &mut fabric);
            let Some(Found::Empty { view, posted }) = found else { continue };
            let h = &mut state.holders[holder];
            h.lease.renewed(view, Voucher::Acceptors, posted, now);
            h.reading = None;
            if self.config.mutant.has(Mutant::RenewalLowersFence) {
                h.fence = ViewId::GENESIS;
            }
            return;
        }
    }

    /// Other coordinators start with a view that no acceptor has decided. The old ones answer no more.
    fn recover(&self, state: &mut State, view: Arc<View>) {
        let now = local(state.now, self.leader_rate);
        state.fences.iter_mut().for_each(|fence| fence.awaited = false);
        for leader in 0..state.leaders.len() {
            let round = state.leaders[leader].round;
            let log = Log::new(Arc::clone(&view), now);
            state.leaders[leader] = Leader { log, cleared: view.cleared, round, ..self.leader(now) };
        }
        state.views.push((view, ANY_MAJORITY));
        (0..state.leaders.len()).for_each(|leader| self.begin_clearing(state, leader));
    }

    fn begin_clearing(&self, state: &mut State, leader: usize) {
        let now = local(state.now, self.leader_rate);
        let l = &mut state.leaders[leader];
        let base = l.log.newest().view.base;
        if l.cleared >= base || l.clearing.as_ref().is_some_and(|clearing| clearing.base() == base) {
            return;
        }
        let early = l.early.take_if(|early| early.base() == base);
        if early.is_none() {
            l.round += 1;
            for fence in &mut state.fences {
                fence.awaited &= usize::from(fence.leader) != leader;
            }
        }
        let mut fabric = Noted::default();
        let known = Known { log: &l.log, cleared: l.cleared, proofs: &l.proofs, suspected: &|_| false };
        l.clearing = Some(Clearing::begin(&known, early, l.round, 0, &self.config, now, &mut fabric));
        self.post(state, leader, fabric);
    }

    /// As `Coordinator::fence_early` does while it proposes.
    fn fence_early(&self, state: &mut State, leader: usize, base: ViewId) {
        let now = local(state.now, self.leader_rate);
        let l = &mut state.leaders[leader];
        l.round += 1;
        let mut fabric = Noted::default();
        let known = Known { log: &l.log, cleared: l.cleared, proofs: &l.proofs, suspected: &|_| false };
        l.early = Clearing::prepare(&known, base, l.round, &self.config, now);
        if let Some(early) = &mut l.early {
            early.raise_all(&self.config, &mut fabric);
        }
        self.post(state, leader, fabric);
    }

    fn post(&self, state: &mut State, leader: usize, fabric: Noted) {
        for (post, token) in fabric.posts {
            let (_, peer, round) = tokens::unpack(token).expect("a token");
            let (at, expected, desired) = match post {
                Post::Cas { at, expected, desired } => (at.at, Some(expected), desired),
                Post::Write { to, bytes } => {
                    (to.at, None, u64::from_le_bytes(bytes.try_into().expect("one word")))
                }
                Post::Read { .. } => panic!("a clearing reads nothing"),
            };
            let holder = (at.region - PAGES) as u8;
            let leader = leader as u8;
            state.fences.push(Fence {
                leader,
                peer,
                round,
                holder,
                expected,
                desired,
                executed: None,
                awaited: true,
            });
        }
    }

    fn leader_learns(&self, state: &mut State, leader: usize, view: ViewId) {
        let view = Arc::clone(state.view(view));
        let l = &mut state.leaders[leader];
        l.cleared = l.cleared.max(view.cleared);
        l.log.push(Arc::clone(&view), local(state.now, self.leader_rate));
        if leader == 1 && self.config.mutant.has(Mutant::TrustTakeover) {
            l.cleared = view.base;
            state.sent.insert(view.base);
        }
        self.begin_clearing(state, leader);
    }

    /// A fence is executed.
    fn execute(&self, state: &mut State, at: usize) {
        let Fence { holder, expected, desired, .. } = state.fences[at];
        let fence = &mut state.holders[usize::from(holder)].fence;
        state.fences[at].executed = Some(fence.0);
        if expected.is_none_or(|expected| expected == fence.0) {
            *fence = ViewId(desired);
        }
        if self.coarse && state.fences[at].awaited {
            self.fenced(state, at, false);
        }
    }

    /// A fence completes.
    fn fenced(&self, state: &mut State, at: usize, failed: bool) {
        let fence = &mut state.fences[at];
        fence.awaited = false;
        let Fence { leader, peer, round, expected, executed, .. } = *fence;
        let result = match (failed, expected, executed) {
            (true, ..) => Err(LinkError::PeerDead),
            (_, None, _) => Ok(Completion::Written),
            (_, _, found) => Ok(Completion::Swapped(found.expect("executed"))),
        };
        let mut fabric = Noted::default();
        let l = &mut state.leaders[usize::from(leader)];
        for clearing in l.clearing.iter_mut().chain(&mut l.early) {
            let done = Labelled { part: Part::Fence, peer, round, result };
            clearing.complete(done, &self.config, &mut fabric);
        }
        self.post(state, usize::from(leader), fabric);
    }

    fn returned(&self, state: &mut State, holder: usize) {
        let Some((page, floor)) = state.holders[holder].call.take() else { return };
        let now = local(state.now, state.holders[holder].rate);
        if page.is_active(page.view, self.fence(state.holders[holder].fence), now) {
            let run = state.run(page.view);
            state.broken |= run < floor;
            state.latest = state.latest.max(run);
        }
    }

    pub(super) fn fence(&self, fence: ViewId) -> ViewId {
        if self.config.mutant.has(Mutant::IgnoreFence) { ViewId::GENESIS } else { fence }
    }

    /// Consequences and invariants: CLEARs are sent, and every reader checks whether its page is
    /// active.
    fn settle(&self, state: &mut State) {
        let now = local(state.now, self.leader_rate);
        for leader in &mut state.leaders {
            let base = leader.log.newest().view.base;
            if let Some(clearing) = &mut leader.clearing {
                clearing.tick(&self.config, now, &mut Noted::default());
            }
            leader.clearing = leader.clearing.take().filter(|clearing| clearing.base() == base);
            if leader.clearing.as_ref().is_some_and(|clearing| clearing.is_done(now, &self.config)) {
                leader.clearing = None;
                leader.cleared = leader.cleared.max(base);
                state.sent.insert(base);
            }
        }
        for holder in 0..state.holders.len() {
            let by_app = holder == 0 && state.app_alive;
            if !state.holders[holder].alive && !by_app {
                // This page has no reader any more.
                state.holders[holder].lease =
                    Lease::new(&self.config.timing, self.kind(holder), self.config.mutant);
                state.holders[holder].known = ViewId::GENESIS;
                state.holders[holder].call = None;
            }
        }
        for holder in 0..state.holders.len() {
            let hopeless = |r: &Reading| !self.may_be_renewed(state, r.view, r.empty);
            if state.holders[holder].reading.as_ref().is_some_and(hopeless) {
                state.holders[holder].reading = None;
            }
        }
        state.fences.retain(|fence| fence.executed.is_none() || fence.awaited);
        self.settle_program(state);
        if !self.split {
            // No process acts under a cache's page.
            let active: Vec<u8> = (0..state.holders.len())
                .filter(|&holder| self.is_read(state, holder) && self.cache != Some(holder))
                .map(|holder| &state.holders[holder])
                .filter(|h| {
                    let (page, now) = (h.lease.page(), local(state.now, h.rate));
                    page.is_active(page.view, self.fence(h.fence), now)
                })
                .map(|h| state.run(h.lease.page().view))
                .collect();
            state.latest = active.iter().copied().max().unwrap_or_default().max(state.latest);
            state.broken |= active.iter().any(|&run| run < state.latest);
        }
        state.sort_acceptors();
        state.fences.sort_unstable_by_key(|f| (f.leader, f.holder, f.desired, f.peer, f.round));
    }
}
