//! A client that does nothing while others use more sessions than the log keeps.

use super::{AGAIN_EVERY_MAX, CLIENTS, Detector, Faults, Guard, Node, Plan, ServiceRun, Store};
use obol_smr::SESSIONS_MAX;

/// Longer than a client relies on its session without using it, in ns.
const IDLE: u64 = 1_100_000_000;

impl<D: Detector, G: Guard> Store<D, G> {
    /// The client's session ends because others are used, and it goes on with a command that takes effect.
    pub(crate) fn outlives_its_session(seed: u64) -> Result<(), String> {
        let mut store = Self::start(seed, &Plan::of(seed, Faults::Single));
        store.steady()?;
        for client in CLIENTS {
            store.asked.entry(client).or_default().is_held = true;
        }
        store.put()?;
        let (begun, other) = (store.cluster.now(), CLIENTS.start + 1);
        for _ in 0..=SESSIONS_MAX {
            store.restart(other);
            store.opens(other)?;
        }
        store.run_until(begun + IDLE)?;
        store.put()?;
        let leader = store.recover()?;
        let service = store.replica(leader).ok_or("the leader is a replica")?.service();
        service.twice.map_or(Ok(()), |value| Err(format!("invariant 6: {value} was put twice")))
    }

    /// Waits until a new client has its session.
    fn opens(&mut self, node: u32) -> Result<(), String> {
        let end = self.cluster.now() + 4 * AGAIN_EVERY_MAX.0;
        while self.cluster.now() < end {
            let client = self.cluster.machine_mut(node).member_mut().and_then(Node::client);
            if client.is_some_and(|client| client.is_open()) {
                return Ok(());
            }
            self.run_until(self.cluster.now() + 20_000)?;
        }
        Err(format!("invariant 12: client {node} gets no session: {}", self.states()))
    }
}
