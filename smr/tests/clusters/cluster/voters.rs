//! Voters that are replaced, added and removed while clients work, or all lost.

use super::{
    AFTERMATH, AGAIN_EVERY, AGAIN_EVERY_MAX, CLIENTS, Faults, NODES, Node, Plan, RECOVERY_MAX, REPLICAS,
    STEADY_WITHIN, ServiceRun, Store, VOTERS,
};
use obol_smr::{Departure, Detector, Guard, Index, Operation, Replica, ReplicaState};

impl<D: Detector, G: Guard> Store<D, G> {
    /// All replicas die at once and start again, without a log: their states after a time that is long
    /// enough for many views, and how many views there were since they had all joined.
    pub(crate) fn lose_all(seed: u64) -> Result<(Vec<ReplicaState>, u64), String> {
        let mut store = Self::start(seed, &Plan::of(seed, Faults::Single));
        store.steady()?;
        for node in REPLICAS {
            store.cluster.kill(node);
        }
        let soon = store.cluster.now() + AFTERMATH;
        store.run_until(soon)?;
        for node in REPLICAS {
            store.restart(node);
        }
        let soon = store.cluster.now() + STEADY_WITHIN;
        store.run_until(soon)?;
        let before = store.cluster.view(0).id.0;
        let later = store.cluster.now() + STEADY_WITHIN;
        store.run_until(later)?;
        let states = REPLICAS.filter_map(|node| store.replica(node).map(Replica::state)).collect();
        Ok((states, store.cluster.view(0).id.0 - before))
    }

    /// Replaces the leader, and then `count` voters that do not lead. Returns the changes of leaders
    /// during the latter.
    pub(crate) fn replace_voters(seed: u64, count: u32) -> Result<u64, String> {
        let mut store = Self::start(seed, &Plan::of(seed, Faults::Single));
        store.steady()?;
        let founder = store.recover()?;
        store.cluster.kill(founder);
        store.pause(100_000)?;
        store.recover()?;
        let before = store.oracle.failovers;
        for _ in 0..count {
            let leader = store.recover()?;
            let voters = store.replica(leader).map(|it| it.config().voters.clone()).unwrap_or_default();
            let victim = voters.iter().map(|voter| voter.address.region).find(|node| *node != leader);
            store.cluster.kill(victim.ok_or("one voter only")?);
            store.pause(100_000)?;
        }
        store.recover()?;
        Ok(store.oracle.failovers - before)
    }

    /// Stops one replica after the other, each as soon as it may go, while clients work; down to the last
    /// one. The error says which one could not.
    pub(crate) fn stop_all(seed: u64, plan: &Plan) -> Result<Vec<Departure>, String> {
        let mut store = Self::start(seed, plan);
        store.steady()?;
        store.recover()?;
        let mut departures = Vec::new();
        for _ in REPLICAS {
            let leader = store.until_one_leads()?;
            departures.push(store.stop_gracefully(leader)?);
        }
        store.history.judge()?;
        Ok(departures)
    }

