//! A client that does nothing while others use more sessions than the log keeps.

use super::{AGAIN_EVERY_MAX, CLIENTS, Client, Cluster, Detector, Faults, Guard, Plan, Role};
use obol_smr::SESSIONS_MAX;

/// Longer than a client relies on its session without using it, in ns.
const IDLE: u64 = 1_100_000_000;

impl<D: Detector, G: Guard> Cluster<D, G> {
    /// The client's session ends because others are used, and it goes on with a command that takes effect.
    pub(crate) fn outlives_its_session(seed: u64) -> Result<(), String> {
        let mut cluster = Self::start(seed, &Plan::of(seed, Faults::Single));
        cluster.steady()?;
        for client in CLIENTS {
            cluster.asked.entry(client).or_default().is_held = true;
        }
        cluster.put()?;
        let (begun, other) = (cluster.world.now(), CLIENTS.start + 1);
        for _ in 0..=SESSIONS_MAX {
            let machine = cluster.machine(other);
            cluster.world.restart(other, machine, false);
            cluster.opens(other)?;
        }
        cluster.run_until(begun + IDLE)?;
        cluster.put()?;
        let leader = cluster.recover()?;
        let service = cluster.replica(leader).ok_or("the leader is a replica")?.service();
        service.twice.map_or(Ok(()), |value| Err(format!("invariant 6: {value} was put twice")))
    }

    /// Waits until a new client has its session.
    fn opens(&mut self, node: u32) -> Result<(), String> {
        let end = self.world.now() + 4 * AGAIN_EVERY_MAX.0;
        while self.world.now() < end {
            if let Role::Node(machine) = self.world.machine_mut(node)
                && machine.client().is_some_and(|client| Client::is_open(client))
            {
                return Ok(());
            }
            self.run_until(self.world.now() + 20_000)?;
        }
        Err(format!("invariant 12: client {node} gets no session: {}", self.states()))
    }
}
