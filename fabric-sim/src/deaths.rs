//! Deaths: watches and notices, first a suspicion, then a proof.

use super::core::Core;
use super::node::{Input, Node, State, Watch};
use super::queue::Pending;
use obol_fabric::contract::Evidence;
use obol_fabric::rights::Permissions;
use obol_fabric::types::Address;

impl Node {
    /// The generation of a seat's present or last occupant, and whether it is alive.
    fn occupant(&self, seat: u16) -> (u32, bool) {
        if seat == 0 {
            return (self.generation, self.state != State::Dead);
        }
        self.seats.get(usize::from(seat)).map_or((0, false), |place| {
            (place.generation, place.occupant.as_ref().is_some_and(super::program::Program::is_alive))
        })
    }
}

impl Core {
    pub(super) fn watch(&mut self, watcher: u32, whom: Address) {
        if self.nodes[watcher as usize].watches.iter().any(|w| w.whom == whom) {
            return;
        }
        let (present, alive) =
            self.nodes.get(whom.region as usize).map_or((0, false), |node| node.occupant(whom.seat));
        let generation = if whom.generation == 0 { present } else { whom.generation };
        self.watches += 1;
        let id = self.watches;
        self.nodes[watcher as usize].watches.push(Watch { id, whom, generation });
        if !alive || generation != present {
            let (notice, proof) = self.draw_death().unwrap_or_else(|| self.draw_notices());
            self.announce(watcher, id, notice, proof);
        }
    }

    pub(super) fn unwatch(&mut self, watcher: u32, whom: Address) {
        self.nodes[watcher as usize].watches.retain(|w| w.whom != whom);
    }

    /// Notifies all watchers of a process that it died.
    pub(super) fn announce_death(&mut self, region: u32, seat: u16, generation: u32) {
        let drawn = self.draw_death();
        for (watcher, watch) in self.watchers(region, seat, generation) {
            let (notice, proof) = drawn.unwrap_or_else(|| self.draw_notices());
            self.announce(watcher, watch, notice, proof);
        }
    }

    /// Notifies all watchers of a process that it may have died.
    pub(super) fn announce_suspicion(&mut self, region: u32, seat: u16, generation: u32) {
        for (watcher, watch) in self.watchers(region, seat, generation) {
            let time = self.now + self.network.notice.draw(&mut self.rng);
            self.queue.push(time, Pending::Notice { watcher, watch, evidence: Evidence::Suspicion });
        }
    }

    fn watchers(&self, region: u32, seat: u16, generation: u32) -> Vec<(u32, u32)> {
        let meant = |w: &&Watch| w.whom.region == region && w.whom.seat == seat && w.generation == generation;
        let of = |(at, node): (usize, &Node)| -> Vec<(u32, u32)> {
            node.watches.iter().filter(meant).map(|w| (at as u32, w.id)).collect()
        };
        self.nodes.iter().enumerate().flat_map(of).collect()
    }

    /// In a modelled testbed: when all watchers get the notice, and how much later the proof.
    fn draw_death(&mut self) -> Option<(u64, u64)> {
        let model = self.model.as_ref()?;
        Some((model.notice.draw(&mut self.rng), model.proof.draw(&mut self.rng)))
    }

    fn draw_notices(&mut self) -> (u64, u64) {
        (self.network.notice.draw(&mut self.rng), self.network.proof.draw(&mut self.rng))
    }

    fn announce(&mut self, watcher: u32, watch: u32, notice: u64, proof: u64) {
        let suspicion = self.now + notice;
        let proof = suspicion + proof.max(1);
        if self.rng.permille(self.network.notice_loss_permille) {
            self.adverse_events.notices_lost += 1;
        } else {
            self.queue.push(suspicion, Pending::Notice { watcher, watch, evidence: Evidence::Suspicion });
        }
        if self.rng.permille(self.network.proof_loss_permille) {
            self.adverse_events.proofs_lost += 1;
        } else {
            self.queue.push(proof, Pending::Notice { watcher, watch, evidence: Evidence::Proof });
        }
    }

    /// Delivers a notice to a watcher. A partition drops it, like any datagram.
    pub(super) fn notice(&mut self, watcher: u32, watch: u32, evidence: Evidence) {
        let node = &self.nodes[watcher as usize];
        let Some(known) = node.watches.iter().find(|w| w.id == watch) else { return };
        let from = known.whom.region;
        // A watch goes by the connection that the watcher has made.
        let unconnected = self.nodes[from as usize].closed || self.is_refused(watcher, from);
        if self.links.is_cut(from, watcher) || unconnected {
            return;
        }
        self.nodes[watcher as usize].inbox.push_back(Input::Death { watch, evidence });
        self.arm(watcher);
    }