    /// Stops two replicas at once, as a supervisor does that ends their units, while clients work: the others
    /// go on. Or, `of_all`: all of them, until each has left or gives up.
    pub(crate) fn stop_together(seed: u64, plan: &Plan, of_all: bool) -> Result<Vec<Departure>, String> {
        let mut store = Self::start(seed, plan);
        store.steady()?;
        store.recover()?;
        store.all_answered()?;
        let all = REPLICAS.end - REPLICAS.start;
        let count = if of_all { all } else { 2 };
        // Each that leads has to be replaced.
        let end = store.cluster.now() + u64::from(count) * RECOVERY_MAX;
        let first = (seed % u64::from(all)) as u32;
        let mut left: Vec<u32> = (0..count).map(|n| REPLICAS.start + (first + n) % all).collect();
        let mut departures = Vec::new();
        let mut round = 0;
        while !left.is_empty() {
            round += 1;
            for (n, node) in left.clone().into_iter().enumerate() {
                // Each gets the signal a little later.
                if round <= n as u64 * (seed / 7 % 4) {
                    continue;
                }
                match store.departure(node) {
                    Some(Departure::Pending) => {}
                    Some(departure) => {
                        departures.push(departure);
                        store.cluster.kill(node);
                        left.retain(|other| *other != node);
                    }
                    None => return Err("no replica".to_owned()),
                }
            }
            if store.cluster.now() > end && of_all {
                // They give up, and say so.
                departures.extend(left.drain(..).map(|_| Departure::Pending));
            } else if store.cluster.now() > end {
                return Err(format!("invariant 12: {left:?} cannot leave: {}", store.states()));
            }
            let soon = store.cluster.now() + 2_000 + seed % 5 * 3_000;
            store.work_until(soon)?;
        }
        if !of_all {
            store.until_one_leads()?;
            let soon = store.cluster.now() + RECOVERY_MAX;
            store.work_until(soon)?;
        }
        store.history.judge()?;
        Ok(departures)
    }

    /// What a replica that retires says.
    fn departure(&mut self, node: u32) -> Option<Departure> {
        let said = self.cluster.with_machine(node, |process, _, _| {
            let replica = process.member_mut().and_then(Node::replica_mut)?;
            replica.retire();
            Some(replica.departure())
        });
        said.flatten()
    }

    fn until_one_leads(&mut self) -> Result<u32, String> {
        self.work_until_found(RECOVERY_MAX, Self::leader)?
            .ok_or_else(|| format!("invariant 12: nobody serves after a leader left: {}", self.states()))
    }

    /// Like the real process: it retires, leaves, and ends.
    fn stop_gracefully(&mut self, node: u32) -> Result<Departure, String> {
        let end = self.cluster.now() + RECOVERY_MAX;
        let departure = loop {
            match self.departure(node) {
                Some(Departure::Pending) if self.cluster.now() > end => {
                    return Err(format!("invariant 12: replica {node} cannot leave: {}", self.states()));
                }
                Some(Departure::Pending) => {
                    let soon = self.cluster.now() + 2_000;
                    self.work_until(soon)?;
                }
                departure => break departure.ok_or("no replica")?,
            }
        };
        // It writes nothing more, and its process ends before anybody has read what it has.
        self.cluster.kill(node);
        Ok(departure)
    }

    /// All voters but one die, and that one continues alone, with all that was answered; then the others
    /// start again with nothing. With `by_turns`, the leader leaves, and its successor dies soon after.
    pub(crate) fn recover_one(seed: u64, by_turns: bool) -> Result<(), String> {
        let mut store = Self::start(seed, &Plan::of(seed, Faults::Single));
        store.steady()?;
        let leader = store.recover()?;
        store.all_answered()?;
        let soon = store.cluster.now() + AGAIN_EVERY_MAX.0;
        store.run_until(soon)?;
        let config = store.replica(leader).map(|it| it.config().clone()).ok_or("no leader")?;
        let voters: Vec<u32> = config.voters.iter().map(|voter| voter.address.region).collect();
        let survivor = *voters.iter().rfind(|node| **node != leader).ok_or("one voter")?;
        let (log, applied) = store.replica(survivor).map(|it| (it.log(), it.applied())).ok_or("no log")?;
        if by_turns {
            store.stop_gracefully(leader)?;
            let soon = store.cluster.now() + seed * 37_000 % 2_000_000;
            store.run_until(soon)?;
            if store.leader() == Some(survivor) {
                // It goes on serving what needs no entry.
                return Ok(());
            }
        }
        for node in REPLICAS.filter(|node| *node != survivor) {
            store.cluster.kill(node);
        }
        let soon = store.cluster.now() + RECOVERY_MAX;
        store.work_until(soon)?;
        store.continue_alone(survivor, (log, applied))
    }

