//! A leader that does not know that it is outdated, with a client that still asks it.

use super::{CLIENTS, COORDINATORS, REPLICAS, ServiceRun, Store};
use obol_smr::{Detector, Guard, Replica, ReplicaState};

/// Operations that each client may begin beyond those before: enough for the writes that the reader
/// waits for, and for its reads.
const MORE_OPERATIONS: u32 = 20;
/// Another one leads within this time: with `dare`, a server that has suspected leaders in vain waits for
/// longer and longer, 10 ms at most, and elections of two may collide several times: one seed in some
/// hundred takes more than 30 ms.
const LEADS_WITHIN: u64 = 200_000_000;
/// Answers of the newer leader before the reader begins. Half of the operations are writes.
const NEWER_ANSWERS: u64 = 6;

impl<D: Detector, G: Guard> Store<D, G> {
    pub(super) fn deafen(&mut self) -> Result<(), String> {
        let reader = CLIENTS.end - 1;
        if D::OF_VIEWS {
            self.keep_view_from_leader(reader)?;
        } else {
            self.depose(reader)?;
        }
        self.reader = None;
        Ok(())
    }

    /// The leader's lease runs while it is excluded, and the reader still asks it.
    fn keep_view_from_leader(&mut self, reader: u32) -> Result<(), String> {
        let leader = self.recover()?;
        self.lingers = true;
        self.reader = Some(reader);
        for coordinator in 0..COORDINATORS {
            self.cluster.partition(coordinator, leader);
            self.cluster.partition(coordinator, reader);
        }
        self.cluster.suspect(leader, 0);
        self.pause(400_000)
    }

    /// Another replica leads and answers the other clients; then the reader asks the leader that it
    /// knows.
    fn depose(&mut self, reader: u32) -> Result<(), String> {
        self.recover()?;
        self.operations_max += MORE_OPERATIONS;
        // A write that the leader cannot commit would hold up its reads.
        self.asked.values_mut().for_each(|asked| asked.is_held = true);
        self.all_answered()?;
        let leader = self.recover()?;
        self.lingers = true;
        let others = REPLICAS.chain(CLIENTS).filter(|peer| ![leader, reader].contains(peer));
        others.for_each(|peer| self.cluster.cut_link(leader, peer));
        self.asked.iter_mut().for_each(|(client, asked)| asked.is_held = *client == reader);
        let begun = self.cluster.now();
        while !self.answers_beside(leader) {
            if self.cluster.now() > begun + LEADS_WITHIN {
                return Err(format!(
                    "invariant 12: {leader} is cut off, and no other replica answers: {}",
                    self.states()
                ));
            }
            self.work_until(self.cluster.now() + 20_000)?;
        }
        self.asked.entry(reader).or_default().is_held = false;
        self.reader = Some(reader);
        self.pause(400_000)
    }

    /// Whether a replica other than this one leads and has answered some operations.
    fn answers_beside(&self, outdated: u32) -> bool {
        let answers = |replica: &Replica<_, D, G>| {
            matches!(replica.state(), ReplicaState::Leading { .. }) && replica.answered() >= NEWER_ANSWERS
        };
        REPLICAS.filter(|node| *node != outdated).filter_map(|node| self.replica(node)).any(answers)
    }
}
