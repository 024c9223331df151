//! Driving a machine over a fabric of this host, whatever the transport.

use crate::contract::{Fabric, Machine};
use crate::host::{Cluster, Region, Waker};
use crate::types::Nanos;
use core::sync::atomic::AtomicBool;
use obol_deaths::Detection;
use obol_deaths::deadbeat::DeadbeatError;

/// A [`Fabric`] with a loop and a region on this host. Daemons and programs are written against
/// this trait, so that they run over shared memory and over RDMA.
pub trait Drive: Fabric {
    fn region(&self) -> &Region;

    /// The cluster, as seen from this host.
    fn cluster(&self) -> &Cluster;

    /// The mechanism that reports this process's death first.
    fn detection(&self) -> Detection;

    /// Why the kernel module, though it is loaded, does not report this process's death.
    fn kernel_refusal(&self) -> Option<&DeadbeatError>;

    /// A handle that ends a wait of the loop from another thread.
    fn waker(&self) -> Waker;

    /// Makes the loop turn, and the heartbeat advance, at least this often. 10 ms by default.
    fn beat_every(&mut self, span: Nanos);

    /// Submits all posts and datagrams. The loop calls this after each event.
    fn flush(&mut self);

    /// Drives a machine until `stop` is set; `turn` is called after each turn. A signal to this
    /// thread or [`Waker::wake`] makes it check `stop`.
    fn run<M: Machine>(&mut self, machine: &mut M, stop: &AtomicBool, turn: impl FnMut(&mut M, &mut Self));

    /// One turn without waiting: handles pending events, then due work. Returns whether there was
    /// any.
    fn poll_once<M: Machine>(&mut self, machine: &mut M) -> bool;
}
