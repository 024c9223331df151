//! What a lease cache does besides holding a lease: it vouches for the newest view, and raises
//! fences for the leader.
//!
//! uKharon, section 6.3. A cache vouches on the strength of its own lease. The view it vouches for
//! was therefore the newest at most that lease's duration ago, which every wait includes
//! ([`View::reach`](crate::View::reach)). Its report about a fence is reliable: it follows the
//! completion of the CAS, and a fence never moves back.

use crate::Config;
use crate::metrics::Counter;
use crate::mutants::Mutant;
use crate::tokens::{self, Labelled, Part};
use crate::wire::{Addresses, Message};
use obol_fabric::{Address, Completion, Fabric, Instant, Remote, ViewId};

/// Fence requests that a cache handles concurrently. More are dropped, and the leader raises those
/// fences itself.
pub const JOBS_MAX: usize = 64;
/// Fences of one request; a datagram usually holds fewer.
pub const FENCES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Its fence is expected at this view.
    Outstanding(ViewId),
    Raised,
    Unreachable,
}

/// One request of a leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Job {
    round: u32,
    from: Address,
    nonce: u64,
    chunk: u16,
    base: ViewId,
    fences: Vec<(Address, State)>,
    /// When the leader gets a report, complete or not.
    due: Instant,
}

/// The requests that a cache is working on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FanOut {
    jobs: Vec<Job>,
    round: u32,
}

impl Job {
    fn raise<F: Fabric>(&self, at: usize, guess: ViewId, config: &Config, fabric: &mut F) {
        let fence = Remote { at: self.fences[at].0, offset: config.layout.fence() };
        let token = tokens::pack(Part::Fence, at as u16, self.round);
        fabric.cas(fence, guess.0, self.base.0, token);
    }

    fn is_done(&self) -> bool {
        self.fences.iter().all(|(_, state)| !matches!(state, State::Outstanding(_)))
    }

    /// Reports to the leader which fences are at the base or above.
    fn report<F: Fabric>(&self, config: &Config, fabric: &mut F) {
        let mut raised = vec![0; self.fences.len().div_ceil(8)];
        for (at, (_, state)) in self.fences.iter().enumerate() {
            if *state == State::Raised || config.mutant.has(Mutant::FanOutUnseen) {
                raised[at / 8] |= 1 << (at % 8);
            }
        }
        let (nonce, chunk) = (self.nonce, self.chunk);
        fabric.send(self.from, &Message::Raised { nonce, chunk, raised: &raised }.encode());
    }
}

impl FanOut {
    /// Raises fences for a leader.
    #[expect(clippy::too_many_arguments, reason = "the parts of one message")]
    pub fn begin<F: Fabric>(
        &mut self,
        from: Address,
        (nonce, chunk): (u64, u16),
        base: ViewId,
        pages: Addresses<'_>,
        config: &Config,
        now: Instant,
        fabric: &mut F,
    ) {
        let repeated = self.jobs.iter().any(|j| (j.from, j.nonce, j.chunk) == (from, nonce, chunk));
        if self.jobs.len() == JOBS_MAX || repeated {
            return;
        }
        let fences = pages.take(FENCES_MAX).map(|page| (page, State::Outstanding(ViewId::GENESIS)));
        self.round = self.round.wrapping_add(1);
        // Half of the leader's timeout, so that one unreachable page does not delay the report
        // about the others.
        let due = now + obol_fabric::Nanos(config.timing.cache_timeout.0 / 2);
        let job = Job { round: self.round, from, nonce, chunk, base, fences: fences.collect(), due };
        for at in 0..job.fences.len() {
            job.raise(at, ViewId::GENESIS, config, fabric);
        }
        if config.mutant.has(Mutant::FanOutUnseen) {
            job.report(config, fabric);
        }
        self.jobs.push(job);
    }

    /// Takes the completion of a fence.
    pub fn complete<F: Fabric>(&mut self, done: Labelled<'_>, config: &Config, fabric: &mut F) {
        let Some(nth) = self.jobs.iter().position(|j| j.round == done.round) else { return };
        let job = &mut self.jobs[nth];
        let at = usize::from(done.peer);
        let Some((_, State::Outstanding(guess))) = job.fences.get(at).copied() else { return };
        job.fences[at].1 = match done.result {
            Ok(Completion::Swapped(found)) if found == guess.0 || found >= job.base.0 => {
                fabric.count(Counter::FencesRaised, 1);
                State::Raised
            }
            Ok(Completion::Swapped(found)) => {
                job.raise(at, ViewId(found), config, fabric);
                State::Outstanding(ViewId(found))
            }
            Ok(Completion::Read(_) | Completion::Written | Completion::Permitted) | Err(_) => {
                State::Unreachable
            }
        };
        if job.is_done() {
            job.report(config, fabric);
            self.jobs.swap_remove(nth);
        }
    }

    /// When the next report is due.
    pub fn deadline(&self) -> Instant {
        self.jobs.iter().map(|j| j.due).min().unwrap_or(Instant::NEVER)
    }

    /// Sends the reports that cannot wait for the remaining fences.
    pub fn tick<F: Fabric>(&mut self, config: &Config, now: Instant, fabric: &mut F) {
        self.jobs.retain(|job| {
            if now < job.due {
                return true;
            }
            job.report(config, fabric);
            false
        });
    }
}
