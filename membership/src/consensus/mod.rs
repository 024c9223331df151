//! Abortable consensus on one slot at a time: how a coordinator has its proposal decided.
//!
//! An engine implements [`Consensus`]; the coordinator's is [`Engine`]. What lies in an acceptor's
//! slot is the engine's: everybody else reads it as a [`SlotWord`].

mod cas;
mod slot_word;

pub use slot_word::{AGE_MAX, Ballot, Head, INSTANCES, LAG_MAX, PROPOSAL_MAX, SlotState, SlotWord};

use crate::mutants::ActiveMutant;
use crate::tokens::Part;
use crate::view::Acceptor;
use core::fmt::Debug;
use core::hash::Hash;
use obol_fabric::{Completion, Fabric, Layout, LinkError, ViewId};
use std::sync::Arc;

/// The engine of this build's coordinators.
pub type Engine = cas::CasEngine;

/// One proposer's engine.
///
/// A slot is opened, prepared, and then proposed in; any step may abort, and the attempt then
/// begins again with [`Consensus::prepare`]. All operations are posted to the fabric; their
/// completions come back by [`Consensus::complete`].
pub trait Consensus: Clone + Debug + Eq + Hash {
    /// The engine of proposer `me` (from 1), with no slot open.
    #[must_use]
    fn new(me: u16, layout: Layout, mutant: ActiveMutant) -> Self;

    /// The slot that is open.
    fn slot(&self) -> ViewId;

    /// Where the attempt is.
    fn phase(&self) -> Phase;

    /// Turns to a slot. `prepared_by` is the proposer that is thought to have prepared it already.
    fn open(&mut self, slot: ViewId, acceptors: &[Acceptor], prepared_by: Option<u16>);

    /// Asks for promises.
    fn prepare<F: Fabric>(&mut self, fabric: &mut F) -> Option<Outcome>;

    /// Proposes a value on a prepared slot; an adopted value takes precedence.
    fn accept<F: Fabric>(&mut self, own: Arc<[u8]>, fabric: &mut F) -> Option<Outcome>;

    /// Takes the completion of one of the engine's operations.
    fn complete<F: Fabric>(
        &mut self,
        part: Part,
        peer: u16,
        round: u32,
        result: &Result<Completion<'_>, LinkError>,
        fabric: &mut F,
    ) -> Option<Outcome>;
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The slot is prepared; nothing was accepted in it before, so any value may be proposed.
    Prepared,
    /// The slot is prepared and holds another proposer's value, which must be proposed: call
    /// [`Consensus::accept`].
    Adopted,
    /// The slot is decided on this sealed value. `adopted` tells whether it is another proposer's.
    Decided {
        /// The decided value.
        value: Arc<[u8]>,
        /// Whether it was adopted.
        adopted: bool,
    },
    /// The attempt failed; call [`Consensus::prepare`] again, after a pause if another proposer is
    /// about.
    Aborted(Abort),
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Abort {
    /// A prediction was wrong; it is right now.
    Mispredicted,
    /// Another proposer promised itself a higher number meanwhile.
    Contended,
    /// Too few acceptors can be reached.
    NoMajority,
    /// The value to adopt was being overwritten.
    Unreadable,
    /// The slot belongs to the past: its place in the ring was recycled.
    Behind,
    /// Proposal numbers of this slot are used up.
    Exhausted,
}

/// Where an attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not begun, or aborted.
    Idle,
    /// Waiting for promises.
    Preparing,
    /// Reading the value to adopt from the acceptor in this place.
    Reading(u8),
    /// Prepared. `true`: with a value that was adopted.
    Prepared(bool),
    /// Waiting for acceptances.
    Accepting,
    /// Decided.
    Decided,
}
