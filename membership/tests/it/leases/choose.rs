//! The possible next steps.

use super::*;

impl Leases {
    pub(crate) fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        steps.extend(self.ticks.iter().map(|&span| Step::Tick(span)));
        let accepted = state.accepted(state.newest());
        let decided = state.decided();
        if accepted.count_ones() < MAJORITY {
            let free = (0..ACCEPTORS).filter(|a| accepted & 1 << a == 0);
            steps.extend(free.map(|acceptor| Step::Accept { acceptor }));
        }
        for (leader, l) in state.leaders.iter().enumerate() {
            let newest = l.log.newest().view.id;
            if newest == state.newest() && self.may_propose(state) {
                steps.push(Step::Propose { leader });
            }
            let learnable = newest.0 + 1..=decided.0;
            steps.extend(learnable.map(|id| Step::LeaderLearns { leader, view: ViewId(id) }));
            let news = state.sent.iter().filter(|&&base| base > l.cleared);
            steps.extend(news.map(|&base| Step::LeaderHears { leader, base }));
            for who in self.provable(state) {
                if !l.proofs.contains(&who) {
                    steps.push(Step::Prove { leader, who });
                }
            }
        }
        for (holder, h) in state.holders.iter().enumerate() {
            if self.split && h.call.is_some() {
                steps.push(Step::Return(holder));
            } else if self.split
                && self.is_read(state, holder)
                && local(state.now, h.rate) < h.lease.page().end
            {
                steps.push(Step::Call(holder));
            }
            if !h.alive {
                continue;
            }
            for id in (h.known.0 + 1..=decided.0).filter(|_| !h.gone) {
                let view = state.view(ViewId(id));
                if h.known != ViewId::GENESIS || incarnation(view, holder).is_some() {
                    steps.push(Step::Learn { holder, view: view.id });
                }
            }
            let is_member = h.known != ViewId::GENESIS && incarnation(state.view(h.known), holder).is_some();
            if is_member
                && h.reading.is_none()
                && self.may_be_renewed(state, h.known, 0)
                && state.answer(h.known)
            {
                steps.push(Step::Post(holder));
            }
            if let Some(reading) = h.reading {
                if reading.empty.count_ones() >= self.enough() {
                    steps.push(Step::Install(holder));
                } else if state.answer(reading.view) {
                    let empty = (0..ACCEPTORS)
                        .filter(|a| (reading.empty | state.accepted(reading.view.next())) & 1 << a == 0);
                    steps.extend(empty.map(|acceptor| Step::Read { holder, acceptor }));
                }
            }
            steps.extend(state.sent.iter().map(|&base| Step::Hear { holder, base }));
            if state.deaths > 0 {
                steps.push(Step::Die(holder));
            }
        }
        self.vouches(state, steps);
        self.program_steps(state, steps);
        if state.app_alive && state.deaths > 0 {
            steps.push(Step::AppDies);
        }
        for (at, fence) in state.fences.iter().enumerate() {
            if fence.executed.is_none() {
                steps.push(Step::Fence(at));
            } else if fence.awaited {
                steps.push(Step::Fenced(at));
            }
            if fence.awaited && state.failures > 0 {
                steps.push(Step::FenceFails(at));
            }
            // The planted bug: the WRITE is not awaited.
            if fence.expected.is_none() && fence.awaited && fence.executed.is_none() {
                steps.push(Step::Fenced(at));
            }
        }
    }

    /// The cache vouches for a view that a holder has a lease on. The request may have been posted
    /// earlier and the answer arrive later, which gives less.
    fn vouches(&self, state: &State, steps: &mut Vec<Step>) {
        let Some(cache) = self.cache.map(|cache| &state.holders[cache]).filter(|cache| cache.alive) else {
            return;
        };
        for (holder, h) in state.holders.iter().enumerate().filter(|(h, _)| self.cache != Some(*h)) {
            let page = h.lease.page();
            let renews = h.alive && page.view == h.known && page.end != Instant::ZERO;
            if renews && cache.lease.vouches(h.known, local(state.now, cache.rate)) {
                steps.push(Step::Vouch(holder));
            }
        }
    }

    /// The number of answers for a renewal.
    pub(super) fn enough(&self) -> u32 {
        if self.config.mutant.has(Mutant::MinorityRenewal) { 1 } else { MAJORITY }
    }

    /// Whether enough acceptors can still be found empty, or were.
    pub(super) fn may_be_renewed(&self, state: &State, view: ViewId, empty: u8) -> bool {
        let full = state.accepted(view.next()) & !empty;
        ACCEPTORS as u32 - full.count_ones() >= self.enough()
    }

    pub(super) fn may_propose(&self, state: &State) -> bool {
        state.decided() == state.newest()
            && match self.turns.get(state.views.len() - 1) {
                None => false,
                Some(&Turn::Rejoin(h)) => state.holders[h].known >= state.newest(),
                Some(_) => true,
            }
    }

    /// Processes that can be proved dead now: the dead ones, and all if suspicions count as proofs.
    pub(super) fn provable(&self, state: &State) -> Vec<Incarnation> {
        let rash = self.config.mutant.has(Mutant::SuspicionIsProof);
        let named = |view: &Arc<View>| view.members.clone();
        let members: BTreeSet<_> = state
            .views
            .iter()
            .flat_map(|(view, _)| named(view))
            .filter(|m| match m.kind {
                Kind::Coordinator | Kind::LeaseCache => false,
                Kind::App => rash || !state.app_alive,
                Kind::Agent => rash || !state.holders[(m.address.region - PAGES) as usize].alive,
            })
            .map(|m| m.incarnation)
            .collect();
        members.into_iter().collect()
    }

    /// Whether a live process can read this page.
    pub(super) fn is_read(&self, state: &State, holder: usize) -> bool {
        let page = state.holders[holder].lease.page();
        let by_app = holder == 0
            && state.app_alive
            && page.view != ViewId::GENESIS
            && state.view(page.view).by_token(APP).is_some();
        state.holders[holder].alive || by_app
    }
}
