//! Queue pairs: reliable connections (RC) and datagrams (UD), and their states. For posting, see
//! [`super::post`].
#![allow(unsafe_code)]

use super::context::{Gid, ProtectionDomain};
use super::error::VerbsError;
use super::queue::CompletionQueue;
use super::registration::Rights;
use super::sys::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_RETRY_CNT,
    IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_ERR, IBV_QPS_INIT,
    IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, IBV_QPT_UD, ibv_ah, ibv_ah_attr, ibv_qp,
    ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr,
};
use core::ffi::c_int;
use core::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

/// The kind of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Ordered, reliable one-sided operations with one peer.
    Reliable,
    /// Datagrams with any peer.
    Datagram,
}

/// The size of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Operations that can be posted before a completion of them is taken.
    pub sends: u32,
    /// Posted receives.
    pub receives: u32,
    /// Bytes of an inline WRITE or datagram. The device may grant less.
    pub inline_bytes: u32,
}

/// The path to a peer's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The local port, from 1.
    pub port: u8,
    /// The index in the local GID table.
    pub gid_index: u8,
    /// The peer's GID.
    pub gid: Gid,
    /// The peer's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The byte by which routers and switches prioritise (DSCP in its high six bits).
    pub traffic_class: u8,
}

const HOP_LIMIT: u8 = 64;

impl Path {
    pub(crate) fn raw(&self) -> ibv_ah_attr {
        let mut attr =
            ibv_ah_attr { dlid: self.lid, is_global: 1, port_num: self.port, ..Default::default() };
        attr.grh.dgid = self.gid.raw();
        attr.grh.sgid_index = self.gid_index;
        attr.grh.hop_limit = HOP_LIMIT;
        attr.grh.traffic_class = self.traffic_class;
        attr
    }
}

/// A device's retries before an operation fails. Never infinite: some devices interpret a count of
/// 7, and a timeout of 0, as infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Tries after the first: 0 to 6.
    pub count: u8,
    /// Each lasts 4.096 us times two to the power of this: 1 to 31.
    pub timeout: u8,
}

/// One end of a queue pair, for the other end to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub path: Path,
    pub number: u32,
    /// The number of the first packet that it sends.
    pub first_packet: u32,
    /// `enum ibv_mtu`: 1 is 256 bytes, 5 is 4096.
    pub mtu: u32,
}

#[derive(Debug)]
pub struct QueuePair {
    raw: NonNull<ibv_qp>,
    number: u32,
    kind: Kind,
    inline_bytes: u32,
    is_destroyed: bool,
    domain: Arc<ProtectionDomain>,
    /// The groups that it is attached to.
    groups: Mutex<Vec<(Gid, u16)>>,
    /// Kept so that they outlive the pair: sends, receives.
    _queues: [Arc<CompletionQueue>; 2],
}

