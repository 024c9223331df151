//! Abortable consensus on one slot at a time: how a coordinator has its proposal decided.
//!
//! An engine implements [`Consensus`]; the coordinator's is [`Engine`]. The contents of an
//! acceptor's slot are private to the engine: all other code reads it as a [`SlotWord`].

pub mod cas;
mod slot_word;

pub use slot_word::{AGE_MAX, Ballot, Head, INSTANCES, LAG_MAX, PROPOSAL_MAX, SlotState, SlotWord};

use crate::mutants::ActiveMutant;
use crate::tokens::Part;
use crate::view::Acceptor;
use core::fmt::Debug;
use core::hash::Hash;
use obol_fabric::{Completion, Fabric, Layout, LinkError, ViewId};
use std::sync::Arc;

/// The engine of this build.
pub type Engine = cas::CasEngine;

/// One proposer's engine.
///
/// A slot is opened, prepared, and then proposed in. Any step may abort; the attempt then starts
/// over with [`Consensus::prepare`]. All operations are posted to the fabric; their completions are
/// passed to [`Consensus::complete`].
pub trait Consensus: Clone + Debug + Eq + Hash {
    /// The engine of proposer `me` (from 1), with no slot open.
    fn new(me: u16, layout: Layout, mutant: ActiveMutant) -> Self;

    /// The open slot.
    fn slot(&self) -> ViewId;

    /// The phase of the current attempt.
    fn phase(&self) -> Phase;

    /// Opens a slot. `prepared_by` is the proposer that has probably prepared it already.
    fn open(&mut self, slot: ViewId, acceptors: &[Acceptor], prepared_by: Option<u16>);

    /// Requests promises.
    fn prepare<F: Fabric>(&mut self, fabric: &mut F) -> Option<Outcome>;

    /// Proposes a value on a prepared slot; an adopted value takes precedence. `before` posts what
    /// should be complete when the slot is decided.
    fn accept<F: Fabric>(
        &mut self,
        own: Arc<[u8]>,
        before: impl FnOnce(&mut F),
        fabric: &mut F,
    ) -> Option<Outcome>;

    /// Handles the completion of one of the engine's operations.
    fn complete<F: Fabric>(
        &mut self,
        part: Part,
        peer: u16,
        round: u32,
        result: &Result<Completion<'_>, LinkError>,
        fabric: &mut F,
    ) -> Option<Outcome>;
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The slot is prepared; nothing was accepted in it before, so any value may be proposed.
    Prepared,
    /// The slot is prepared and holds another proposer's value, which must be proposed: call
    /// [`Consensus::accept`].
    Adopted,
    /// The slot is decided on this framed value.
    Decided {
        value: Arc<[u8]>,
        /// Whether it is another proposer's.
        adopted: bool,
    },
    /// The attempt failed; call [`Consensus::prepare`] again, after a pause if another proposer is
    /// active.
    Aborted(Abort),
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Abort {
    /// A prediction was wrong; it has been corrected.
    Mispredicted,
    /// Another proposer got promises for a higher number meanwhile.
    Contended,
    /// Too few acceptors can be reached.
    NoMajority,
    /// The value to adopt was being overwritten.
    Unreadable,
    /// The slot is too old: its place in the ring was recycled.
    Behind,
    /// The proposal numbers of this slot are exhausted.
    Exhausted,
}

/// The phase of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not begun, or aborted.
    Idle,
    /// Waiting for promises.
    Preparing,
    /// Reading the value to adopt from the acceptor at this index.
    Reading(u8),
    /// Reading that acceptor's word again, because its value was not whole.
    Checking(u8),
    /// Prepared. `true`: with an adopted value.
    Prepared(bool),
    /// Waiting for acceptances.
    Accepting,
    Decided,
}