    /// The host of a watcher gives up another node's, which does not answer: what is posted there
    /// fails, and may have been executed.
    pub(super) fn give_up(&mut self, watcher: u32, other: u32) {
        if self.nodes[watcher as usize].state == State::Dead {
            return;
        }
        self.break_link(watcher, other, self.now, false);
        self.report(watcher, |w| w.whom.region == other, Evidence::Silence);
    }

    /// A watcher learns of a death at once.
    pub(super) fn report_death(&mut self, watcher: u32, who: Address, evidence: Evidence) {
        let meant =
            |w: &Watch| (w.whom.region, w.whom.seat, w.generation) == (who.region, who.seat, who.generation);
        self.report(watcher, meant, evidence);
    }

    fn report(&mut self, watcher: u32, meant: impl Fn(&Watch) -> bool, evidence: Evidence) {
        let node = &mut self.nodes[watcher as usize];
        let meant = node.watches.iter().filter(|w| meant(w));
        node.inbox.extend(meant.map(|w| Input::Death { watch: w.id, evidence }));
        self.arm(watcher);
    }

    /// A watcher has its watches in a region made again: deaths there are reported once more.
    pub(super) fn watch_again(&mut self, watcher: u32, region: u32) {
        let is_gone = |w: &&Watch| {
            let (present, alive) = self.nodes[region as usize].occupant(w.whom.seat);
            w.whom.region == region && (!alive || w.generation != present)
        };
        let watches = self.nodes[watcher as usize].watches.iter();
        let gone: Vec<u32> = watches.filter(is_gone).map(|w| w.id).collect();
        for watch in gone {
            let (notice, proof) = self.draw_death().unwrap_or_else(|| self.draw_notices());
            self.announce(watcher, watch, notice, proof);
        }
    }

    /// Ends a process, with its watches, its inbox and its posts.
    pub(super) fn kill(&mut self, at: u32) {
        let node = &self.nodes[at as usize];
        if node.state != State::Dead {
            let generation = node.generation;
            self.end(at);
            self.announce_death(at, 0, generation);
        }
    }

    fn end(&mut self, at: u32) {
        self.beat(at);
        let node = &mut self.nodes[at as usize];
        node.state = State::Dead;
        node.died_at = self.now;
        node.stepping = false;
        node.wanted = false;
        node.wake_at = u64::MAX;
        node.watches.clear();
        node.permissions = Permissions::default();
        node.permits.clear();
        node.last_permit = 0;
        self.drop_posts(at);
        self.empty_inbox(at);
    }

    /// A fatal signal: the process runs no more, and its watchers are notified. It is still being
    /// torn down: its region answers until it has ended, shortly before a datagram proves its
    /// death.
    pub(super) fn signal(&mut self, at: u32) {
        self.beat(at);
        let node = &mut self.nodes[at as usize];
        if node.state == State::Dead {
            return;
        }
        node.state = State::Frozen;
        let generation = node.generation;
        let (notice, proof) = self.draw_death().unwrap_or_else(|| self.draw_notices());
        for (watcher, watch) in self.watchers(at, 0, generation) {
            self.announce(watcher, watch, notice, proof);
        }
        let delay = self.model.as_ref().map_or(self.network.one_way.min.0, |model| {
            let cost = model.cost_of_datagram(0);
            cost.overhead.0 + cost.latency.median().0
        });
        let ends = self.now + notice + proof.saturating_sub(delay).max(1);
        self.queue.push(ends, Pending::Exit { node: at, life: generation, notified: self.watches });
    }

    /// A signalled process has ended. Its new watchers are notified as well.
    pub(super) fn exit(&mut self, at: u32, life: u32, notified: u32) {
        if self.nodes[at as usize].lives(life) {
            self.end(at);
            for (watcher, watch) in self.watchers(at, 0, life).into_iter().filter(|w| w.1 > notified) {
                let (notice, proof) = self.draw_death().unwrap_or_else(|| self.draw_notices());
                self.announce(watcher, watch, notice, proof);
            }
        }
    }

    fn empty_inbox(&mut self, at: u32) {
        for input in core::mem::take(&mut self.nodes[at as usize].inbox) {
            match input {
                Input::Completion(op) => self.release(op),
                Input::Datagram { payload, from, .. } => self.taken(from, at, payload),
                Input::Start
                | Input::Permitted(_)
                | Input::Death { .. }
                | Input::Seat { .. }
                | Input::Confirm => {}
            }
        }
        for place in &mut self.nodes[at as usize].seats {
            place.asked = false;
        }
    }
}
