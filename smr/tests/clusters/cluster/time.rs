//! Time of the log while nothing is written, and leaders and voters are replaced.

use super::{
    AGAIN_EVERY_MAX, CLIENTS, Detector, Guard, KeyValue, Operation, Plan, REPLICAS, ServiceRun, Store, bytes,
    stamped_by_client,
};

/// How long nothing is written, in ns: many times what a failover takes.
const IDLE: u64 = 15_000_000;
/// Leaders that follow each other.
const LEADERS: u32 = 3;

impl<D: Detector, G: Guard> Store<D, G> {
    /// What was put between true times has a time of the log that goes on as these do.
    pub(super) fn judge_time(&self) -> Result<(), String> {
        let leader = self.leader().ok_or("no replica leads after all faults")?;
        let service = self.replica(leader).ok_or("the leader is a replica")?.service();
        self.puts.judge(service, self.oracle.failovers)
    }

    /// Between two PUTs all replicas but the leader are replaced, then the leader dies: so the next one has
    /// joined since the last command.
    pub(crate) fn time_goes_on(seed: u64, plan: &Plan) -> Result<(), String> {
        let mut store = Self::start(seed, plan);
        store.steady()?;
        for client in CLIENTS {
            store.asked.entry(client).or_default().is_held = true;
        }
        for _ in 0..LEADERS {
            let leader = store.recover()?;
            store.put()?;
            store.idle()?;
            let config = store.replica(leader).map(|it| it.config().clone()).ok_or("it is a replica")?;
            let votes = |node: &u32| config.voters.iter().any(|voter| voter.address.region == *node);
            // One that does not vote takes the place of a voter that dies, and is to be a new one then.
            let (voters, others): (Vec<u32>, Vec<u32>) = REPLICAS.partition(votes);
            for victim in others.into_iter().chain(voters).filter(|node| *node != leader) {
                store.cluster.kill(victim);
                store.pause(100_000)?;
                store.recover()?;
            }
            store.idle()?;
            // Without a fault there may be another one by now.
            let leader = store.recover()?;
            store.cluster.kill(leader);
            store.pause(100_000)?;
        }
        store.recover()?;
        store.put()?;
        store.judge_time()
    }

    fn idle(&mut self) -> Result<(), String> {
        self.run_until(self.cluster.now() + IDLE)
    }

    /// A client puts a value, and gets its answer.
    pub(super) fn put(&mut self) -> Result<(), String> {
        self.next_value += 1;
        let (value, begin) = (self.next_value, self.cluster.now());
        let put = KeyValue::put(&[0], &bytes(value)).map_err(|error| error.to_string())?;
        let put = Operation::Propose(stamped_by_client(&put));
        if !self.begin(CLIENTS.start, put) {
            return Err("the client takes no operation".to_owned());
        }
        self.puts.begins(value, begin);
        let end = begin + 2 * AGAIN_EVERY_MAX.0;
        while self.cluster.now() < end {
            if self.takes_answer(CLIENTS.start) {
                self.puts.ends(value, self.cluster.now());
                return Ok(());
            }
            self.run_until(self.cluster.now() + 20_000)?;
        }
        Err(format!("invariant 12: a PUT has no answer: {}", self.states()))
    }
}
