//! Voters that are replaced, added and removed while clients work, or all lost.

use super::{
    AFTERMATH, AGAIN_EVERY, AGAIN_EVERY_MAX, CLIENTS, Cluster, Faults, NODES, Plan, REPLICAS, Role,
    STEADY_WITHIN, VOTERS,
};
use obol_smr::{Client, Detector, Guard, Operation, Replica, ReplicaState};

impl<D: Detector, G: Guard> Cluster<D, G> {
    /// All replicas die at once and start again, without a log: their states after a time that is long
    /// enough for many views, and how many views there were since they had all joined.
    pub(crate) fn lose_all(seed: u64) -> Result<(Vec<ReplicaState>, u64), String> {
        let mut cluster = Self::start(seed, &Plan::of(seed, Faults::Single));
        cluster.steady()?;
        for node in REPLICAS {
            cluster.world.kill(node);
        }
        let soon = cluster.world.now() + AFTERMATH;
        cluster.run_until(soon)?;
        for node in REPLICAS {
            let machine = cluster.machine(node);
            cluster.world.restart(node, machine, false);
        }
        let soon = cluster.world.now() + STEADY_WITHIN;
        cluster.run_until(soon)?;
        let before = cluster.world.machine(0).view().id.0;
        let later = cluster.world.now() + STEADY_WITHIN;
        cluster.run_until(later)?;
        let states = REPLICAS.filter_map(|node| cluster.replica(node).map(Replica::state)).collect();
        Ok((states, cluster.world.machine(0).view().id.0 - before))
    }

    /// Replaces the leader, and then so many voters that do not lead: the changes of leaders during the
    /// latter.
    pub(crate) fn replace_voters(seed: u64, count: u32) -> Result<u64, String> {
        let mut cluster = Self::start(seed, &Plan::of(seed, Faults::Single));
        cluster.steady()?;
        let founder = cluster.recover()?;
        cluster.world.kill(founder);
        cluster.pause(100_000)?;
        cluster.recover()?;
        let before = cluster.oracle.failovers;
        for _ in 0..count {
            let leader = cluster.recover()?;
            let voters = cluster.replica(leader).map(|it| it.config().voters.clone()).unwrap_or_default();
            let victim = voters.iter().map(|voter| voter.address.region).find(|node| *node != leader);
            cluster.world.kill(victim.ok_or("one voter only")?);
            cluster.pause(100_000)?;
        }
        cluster.recover()?;
        Ok(cluster.oracle.failovers - before)
    }

    /// Changes how many voters there should be, up to all replicas and down again, with a death after each
    /// change: how many there were each time when all voters had everything.
    pub(crate) fn resize(seed: u64) -> Result<Vec<usize>, String> {
        let mut cluster = Self::start(seed, &Plan::of(seed, Faults::Single));
        cluster.steady()?;
        let mut counts = Vec::new();
        for voters in [REPLICAS.end - REPLICAS.start, VOTERS] {
            cluster.ask_for(voters)?;
            for _ in 0..2 {
                counts.push(cluster.settle(voters)?);
                let victim = cluster.leader().ok_or("no replica leads")?;
                cluster.world.kill(victim);
                cluster.pause(400_000)?;
                cluster.end_faults();
            }
            counts.push(cluster.settle(voters)?);
        }
        cluster.history.judge()?;
        Ok(counts)
    }

    /// A client that waits for nothing asks for so many voters, and gets its answer.
    fn ask_for(&mut self, voters: u32) -> Result<(), String> {
        self.all_answered()?;
        let begun = self.world.with_machine(CLIENTS.start, |role, now, port| match role {
            Role::Node(node) => {
                node.client().map(|it| it.begin(now, Operation::Resize(voters), port).is_ok())
            }
            Role::Coordinator(_) => None,
        });
        if begun.flatten() != Some(true) {
            return Err("the client takes no operation".to_owned());
        }
        let end = self.world.now() + 2 * AGAIN_EVERY_MAX.0;
        while self.world.now() < end {
            if let Role::Node(node) = self.world.machine_mut(CLIENTS.start)
                && node.client().and_then(Client::take).is_some()
            {
                return Ok(());
            }
            let soon = self.world.now() + 20_000;
            self.run_until(soon)?;
        }
        Err(format!("invariant 12: {voters} voters were asked for, without an answer: {}", self.states()))
    }

    /// Waits until all processes are members, there should be so many voters, and all of those that there
    /// are have everything.
    fn settle(&mut self, target: u32) -> Result<usize, String> {
        let end = self.world.now() + STEADY_WITHIN;
        while self.world.now() < end {
            let soon = self.world.now() + AGAIN_EVERY.0;
            self.work_until(soon)?;
            let Some(replica) = self.leader().and_then(|leader| self.replica(leader)) else { continue };
            let config = replica.config();
            let count = config.voters.len();
            let is_redundant = replica.state() == ReplicaState::Leading { ready: true, redundancy: count };
            let all = self.world.machine(0).view().members.len() == NODES as usize;
            if all && is_redundant && config.target == target && count >= target as usize {
                return Ok(count);
            }
        }
        Err(format!("invariant 12: not {target} voters with everything: {}", self.states()))
    }
}
