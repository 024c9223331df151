//! A program in the seat of holder 0 that computes by itself whether the next view is active for it,
//! by the shipped rule. Each of its reads is a step, and it may stop before any of them.
//!
//! What it would be refused whatever it reads next is given up at once. Unless the model is
//! `stepwise`, it reads a region in one step, and page, fence and clock in another.

use super::*;
use obol_membership::successor_lease::Reading as Facts;

/// What a coordinator's region shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Statement {
    source: Source,
    view: Arc<View>,
    /// Read after the view.
    cleared: Option<ViewId>,
    /// With the planted bug, the fence as it was then.
    fence: Option<ViewId>,
}

/// Whose region was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    Leader(usize),
    /// A coordinator that a recovery has given up, with what it decided before.
    GivenUp,
}

/// A call that has read the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Use {
    page: Page,
    /// The latest run that was active when it began.
    floor: u8,
    fence: Option<ViewId>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    told: Option<Statement>,
    call: Option<Use>,
    /// Whether it has used a view by this rule, in the last step.
    pub(crate) has_used: bool,
}

impl Program {
    /// `now` and `reach`: see [`State`]'s hash.
    pub(super) fn hash_at(&self, state: &mut impl Hasher) {
        self.has_used.hash(state);
        let told = |t: &Statement| (t.source, t.view.id, t.cleared, t.fence);
        self.told.as_ref().map(told).hash(state);
        let call = |c: &Use| {
            let page = (c.page.view, c.page.end, c.page.verified, c.page.lease, c.page.retired);
            (page, c.floor, c.fence)
        };
        self.call.as_ref().map(call).hash(state);
    }
}

fn look_cleared(state: &mut State) {
    let Some(told) = &mut state.program.told else { return };
    told.cleared = Some(match told.source {
        Source::Leader(leader) => state.leaders[leader].cleared,
        Source::GivenUp => told.view.id,
    });
}

impl Leases {
    /// Whether this view could be used, as far as the page goes that is read now or later: a page
    /// never goes back.
    fn is_news(&self, state: &State, view: &View) -> bool {
        let page = state.holders[0].lease.page().view;
        self.config.mutant.has(Mutant::UseViewBefore) || view.id >= page
    }

    fn is_named(&self, view: &View) -> bool {
        self.config.mutant.has(Mutant::UseUnnamed) || view.by_token(APP).is_some()
    }

    pub(super) fn program_steps(&self, state: &State, steps: &mut Vec<Step>) {
        if !self.programs || !state.app_alive {
            return;
        }
        let Program { told, call, .. } = &state.program;
        match call {
            Some(Use { fence: None, .. }) => return steps.push(Step::UseFence),
            Some(_) => return steps.push(Step::Use),
            None => {}
        }
        for (leader, l) in state.leaders.iter().enumerate() {
            let (view, source) = (&l.log.newest().view, Source::Leader(leader));
            let is_known = told.as_ref().is_some_and(|t| t.source == source && t.view.id == view.id);
            if !is_known && self.is_news(state, view) && self.is_named(view) {
                steps.push(Step::Look(source));
            }
        }
        if self.given_up.as_ref().is_some_and(|view| self.is_news(state, view))
            && told.as_ref().is_none_or(|t| t.source != Source::GivenUp)
        {
            steps.push(Step::Look(Source::GivenUp));
        }
        match told {
            Some(Statement { cleared: None, .. }) => steps.push(Step::LookCleared),
            Some(_) => steps.push(Step::UsePage),
            None => {}
        }
    }

    pub(super) fn program_step(&self, state: &mut State, step: Step) {
        let fence = self.fence(state.holders[0].fence);
        match step {
            Step::Look(source) => {
                let view = match source {
                    Source::Leader(leader) => Arc::clone(&state.leaders[leader].log.newest().view),
                    Source::GivenUp => Arc::clone(self.given_up.as_ref().expect("one is given up")),
                };
                let early = self.config.mutant.has(Mutant::FenceBeforePage).then_some(fence);
                state.program.told = Some(Statement { source, view, cleared: None, fence: early });
                if !self.stepwise {
                    look_cleared(state);
                }
            }
            Step::LookCleared => look_cleared(state),
            Step::UsePage => {
                let floor = state.latest;
                let early = state.program.told.as_ref().and_then(|told| told.fence);
                state.program.call = Some(Use { page: *state.holders[0].lease.page(), floor, fence: early });
                if !self.stepwise {
                    self.program_step(state, Step::UseFence);
                    self.use_view(state);
                }
            }
            Step::UseFence => {
                if let Some(call) = &mut state.program.call {
                    call.fence = call.fence.or(Some(fence));
                }
            }
            Step::Use => self.use_view(state),
            _ => {}
        }
    }

    fn use_view(&self, state: &mut State) {
        let is_active = self.may_use(state);
        let Program { told: Some(told), call, has_used } = &mut state.program else { return };
        let Some(call) = call.take().filter(|_| is_active) else { return };
        *has_used = true;
        let (view, page) = (Arc::clone(&told.view), call.page.view);
        // Nothing else is known to be decided by the acceptors that were READ, or after that.
        let side = |id: ViewId| state.view(id).retired;
        state.broken |= page == ViewId::GENESIS || view.retired != side(page) || view.by_token(APP).is_none();
        state.broken |= view.id.0 > page.0 + 1;
        let run = if Some(&view) == self.given_up.as_ref() { 1 } else { state.run(view.id) };
        state.broken |= run < call.floor;
        state.latest = state.latest.max(run);
    }

    /// Whether the call gives a lease, if what it has not read yet is in its favour.
    fn may_use(&self, state: &State) -> bool {
        let Program { told: Some(told), call: Some(call), .. } = &state.program else { return false };
        let (Some(cleared), Some(app)) = (told.cleared, self.first.by_token(APP)) else { return false };
        let facts = Facts {
            view: &told.view,
            cleared,
            own: app.incarnation,
            page: call.page,
            fence: call.fence.unwrap_or_default(),
            now: local(state.now, state.holders[0].rate),
        };
        facts.is_active(self.config.timing.drift_ppm, self.config.mutant)
    }

    /// Gives up what leads nowhere.
    pub(super) fn settle_program(&self, state: &mut State) {
        if !state.app_alive {
            state.program = Program::default();
            return;
        }
        if state.program.call.is_some() && !self.may_use(state) {
            state.program.call = None;
        }
        let early = self.config.mutant.has(Mutant::UseBeforeClear);
        let leads_nowhere = |told: &Statement| {
            let is_clear = told.cleared.is_none_or(|cleared| early || cleared >= told.view.base);
            !is_clear || !self.is_news(state, &told.view)
        };
        if state.program.call.is_none() && state.program.told.as_ref().is_some_and(leads_nowhere) {
            state.program.told = None;
        }
    }
}
