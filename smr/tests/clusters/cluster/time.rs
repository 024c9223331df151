//! Time of the log while nothing is written, and leaders and voters are replaced.

use super::{
    AGAIN_EVERY_MAX, CLIENTS, Client, Cluster, Detector, Guard, KeyValue, Operation, Plan, REPLICAS, Role,
    bytes, stamped_by_client,
};

/// How long nothing is written, in ns: many times what a failover takes.
const IDLE: u64 = 15_000_000;
/// Leaders that follow each other.
const LEADERS: u32 = 3;

impl<D: Detector, G: Guard> Cluster<D, G> {
    /// What was put between true times has a time of the log that goes on as these do.
    pub(super) fn judge_time(&self) -> Result<(), String> {
        let leader = self.leader().ok_or("no replica leads after all faults")?;
        let service = self.replica(leader).ok_or("the leader is a replica")?.service();
        self.puts.judge(service, self.oracle.failovers)
    }

    /// Between two PUTs all replicas but the leader are replaced, then the leader dies: so the next one has
    /// joined since the last command.
    pub(crate) fn time_goes_on(seed: u64, plan: &Plan) -> Result<(), String> {
        let mut cluster = Self::start(seed, plan);
        cluster.steady()?;
        for client in CLIENTS {
            cluster.asked.entry(client).or_default().is_held = true;
        }
        for _ in 0..LEADERS {
            let leader = cluster.recover()?;
            cluster.put()?;
            cluster.idle()?;
            let config = cluster.replica(leader).map(|it| it.config().clone()).ok_or("it is a replica")?;
            let votes = |node: &u32| config.voters.iter().any(|voter| voter.address.region == *node);
            // One that does not vote takes the place of a voter that dies, and is to be a new one then.
            let (voters, others): (Vec<u32>, Vec<u32>) = REPLICAS.partition(votes);
            for victim in others.into_iter().chain(voters).filter(|node| *node != leader) {
                cluster.world.kill(victim);
                cluster.pause(100_000)?;
                cluster.recover()?;
            }
            cluster.idle()?;
            // Without a fault there may be another one by now.
            let leader = cluster.recover()?;
            cluster.world.kill(leader);
            cluster.pause(100_000)?;
        }
        cluster.recover()?;
        cluster.put()?;
        cluster.judge_time()
    }

    fn idle(&mut self) -> Result<(), String> {
        self.run_until(self.world.now() + IDLE)
    }

    /// A client puts a value, and gets its answer.
    pub(super) fn put(&mut self) -> Result<(), String> {
        self.next_value += 1;
        let (value, begin) = (self.next_value, self.world.now());
        let put = KeyValue::put(&[0], &bytes(value)).map_err(|error| error.to_string())?;
        let put = Operation::Propose(stamped_by_client(&put));
        let begun = self.world.with_machine(CLIENTS.start, |role, now, port| match role {
            Role::Node(node) => node.client().map(|it| it.begin(now, put, port).is_ok()),
            Role::Coordinator(_) => None,
        });
        if begun.flatten() != Some(true) {
            return Err("the client takes no operation".to_owned());
        }
        self.puts.begins(value, begin);
        let end = begin + 2 * AGAIN_EVERY_MAX.0;
        while self.world.now() < end {
            if let Role::Node(node) = self.world.machine_mut(CLIENTS.start)
                && node.client().and_then(Client::take).is_some()
            {
                self.puts.ends(value, self.world.now());
                return Ok(());
            }
            self.run_until(self.world.now() + 20_000)?;
        }
        Err(format!("invariant 12: a PUT has no answer: {}", self.states()))
    }
}
