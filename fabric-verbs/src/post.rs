//! Posting on a queue pair. It allocates nothing and makes no system call of its own: most
//! providers ring a mapped doorbell. The provider of soft-RoCE makes one call per submission, so
//! related requests are submitted together.
#![allow(unsafe_code)]

use super::pair::{AddressHandle, Kind, QueuePair};
use super::queue::PostError;
use super::registration::{Local, Target};
use super::sys::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_SEND, ibv_mw_bind_info, ibv_recv_wr, ibv_send_wr, ibv_send_wr_atomic, ibv_send_wr_bind_mw,
    ibv_send_wr_rdma, ibv_send_wr_ud, ibv_send_wr_wr, ibv_sge,
};
use core::ptr::null_mut;
use std::sync::Arc;

/// The destination of a datagram: a peer or a group.
#[derive(Debug)]
pub struct To<'a> {
    /// A handle of the queue pair's own domain.
    pub handle: &'a AddressHandle,
    /// The number of the queue pair there.
    pub number: u32,
    /// Its key.
    pub qkey: u32,
}

/// The kind of a one-sided operation.
#[derive(Clone, Copy, Debug)]
pub enum Verb<'a> {
    /// READs into local memory.
    Read(Local),
    /// WRITEs from local memory, which must not change before the completion.
    Write(Local),
    /// WRITEs at most [`QueuePair::inline_bytes`] bytes from local memory, which are copied at
    /// once.
    WriteCopied(Local),
    /// As above, from any memory.
    WriteInline(&'a [u8]),
    /// CASes a word.
    Cas {
        /// 8 bytes of local memory for the value found.
        found: Local,
        /// Swaps if it finds this,
        expected: u64,
        desired: u64,
    },
}

/// A one-sided operation.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// The number in its completion.
    pub id: u64,
    /// Its kind.
    pub verb: Verb<'a>,
    /// Its target at the peer.
    pub there: Target,
    /// Whether its success makes a completion. A failure always does.
    pub signal: bool,
}

impl QueuePair {
    /// Posts an operation.
    #[inline]
    pub fn post(&self, work: &Work<'_>) -> Result<(), PostError> {
        let (mut sge, mut request) = self.one_sided(work)?;
        request.sg_list = &raw mut sge;
        self.post_send(Kind::Reliable, &mut request)
    }

    /// Posts two operations in this order with one ring of the doorbell. If the second is refused,
    /// the first is posted.
    #[inline]
    pub fn post_both(&self, first: &Work<'_>, second: &Work<'_>) -> Result<(), PostError> {
        let ((mut sge, mut request), (mut sge_behind, mut behind)) =
            (self.one_sided(first)?, self.one_sided(second)?);
        behind.sg_list = &raw mut sge_behind;
        request.sg_list = &raw mut sge;
        request.next = &raw mut behind;
        self.post_send(Kind::Reliable, &mut request)
    }

    /// The request for an operation, without its entry.
    #[inline]
    fn one_sided(&self, work: &Work<'_>) -> Result<(ibv_sge, ibv_send_wr), PostError> {
        let there = work.there;
        let plain = ibv_send_wr_wr { rdma: rdma(there) };
        let (opcode, flags, sge, wr) = match work.verb {
            Verb::Read(into) => (IBV_WR_RDMA_READ, 0, into.raw(), plain),
            Verb::Write(from) => (IBV_WR_RDMA_WRITE, 0, from.raw(), plain),
            Verb::WriteCopied(from) if from.bytes > self.inline_bytes() => {
                return Err(PostError(libc::EMSGSIZE));
            }
            Verb::WriteCopied(from) => (IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, from.raw(), plain),
            Verb::WriteInline(bytes) => (IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, self.inline(bytes)?, plain),
            Verb::Cas { found, expected, desired } => {
                let atomic = ibv_send_wr_atomic {
                    remote_addr: there.address,
                    compare_add: expected,
                    swap: desired,
                    rkey: there.rkey,
                };
                (IBV_WR_ATOMIC_CMP_AND_SWP, 0, found.raw(), ibv_send_wr_wr { atomic })
            }
        };
        Ok((sge, request(work.id, opcode, flags | signalled(work.signal), wr)))
    }

    /// READs into local memory.
    #[inline]
    pub fn read(&self, id: u64, into: Local, there: Target, signal: bool) -> Result<(), PostError> {
        self.post(&Work { id, verb: Verb::Read(into), there, signal })
    }

    /// WRITEs from local memory, which must not change before the completion.
    #[inline]
    pub fn write(&self, id: u64, from: Local, there: Target, signal: bool) -> Result<(), PostError> {
        self.post(&Work { id, verb: Verb::Write(from), there, signal })
    }

    /// WRITEs at most [`QueuePair::inline_bytes`] bytes, which are copied at once.
    #[inline]
    pub fn write_inline(&self, id: u64, bytes: &[u8], there: Target, signal: bool) -> Result<(), PostError> {
        self.post(&Work { id, verb: Verb::WriteInline(bytes), there, signal })
    }

