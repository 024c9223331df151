//! The effect of a step.

use super::*;

impl Slots {
    pub(crate) fn step(&self, state: &mut State, step: Step) {
        match step {
            Step::Prepare(p) => {
                state.proposers[p].attempts -= 1;
                self.drive(state, p, &|engine, fabric| engine.prepare(fabric));
            }
            Step::Propose(p) => {
                let proposer = &mut state.proposers[p];
                let nth = usize::from(proposer.slot) * 4 + p * 2 + usize::from(proposer.spoke);
                proposer.spoke = true;
                self.drive(state, p, &|engine, fabric| {
                    engine.accept(Arc::clone(&self.values[nth]), |_| {}, fabric)
                });
            }
            Step::Reopen { proposer, guess } => {
                state.reopens[proposer] -= 1;
                self.open(&mut state.proposers[proposer], guess.then_some(2 - proposer as u16));
            }
            Step::Restart(p) => {
                state.restarts[p] -= 1;
                let proposer = &mut state.proposers[p];
                proposer.engine = Arc::new(Engine::new(p as u16 + 1, self.layout, self.mutant));
                proposer.links = core::array::from_fn(|_| Link::default());
                self.open(proposer, None);
            }
            Step::OpenNext(p) => {
                let proposer = &mut state.proposers[p];
                proposer.slot += 1;
                proposer.spoke = false;
                self.open(proposer, None);
            }
            Step::Execute { proposer, acceptor } => self.execute(state, proposer, acceptor),
            Step::Deliver { proposer, acceptor } => self.deliver(state, proposer, acceptor),
            Step::FailLink { proposer, acceptor } => {
                state.failures -= 1;
                let link = &mut state.proposers[proposer].links[acceptor];
                link.down = true;
                // Pending posts may still be executed, but without an effect on the proposer.
                let waiting = link.posted.iter_mut().find(|op| op.fresh).map(|op| {
                    op.fresh = false;
                    op.token
                });
                link.done = waiting.or(link.done.map(|(token, _)| token)).map(|token| (token, Result_::Lost));
            }
        }
        self.hasten(state);
        self.check(state);
    }

    /// Executes WRITEs that are indistinguishable from pending ones: the first into an area that no
    /// word of that acceptor has named. Nobody reads it before a CAS queued behind them has named
    /// it, and these WRITEs are independent of all other steps. Trying them first, and alone, only
    /// leaves out equivalent orders.
    fn hasten(&self, state: &mut State) {
        for p in 0..PROPOSERS {
            for a in 0..ACCEPTORS {
                while let Some(Op { deed: Deed::Write { area, .. } | Deed::Finish { area, .. }, .. }) =
                    state.proposers[p].links[a].posted.first()
                {
                    if self.is_seen(state, p, a, *area) {
                        break;
                    }
                    self.execute(state, p, a);
                }
            }
        }
    }

    /// Whether another process may know of proposer `p`'s area at acceptor `a`.
    fn is_seen(&self, state: &State, p: usize, a: usize, area: u8) -> bool {
        if state.areas[a][usize::from(area)].body != 0 {
            return true;
        }
        let named = state.words[a].iter().any(|word| {
            (0..self.slots.len() as u8).any(|slot| {
                self.accepted(slot, *word).is_some_and(|s| self.home(slot, s.accepted_value) == area)
            })
        });
        named
            || state.proposers.iter().enumerate().any(|(other, proposer)| {
                let reads = |op: &Op| matches!(op.deed, Deed::Read { area: read } if read == area);
                other != p && proposer.links[a].posted.iter().any(reads)
            })
    }

    fn open(&self, proposer: &mut Proposer, guess: Option<u16>) {
        let slot = self.slots[usize::from(proposer.slot)];
        Arc::make_mut(&mut proposer.engine).open(slot, &self.acceptors, guess);
        for link in &mut proposer.links {
            link.done = None;
            link.posted.iter_mut().for_each(|op| op.fresh = false);
        }
    }

    /// Calls an engine, queues its posts, and handles its outcome as a leader would.
    fn drive(&self, state: &mut State, p: usize, call: &dyn Fn(&mut Engine, &mut Noted) -> Option<Outcome>) {
        let mut fabric = Noted::default();
        let proposer = &mut state.proposers[p];
        let outcome = call(Arc::make_mut(&mut proposer.engine), &mut fabric);
        for (post, token) in fabric.posts {
            self.queue(proposer, post, token);
        }
        match outcome {
            Some(Outcome::Adopted) => {
                let proposer = &state.proposers[p];
                let nth = usize::from(proposer.slot) * 4 + p * 2 + usize::from(proposer.spoke);
                let own = match self.mutant.has(Mutant::AnnounceOwnValue) {
                    true => Arc::clone(&self.values[nth]),
                    false => Arc::from([]),
                };
                self.drive(state, p, &|engine, fabric| engine.accept(Arc::clone(&own), |_| {}, fabric));
            }
            Some(Outcome::Decided { value, .. }) => {
                let slot = state.proposers[p].slot;
                let value = self.number(&value);
                if value == u8::MAX || Self::slot_of(value) != slot {
                    state.broken = Some(Broken::Invalid);
                } else if state.chosen[usize::from(slot)].0 == 0 {
                    state.broken = Some(Broken::Unchosen);
                } else if state.chosen[usize::from(slot)].0 != value {
                    state.broken = Some(Broken::Agreement);
                }
            }
            None | Some(Outcome::Prepared | Outcome::Aborted(_)) => {}
        }
    }