    /// The leader is the one that survives, while clients write.
    pub(crate) fn recover_leader(seed: u64, plan: &Plan) -> Result<(), String> {
        let mut store = Self::start(seed, plan);
        store.steady()?;
        let leader = store.recover()?;
        store.pause(200_000)?;
        let before = store.replica(leader).map(|it| (it.log(), it.applied())).ok_or("no log")?;
        for node in REPLICAS.filter(|node| *node != leader) {
            store.cluster.kill(node);
        }
        let soon = store.cluster.now() + RECOVERY_MAX;
        store.work_until(soon)?;
        store.continue_alone(leader, before)
    }

    /// The oldest replicas but one die while that one is cut off from the leader, so that it lacks what was
    /// answered last. It takes over, and when it has read that, nobody is left whose memory has it. Returns
    /// whether that came to pass: it depends on who votes, and on what is on the way.
    pub(crate) fn recover_adopted(seed: u64, plan: &Plan) -> Result<bool, String> {
        let mut store = Self::start(seed, plan);
        store.steady()?;
        let leader = store.recover()?;
        let config = store.replica(leader).map(|it| it.config().clone()).ok_or("no leader")?;
        let mut others: Vec<u32> = config.voters.iter().map(|voter| voter.address.region).collect();
        others.retain(|node| *node != leader);
        let &[successor, other] = &others[..] else { return Err(format!("three voters, not {config:?}")) };
        for node in REPLICAS.filter(|node| *node != leader && !others.contains(node)) {
            store.cluster.kill(node);
        }
        let soon = store.cluster.now() + AFTERMATH;
        store.run_until(soon)?;
        store.cluster.cut_link(leader, successor);
        let soon = store.cluster.now() + 300_000 + seed * 7_000 % 60_000;
        store.work_until(soon)?;
        let (log, applied) = store.replica(successor).map(|it| (it.log(), it.applied())).ok_or("no log")?;
        let committed = store.replica(leader).and_then(Replica::commit).unwrap_or_default();
        store.cluster.kill(leader);
        // Its state is that of a leader as soon as it has read what it lacks.
        let end = store.cluster.now() + RECOVERY_MAX;
        let leads = |store: &Self| {
            let state = store.replica(successor).map(Replica::state);
            matches!(state, Some(ReplicaState::Leading { .. }))
        };
        while store.cluster.now() < end && !leads(&store) {
            store.step()?;
        }
        store.cluster.kill(other);
        let state = store.replica(successor).map(Replica::state);
        let is_so = matches!(state, Some(ReplicaState::Leading { ready: false, .. })) && committed > applied;
        let soon = store.cluster.now() + RECOVERY_MAX;
        store.work_until(soon)?;
        if !is_so || !store.replica(successor).is_some_and(Replica::is_stalled) {
            return Ok(false);
        }
        store.continue_alone(successor, (log, committed))?;
        Ok(true)
    }

    /// The replicas do not reach each other, and an operator says of the leader that it is to continue alone.
    /// All voters are there, so it must not.
    pub(crate) fn keep_log(seed: u64, plan: &Plan) -> Result<(), String> {
        let mut store = Self::start(seed, plan);
        store.steady()?;
        let leader = store.recover()?;
        let log = store.replica(leader).map(Replica::log);
        for (one, other) in REPLICAS.flat_map(|one| (one + 1..REPLICAS.end).map(move |other| (one, other))) {
            store.cluster.cut_link(one, other);
        }
        store.pause(60_000)?;
        store.say_alone(leader);
        store.pause(60_000)?;
        let leader = store.recover().map_err(|fault| format!("invariant 2: a log was given up: {fault}"))?;
        if store.replica(leader).map(Replica::log) != log {
            return Err(format!("invariant 2: {leader} gave up a log whose voters are all there"));
        }
        store.all_answered()?;
        store.history.judge()
    }

    /// An operator says that a replica is to continue alone.
    pub(super) fn say_alone(&mut self, survivor: u32) {
        let id = self.rng.next_u64();
        self.cluster.with_machine(survivor, |process, _, _| {
            if let Some(replica) = process.member_mut().and_then(Node::replica_mut) {
                replica.continue_alone(id);
            }
        });
    }