// SAFETY: as for `Context`: modifying and posting are safe from any thread.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Creates one in the state RESET. Only signaled operations make a completion.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        kind: Kind,
        sends: &Arc<CompletionQueue>,
        receives: &Arc<CompletionQueue>,
        size: Size,
    ) -> Result<Self, VerbsError> {
        let context = domain.context();
        for queue in [sends, receives] {
            // Providers assume that they created a queue themselves.
            if !Arc::ptr_eq(queue.context(), context) {
                return Err(VerbsError::failed("ibv_create_qp", context.device(), libc::EXDEV));
            }
        }
        let create = |inline_bytes| {
            let mut attr = ibv_qp_init_attr {
                qp_context: null_mut(),
                send_cq: sends.raw().as_ptr(),
                recv_cq: receives.raw().as_ptr(),
                srq: null_mut(),
                cap: ibv_qp_cap {
                    max_send_wr: size.sends,
                    max_recv_wr: size.receives,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: inline_bytes,
                },
                qp_type: match kind {
                    Kind::Reliable => IBV_QPT_RC,
                    Kind::Datagram => IBV_QPT_UD,
                },
                sq_sig_all: 0,
            };
            // SAFETY: domain and queues live and are held by the new pair; `attr` is valid for
            // reads and writes.
            let raw = unsafe { (context.verbs().create_qp)(domain.raw().as_ptr(), &raw mut attr) };
            NonNull::new(raw)
                .map(|raw| (raw, attr.cap.max_inline_data))
                .ok_or_else(|| VerbsError::last("ibv_create_qp", context.device()))
        };
        // No call returns a device's maximum of inline bytes.
        let (raw, inline_bytes) = match create(size.inline_bytes) {
            Err(VerbsError::Failed { errno: libc::EINVAL | libc::ENOMEM | libc::EOPNOTSUPP, .. })
                if size.inline_bytes > 0 =>
            {
                create(0)?
            }
            made => made?,
        };
        // SAFETY: the library's structure lives until `ibv_destroy_qp`.
        let number = unsafe { raw.as_ref().qp_num };
        Ok(Self {
            raw,
            number,
            kind,
            inline_bytes,
            is_destroyed: false,
            domain: Arc::clone(domain),
            groups: Mutex::default(),
            _queues: [Arc::clone(sends), Arc::clone(receives)],
        })
    }

    /// Its number on the device.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The maximum size of inline data.
    pub const fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }

    /// `ibv_modify_qp`.
    pub(crate) fn modify(&self, attr: &mut ibv_qp_attr, mask: c_int) -> Result<(), VerbsError> {
        let context = self.domain.context();
        // SAFETY: the pair lives, and `attr` is valid for reads and writes.
        match unsafe { (context.verbs().modify_qp)(self.raw.as_ptr(), attr, mask) } {
            0 => Ok(()),
            errno => Err(VerbsError::failed("ibv_modify_qp", context.device(), errno)),
        }
    }

    /// RESET to INIT, of an RC pair, with the peer's rights on it.
    pub fn init(&self, port: u8, rights: Rights) -> Result<(), VerbsError> {
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            port_num: port,
            qp_access_flags: rights.flags(),
            ..Default::default()
        };
        self.modify(&mut attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
    }

    /// INIT to RTS, of an RC pair: connects it to a peer that does the same. `reads` is the number
    /// of concurrent READs and CASes in each direction.
    pub fn connect(
        &self,
        own_first_packet: u32,
        peer: &End,
        reads: u8,
        retry: Retry,
    ) -> Result<(), VerbsError> {
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_RTR,
            path_mtu: peer.mtu,
            dest_qp_num: peer.number,
            rq_psn: peer.first_packet,
            max_dest_rd_atomic: reads,
            min_rnr_timer: RNR_TIMER,
            ah_attr: peer.path.raw(),
            ..Default::default()
        };
        self.modify(
            &mut attr,
            IBV_QP_STATE
                | IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER,
        )?;
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_RTS,
            timeout: retry.timeout,
            retry_cnt: retry.count,
            rnr_retry: retry.count,
            sq_psn: own_first_packet,
            max_rd_atomic: reads,
            ..Default::default()
        };
        self.modify(
            &mut attr,
            IBV_QP_STATE
                | IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_SQ_PSN
                | IBV_QP_MAX_QP_RD_ATOMIC,
        )
    }

    /// RESET to RTS, of a UD pair: it receives datagrams with this key from now on.
    pub fn open(&self, port: u8, qkey: u32) -> Result<(), VerbsError> {
        let mut attr = ibv_qp_attr { qp_state: IBV_QPS_INIT, port_num: port, qkey, ..Default::default() };
        self.modify(&mut attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)?;
        let mut attr = ibv_qp_attr { qp_state: IBV_QPS_RTR, ..Default::default() };
        self.modify(&mut attr, IBV_QP_STATE)?;
        let mut attr = ibv_qp_attr { qp_state: IBV_QPS_RTS, ..Default::default() };
        self.modify(&mut attr, IBV_QP_STATE | IBV_QP_SQ_PSN)
    }

    /// Changes the peer's rights on a connected pair (RTS). According to Mu (OSDI 2020, section
    /// 5.2) this is the fast way to switch permissions, and fails now and then while operations are
    /// pending. An operation that the device has begun may be executed after this has returned: to
    /// revoke a right, see [`Self::destroy`].
    pub fn permit(&self, rights: Rights) -> Result<(), VerbsError> {
        let mut attr = ibv_qp_attr { qp_access_flags: rights.flags(), ..Default::default() };
        self.modify(&mut attr, IBV_QP_ACCESS_FLAGS)
    }

    /// Any state to RESET. All posts are dropped without a completion.
    pub fn reset(&self) -> Result<(), VerbsError> {
        self.modify(&mut ibv_qp_attr { qp_state: IBV_QPS_RESET, ..Default::default() }, IBV_QP_STATE)
    }

    /// Any state to ERR: all posts complete as flushed.
    pub fn stop(&self) -> Result<(), VerbsError> {
        self.modify(&mut ibv_qp_attr { qp_state: IBV_QPS_ERR, ..Default::default() }, IBV_QP_STATE)
    }

    /// Attaches a UD pair to a multicast group. The port must also have joined it: see
    /// [`super::cm::Id::join`].
    pub fn attach(&self, group: Gid, lid: u16) -> Result<(), VerbsError> {
        let context = self.domain.context();
        // SAFETY: the pair lives; the GID is only read.
        match unsafe { (context.verbs().attach_mcast)(self.raw.as_ptr(), &group.raw(), lid) } {
            0 => {
                self.groups.lock().unwrap_or_else(PoisonError::into_inner).push((group, lid));
                Ok(())
            }
            errno => Err(VerbsError::failed("ibv_attach_mcast", group.to_string(), errno)),
        }
    }

    pub(super) const fn raw(&self) -> NonNull<ibv_qp> {
        self.raw
    }

    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) const fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }
}

