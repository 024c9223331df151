//! What clients do: those of their own, or those beside replicas.

use super::{
    AGAIN_EVERY, Act, Area, Client, Detector, Guard, KEYS, KeyValue, Machine, Node, Operation, POLL_EVERY,
    REPLICAS, Store, THINK, bytes, stamped_by_client,
};

/// In a history, clients that follow each other beside a replica have numbers that differ by this.
const NEXT_BESIDE: u32 = 100;

impl<D: Detector, G: Guard> Store<D, G> {
    /// A replica with a client beside it. The one before has died with its replica: what it has begun
    /// stays open.
    pub(super) fn with_client(&mut self, node: u32, area: Area, machine: Machine<D, G>) -> Machine<D, G> {
        if !REPLICAS.contains(&node) {
            return machine;
        }
        let asked = self.asked.entry(node).or_default();
        (asked.waits_for, asked.name) = (None, asked.name + NEXT_BESIDE);
        let seed = self.rng.next_u64();
        machine.with_client(Client::new(area, seed, POLL_EVERY, AGAIN_EVERY))
    }

    /// Takes a client's answer, and begins its next operation.
    pub(super) fn take_and_begin(&mut self, client: u32) -> Result<(), String> {
        let now = self.cluster.now();
        if !self.cluster.runs(client) {
            return Ok(());
        }
        let asked = self.asked.entry(client).or_default();
        let name = client + asked.name;
        let Some(machine) = self.cluster.machine_mut(client).member_mut() else { return Ok(()) };
        if let Some(done) = machine.client().and_then(Client::take)
            && let Some(act) = asked.waits_for.take()
        {
            self.history.ends(name, act, &done)?;
            if let Act::Put(_, value) = act {
                self.puts.ends(value, now);
            }
            // Mostly at once, to detect lost or stale values.
            let pause = if self.rng.coin() { 0 } else { self.rng.below(THINK) };
            asked.next_at = now + if self.reader == Some(client) { 0 } else { pause };
        }
        let may_begin = !asked.is_held && asked.begun < self.operations_max && now >= asked.next_at;
        if asked.waits_for.is_some() || !may_begin {
            return Ok(());
        }
        let key = self.rng.below(KEYS);
        let writes = self.rng.coin() && self.reader != Some(client);
        let (act, operation) = if writes {
            self.next_value += 1;
            let put = KeyValue::put(&[key as u8], &bytes(self.next_value)).map_err(|e| e.to_string())?;
            (Act::Put(key, self.next_value), Operation::Propose(stamped_by_client(&put)))
        } else {
            let get = KeyValue::get(&[key as u8]).map_err(|error| error.to_string())?;
            (Act::Get(key), Operation::Query(stamped_by_client(&get)))
        };
        if self.begin(client, operation) {
            self.history.begins(name, act)?;
            if let Act::Put(_, value) = act {
                self.puts.begins(value, now);
            }
            let asked = self.asked.entry(client).or_default();
            asked.waits_for = Some(act);
            asked.begun += 1;
        }
        Ok(())
    }

    /// Whether a client takes an operation.
    pub(super) fn begin(&mut self, client: u32, operation: Operation) -> bool {
        let begun = self.cluster.with_machine(client, |process, now, port| {
            let client = process.member_mut().and_then(Node::client)?;
            Some(client.begin(now, operation, port).is_ok())
        });
        begun.flatten() == Some(true)
    }

    /// Whether a client's operation has ended.
    pub(super) fn takes_answer(&mut self, client: u32) -> bool {
        let client = self.cluster.machine_mut(client).member_mut().and_then(Node::client);
        client.is_some_and(|client| client.take().is_some())
    }
}