    /// The only one that is left continues alone; it had all up to an entry of a log.
    fn continue_alone(&mut self, survivor: u32, before: (u64, Index)) -> Result<(), String> {
        let state = self.replica(survivor).map(Replica::state);
        if !self.replica(survivor).is_some_and(Replica::is_stalled) {
            return Err(format!("one of three must not serve by itself: {state:?}"));
        }
        let digest = |store: &Self| store.replica(survivor).and_then(|it| it.digest_at(before.1));
        let digest_before = digest(self);
        self.oracle.begin_anew(survivor);
        self.say_alone(survivor);
        let end = self.cluster.now() + RECOVERY_MAX;
        while self.replica(survivor).is_some_and(|it| it.log() == before.0) && self.cluster.now() < end {
            self.step()?;
        }
        // Before anything else is appended.
        let now = self.replica(survivor).map(|it| (it.log(), it.last())).ok_or("no log")?;
        if now.0 == before.0 || now.1 < before.1 {
            return Err(format!("invariant 2: {now:?} after {before:?}, as {state:?}"));
        }
        if digest_before.zip(digest(self)).is_some_and(|(before, now)| before != now) {
            return Err(format!("invariant 2: other entries up to {}, as {state:?}", before.1));
        }
        if self.until_one_leads()? != survivor {
            return Err("another one leads".to_owned());
        }
        self.recover()?;
        self.all_answered()?;
        self.history.judge()
    }

    /// Changes how many voters there should be, up to all replicas and down again, with a death after each
    /// change: how many there were each time when all voters had everything.
    pub(crate) fn resize(seed: u64) -> Result<Vec<usize>, String> {
        let mut store = Self::start(seed, &Plan::of(seed, Faults::Single));
        store.steady()?;
        let mut counts = Vec::new();
        for voters in [REPLICAS.end - REPLICAS.start, VOTERS] {
            store.ask_for(voters)?;
            for _ in 0..2 {
                counts.push(store.settle(voters)?);
                let victim = store.leader().ok_or("no replica leads")?;
                store.cluster.kill(victim);
                store.pause(400_000)?;
                store.end_faults();
            }
            counts.push(store.settle(voters)?);
        }
        store.history.judge()?;
        Ok(counts)
    }

    /// A client without outstanding operations asks for this number of voters, and gets its answer.
    fn ask_for(&mut self, voters: u32) -> Result<(), String> {
        self.all_answered()?;
        if !self.begin(CLIENTS.start, Operation::Resize(voters)) {
            return Err("the client takes no operation".to_owned());
        }
        let end = self.cluster.now() + 2 * AGAIN_EVERY_MAX.0;
        while self.cluster.now() < end {
            if self.takes_answer(CLIENTS.start) {
                return Ok(());
            }
            let soon = self.cluster.now() + 20_000;
            self.run_until(soon)?;
        }
        Err(format!("invariant 12: {voters} voters were asked for, without an answer: {}", self.states()))
    }

    /// Waits until all processes are members, `target` is the wanted number of voters, and all voters
    /// have everything. Returns the number of voters.
    fn settle(&mut self, target: u32) -> Result<usize, String> {
        let end = self.cluster.now() + STEADY_WITHIN;
        while self.cluster.now() < end {
            let soon = self.cluster.now() + AGAIN_EVERY.0;
            self.work_until(soon)?;
            let Some(replica) = self.leader().and_then(|leader| self.replica(leader)) else { continue };
            let config = replica.config();
            let count = config.voters.len();
            let is_redundant = replica.state() == ReplicaState::Leading { ready: true, redundancy: count };
            let all = self.cluster.view(0).members.len() == NODES as usize;
            if all && is_redundant && config.target == target && count >= target as usize {
                return Ok(count);
            }
        }
        Err(format!("invariant 12: not {target} voters with everything: {}", self.states()))
    }
}