    /// CASes a word; the value found is stored in 8 bytes of local memory.
    #[inline]
    pub fn cas(
        &self,
        id: u64,
        found: Local,
        there: Target,
        expected: u64,
        desired: u64,
        signal: bool,
    ) -> Result<(), PostError> {
        self.post(&Work { id, verb: Verb::Cas { found, expected, desired }, there, signal })
    }

    /// Sends a datagram from local memory, which must not change before the completion.
    #[inline]
    pub fn send(&self, id: u64, from: Local, to: &To<'_>) -> Result<(), PostError> {
        self.post_datagram(id, from.raw(), 0, to)
    }

    /// Sends a datagram of at most [`QueuePair::inline_bytes`] bytes, which are copied at once.
    #[inline]
    pub fn send_inline(&self, id: u64, bytes: &[u8], to: &To<'_>) -> Result<(), PostError> {
        self.post_datagram(id, self.inline(bytes)?, IBV_SEND_INLINE, to)
    }

    /// Receives one datagram, preceded by its 40-byte global routing header.
    #[inline]
    pub fn receive(&self, id: u64, into: Local) -> Result<(), PostError> {
        let mut sge = into.raw();
        let mut wr = ibv_recv_wr { wr_id: id, next: null_mut(), sg_list: &raw mut sge, num_sge: 1 };
        let mut refused = null_mut();
        // SAFETY: the pair lives, and the request and its entry are valid during the call, which
        // copies them. The device checks the memory against the key, and registered memory is
        // atomics.
        let errno = unsafe {
            match self.raw().as_ref().context.as_ref().and_then(|context| context.ops.post_recv) {
                Some(post) => post(self.raw().as_ptr(), &raw mut wr, &raw mut refused),
                None => libc::ENOSYS,
            }
        };
        PostError::check(errno)
    }

    #[inline]
    fn post_datagram(&self, id: u64, mut sge: ibv_sge, flags: u32, to: &To<'_>) -> Result<(), PostError> {
        // Providers assume that they created a handle themselves.
        if !Arc::ptr_eq(self.domain(), to.handle.domain()) {
            return Err(PostError(libc::EINVAL));
        }
        let ah = to.handle.raw().as_ptr();
        let ud = ibv_send_wr_ud { ah, remote_qpn: to.number, remote_qkey: to.qkey };
        let mut request = request(id, IBV_WR_SEND, flags | IBV_SEND_SIGNALED, ibv_send_wr_wr { ud });
        request.sg_list = &raw mut sge;
        self.post_send(Kind::Datagram, &mut request)
    }

    fn inline(&self, bytes: &[u8]) -> Result<ibv_sge, PostError> {
        match u32::try_from(bytes.len()) {
            Ok(length) if length <= self.inline_bytes() => {
                Ok(ibv_sge { addr: bytes.as_ptr().expose_provenance() as u64, length, lkey: 0 })
            }
            _ => Err(PostError(libc::EMSGSIZE)),
        }
    }

    /// Posts a chain of requests, each linked to its entry.
    #[inline]
    fn post_send(&self, kind: Kind, chain: &mut ibv_send_wr) -> Result<(), PostError> {
        // Providers assume that the request matches the pair's kind.
        if kind != self.kind() {
            return Err(PostError(libc::EINVAL));
        }
        let mut refused = null_mut();
        // SAFETY: the pair lives, and the requests, their entries and inline bytes, all the
        // caller's, are valid during the call, which copies them. The device checks other memory
        // against the keys, and registered memory is atomics.
        let errno = unsafe {
            match self.raw().as_ref().context.as_ref().and_then(|context| context.ops.post_send) {
                Some(post) => post(self.raw().as_ptr(), chain, &raw mut refused),
                None => libc::ENOSYS,
            }
        };
        PostError::check(errno)
    }
}

const NO_WINDOW: ibv_send_wr_bind_mw = ibv_send_wr_bind_mw {
    mw: null_mut(),
    rkey: 0,
    bind_info: ibv_mw_bind_info { mr: null_mut(), addr: 0, length: 0, mw_access_flags: 0 },
};

/// A request with one entry, not linked yet.
const fn request(id: u64, opcode: u32, send_flags: u32, wr: ibv_send_wr_wr) -> ibv_send_wr {
    ibv_send_wr {
        wr_id: id,
        next: null_mut(),
        sg_list: null_mut(),
        num_sge: 1,
        opcode,
        send_flags,
        imm_data: 0,
        wr,
        xrc_remote_srqn: 0,
        bind_mw: NO_WINDOW,
    }
}

const fn signalled(signal: bool) -> u32 {
    if signal { IBV_SEND_SIGNALED } else { 0 }
}

const fn rdma(target: Target) -> ibv_send_wr_rdma {
    ibv_send_wr_rdma { remote_addr: target.address, rkey: target.rkey }
}

impl Local {
    const fn raw(self) -> ibv_sge {
        ibv_sge { addr: self.address, length: self.bytes, lkey: self.lkey }
    }
}
