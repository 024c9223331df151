//! Permissions: whose WRITEs a region executes. They are checked when an operation is executed, for
//! each of its halves, and a change takes time.

use super::core::Core;
use super::link::Verb;
use super::node::{Input, Permit};
use super::queue::Pending;
use obol_fabric::types::RegionOwner;

impl Core {
    /// Posts a change of permissions that leaves at `departs`; it takes effect after those before
    /// it.
    pub(super) fn permit(&mut self, at: u32, permit: Permit, departs: u64) {
        let takes = self.network.permit.draw(&mut self.rng);
        let node = &mut self.nodes[at as usize];
        node.permits.push_back(permit);
        node.last_permit = node.last_permit.max(departs + takes);
        let (time, life) = (node.last_permit, node.generation);
        self.queue.push(time, Pending::Permit { node: at, life });
    }

    /// A change takes effect, though its process may be frozen.
    pub(super) fn permitted(&mut self, at: u32, life: u32) {
        let node = &mut self.nodes[at as usize];
        if !node.lives(life) {
            return;
        }
        let Some(Permit { whom, part, permission, token }) = node.permits.pop_front() else { return };
        node.permissions.set(whom, &part, permission);
        node.inbox.push_back(Input::Permitted(token));
        self.mix(token);
        self.arm(at);
    }

    /// Whether the permissions of its target forbid an operation now: a WRITE that touches the value
    /// areas.
    pub(super) fn is_revoked(&self, id: u32) -> bool {
        let op = &self.ops[id];
        let (values, end) = (self.layout.values(), u64::from(op.offset) + u64::from(op.len));
        let touches = op.offset < values.end && end > u64::from(values.start);
        op.verb == Verb::Write
            && touches
            && !self.nodes[op.target as usize].permissions.allow(
                RegionOwner { region: op.source, generation: op.life },
                op.offset,
                op.len,
            )
    }
}