    fn queue(&self, proposer: &mut Proposer, post: Post, token: Token) {
        let own_word = self.layout.slot(self.slots[usize::from(proposer.slot)].0);
        let (at, deed) = match post {
            Post::Read { from, .. } if from.offset == own_word => (from.at, Deed::ReadWord),
            Post::Read { from, len } => {
                assert_eq!(len, LIMITS.value_bytes);
                (from.at, Deed::Read { area: self.area_at(from.offset) })
            }
            Post::Write { to, bytes } => {
                (to.at, Deed::Write { area: self.area_at(to.offset), value: self.number(&bytes) })
            }
            Post::Cas { at, expected, desired } => {
                assert_eq!(at.offset, own_word);
                (
                    at.at,
                    Deed::Cas {
                        expected: SlotWord::from_raw(expected),
                        desired: SlotWord::from_raw(desired),
                    },
                )
            }
        };
        let link = &mut proposer.links[at.region as usize - 1];
        let fresh = !matches!(deed, Deed::Write { .. });
        if fresh {
            link.done = None;
            link.posted.iter_mut().for_each(|op| op.fresh = false);
        }
        if !link.down {
            link.posted.push(Op { deed, token, fresh });
        } else if fresh {
            link.done = Some((token, Result_::Lost));
        }
    }

    pub(super) fn execute(&self, state: &mut State, p: usize, a: usize) {
        let Op { deed, token, fresh } = state.proposers[p].links[a].posted.remove(0);
        let areas = &mut state.areas[a];
        let result = match deed {
            Deed::Write { area, value } if self.torn => {
                areas[usize::from(area)].head = value;
                let rest = Op { deed: Deed::Finish { area, value }, token, fresh };
                state.proposers[p].links[a].posted.insert(0, rest);
                return;
            }
            Deed::Write { area, value } => {
                areas[usize::from(area)] = Area { head: value, body: value };
                Result_::Written
            }
            Deed::Finish { area, value } => {
                areas[usize::from(area)].body = value;
                Result_::Written
            }
            Deed::Read { area } => Result_::Read(areas[usize::from(area)]),
            Deed::ReadWord => Result_::Word(state.words[a][self.ring(state.proposers[p].slot)]),
            Deed::Cas { expected, desired } => {
                let slot = (0..self.slots.len())
                    .find(|&at| desired.slot(self.slots[at]) == Some(self.slots[at]))
                    .expect("a CAS puts a word of one of the slots") as u8;
                let word = &mut state.words[a][self.ring(slot)];
                let found = *word;
                if found == expected {
                    *word = desired;
                    self.check_word(state, slot, a, found, desired);
                }
                Result_::Swapped(found)
            }
        };
        if fresh {
            state.proposers[p].links[a].done = Some((token, result));
        } else if !state.proposers[p].links[a].down {
            let mut engine = (*state.proposers[p].engine).clone();
            let mut fabric = Noted::default();
            let completed = self.complete(&mut engine, token, result, &mut fabric);
            let deaf = completed.is_none() && fabric.posts.is_empty() && engine == *state.proposers[p].engine;
            assert!(deaf, "a completion that should be stale was taken");
        }
    }

    pub(super) fn deliver(&self, state: &mut State, p: usize, a: usize) {
        let Some((token, result)) = state.proposers[p].links[a].done.take() else { return };
        self.drive(state, p, &|engine, fabric| self.complete(engine, token, result, fabric));
    }

    fn complete(
        &self,
        engine: &mut Engine,
        token: Token,
        result: Result_,
        fabric: &mut Noted,
    ) -> Option<Outcome> {
        let (part, peer, round) = tokens::unpack(token).expect("the engine's token");
        let bytes;
        let result = match result {
            Result_::Swapped(found) => Ok(Completion::Swapped(found.raw())),
            Result_::Read(area) => {
                bytes = self.bytes(area);
                Ok(Completion::Read(&bytes))
            }
            Result_::Word(word) => {
                bytes = word.raw().to_le_bytes().to_vec();
                Ok(Completion::Read(&bytes))
            }
            Result_::Written => Ok(Completion::Written),
            Result_::Lost => Err(LinkError::PeerDead),
        };
        engine.complete(part, peer, round, &result, fabric)
    }
}