impl QueuePair {
    /// Destroys it. When this has succeeded, the device executes no operation of the peer any more,
    /// nor the rest of one that it had begun.
    pub fn destroy(mut self) -> Result<(), VerbsError> {
        match self.end() {
            0 => Ok(()),
            errno => Err(VerbsError::failed("ibv_destroy_qp", self.domain.context().device(), errno)),
        }
    }

    fn end(&mut self) -> c_int {
        let verbs = self.domain.context().verbs();
        // A pair that is attached to a group is not destroyed (EBUSY), and goes on receiving.
        for (group, lid) in self.groups.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // SAFETY: the pair lives; the GID is only read.
            unsafe { (verbs.detach_mcast)(self.raw.as_ptr(), &group.raw(), lid) };
        }
        // SAFETY: the pair is destroyed once, also if this fails and is repeated; the device has let go
        // of all it was given when the call succeeds.
        let errno = unsafe { (verbs.destroy_qp)(self.raw.as_ptr()) };
        self.is_destroyed = errno == 0;
        errno
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if !self.is_destroyed {
            self.end();
        }
    }
}

/// `min_rnr_timer`: 0.01 ms. No post here needs a receive at the peer of an RC pair.
const RNR_TIMER: u8 = 1;

/// An address handle to a peer, for datagrams.
#[derive(Debug)]
pub struct AddressHandle {
    raw: NonNull<ibv_ah>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: as for `Context`.
unsafe impl Send for AddressHandle {}
// SAFETY: as above.
unsafe impl Sync for AddressHandle {}

impl AddressHandle {
    pub fn new(domain: &Arc<ProtectionDomain>, path: &Path) -> Result<Self, VerbsError> {
        Self::from_raw_path(domain, path.raw())
    }

    pub(crate) fn from_raw_path(
        domain: &Arc<ProtectionDomain>,
        mut attr: ibv_ah_attr,
    ) -> Result<Self, VerbsError> {
        let context = domain.context();
        // SAFETY: the domain lives, and `attr` is valid for reads.
        let raw = unsafe { (context.verbs().create_ah)(domain.raw().as_ptr(), &raw mut attr) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| VerbsError::last("ibv_create_ah", Gid(attr.grh.dgid.raw).to_string()))?;
        Ok(Self { raw, domain: Arc::clone(domain) })
    }

    pub(super) const fn raw(&self) -> NonNull<ibv_ah> {
        self.raw
    }

    pub(super) const fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once. A datagram under way that names it is at worst lost.
        unsafe { (self.domain.context().verbs().destroy_ah)(self.raw.as_ptr()) };
    }
}
