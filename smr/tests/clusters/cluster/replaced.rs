//! Voters that were frozen while another log replaced theirs, and come back.

use super::{
    AFTERMATH, AGAIN_EVERY_MAX, CLIENTS, History, Machine, Node, Plan, Process, RECOVERY_MAX, REPLICAS,
    ServiceRun, Store, VOTERS,
};
use obol_smr::identity::of_newer_log;
use obol_smr::{Actor, Detector, Guard, Replica, ReplicaState};

/// Seconds since 1970, as a host's clock shows them.
const SECONDS: u64 = 1_800_000_000;

impl<D: Detector, G: Guard> Store<D, G> {
    /// Two voters of three are frozen, and the third one continues alone. They come back while clients work,
    /// end, and start again with nothing; then the one that has continued dies.
    pub(crate) fn replace_by_recovery(seed: u64, plan: &Plan) -> Result<(), String> {
        let mut store = Self::start(seed, plan);
        let (log, voters, leader) = store.all_applied()?;
        let survivor = voters[(seed % u64::from(VOTERS)) as usize];
        let frozen: Vec<u32> = voters.into_iter().filter(|node| *node != survivor).collect();
        for node in REPLICAS.filter(|node| *node != survivor) {
            if frozen.contains(&node) { store.cluster.freeze(node) } else { store.cluster.kill(node) }
        }
        // Meanwhile clients ask the leader that is frozen.
        let end = store.cluster.now() + RECOVERY_MAX;
        while !store.replica(survivor).is_some_and(Replica::is_stalled) {
            store.pause(20_000)?;
            if store.cluster.now() > end {
                return Err(format!("{survivor} does not stall without {leader}: {}", store.states()));
            }
        }
        store.oracle.replace(log);
        store.say_alone(survivor);
        store.until_newer_leads(log)?;
        store.come_back(&frozen, survivor)?;
        store.history.judge()
    }

    /// All voters are frozen, and another replica begins the store anew, with nothing. They come back while
    /// clients work, end, and start again with nothing; then the one that has begun it dies.
    pub(crate) fn replace_by_beginning(seed: u64, plan: &Plan) -> Result<(), String> {
        let mut store = Self::start(seed, plan);
        let (log, voters, _) = store.all_applied()?;
        let mut all = REPLICAS;
        let other = all.find(|node| !voters.contains(node)).ok_or("four replicas")?;
        store.cluster.kill(other);
        voters.iter().for_each(|node| store.cluster.freeze(*node));
        // Their sessions were those of the store before.
        for client in CLIENTS {
            store.cluster.kill(client);
            store.asked.remove(&client);
        }
        let soon = store.cluster.now() + AFTERMATH;
        store.run_until(soon)?;
        store.history.judge()?;
        store.history = History::default();
        store.oracle.begin_store_anew(log);
        let machine = store.founder(other, log);
        store.cluster.restart(other, machine, false);
        for client in CLIENTS {
            store.restart(client);
        }
        store.until_newer_leads(log)?;
        store.come_back(&voters, other)?;
        store.history.judge()
    }

    /// Runs until the voters have applied everything: their log, and who they are, with the leader.
    fn all_applied(&mut self) -> Result<(u64, Vec<u32>, u32), String> {
        self.steady()?;
        let leader = self.recover()?;
        self.all_answered()?;
        let end = self.cluster.now() + 4 * AGAIN_EVERY_MAX.0;
        loop {
            let soon = self.cluster.now() + AGAIN_EVERY_MAX.0;
            self.run_until(soon)?;
            let leader = self.leader().unwrap_or(leader);
            let replica = self.replica(leader).ok_or("no leader")?;
            let voters: Vec<u32> = replica.config().voters.iter().map(|voter| voter.address.region).collect();
            let has_all = |node: &u32| self.replica(*node).map(Replica::applied) == replica.commit();
            if voters.len() == VOTERS as usize
                && voters.iter().all(has_all)
                && replica.last() == replica.applied()
            {
                return Ok((replica.log(), voters, leader));
            }
            if soon > end {
                return Err(format!("not all have applied everything: {}", self.states()));
            }
        }
    }

    /// A replica that begins a store on an operator's word.
    fn founder(&mut self, node: u32, known: u64) -> Process<Machine<D, G>> {
        let (number, seed) = (self.rng.next_u64(), self.rng.next_u64());
        let replica = self.new_replica(node).founding(of_newer_log(number, SECONDS, [known]), VOTERS);
        let member = self.member(node, seed);
        Process::Member(Box::new(Node::new(member, Actor::Replica(Box::new(replica)))))
    }

    fn until_newer_leads(&mut self, before: u64) -> Result<(), String> {
        let end = self.cluster.now() + RECOVERY_MAX;
        let leads = |store: &Self| {
            let leader = store.leader().and_then(|leader| store.replica(leader));
            leader.is_some_and(|leader| leader.log() != before)
        };
        while !leads(self) {
            if self.cluster.now() > end {
                return Err(format!("no newer log is led: {}", self.states()));
            }
            self.pause(20_000)?;
        }
        // Clients have written to it.
        self.pause(300_000)
    }

    /// Replicas with the log before come back: none of them goes on with it.
    fn come_back(&mut self, frozen: &[u32], leader: u32) -> Result<(), String> {
        let at_once = self.rng.coin();
        for node in frozen {
            self.cluster.thaw(*node);
            if !at_once {
                self.pause(200_000)?;
            }
        }
        let end = self.cluster.now() + RECOVERY_MAX;
        while let Some(node) = frozen.iter().find(|node| !self.cluster.is_dead(**node)) {
            if self.cluster.now() > end {
                return Err(format!(
                    "invariant 2: {node} does not give way to a newer log: {}",
                    self.states()
                ));
            }
            self.pause(20_000)?;
        }
        let state = self.replica(leader).map(Replica::state);
        if !self.cluster.runs(leader) || state == Some(ReplicaState::Misfit) {
            return Err(format!("invariant 2: the newer log gives way: {}", self.states()));
        }
        self.recover()?;
        self.pause(100_000)?;
        self.cluster.kill(leader);
        self.pause(100_000)?;
        self.recover()?;
        self.all_answered()
    }
}
