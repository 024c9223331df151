//! Connections and multicast groups by IP address: librdmacm.
//!
//! The queue pairs belong to the caller, not to the library: an [`Id`] resolves the route,
//! transports the handshake, and changes a pair's state ([`Id::init`], [`Id::ready`]). So the
//! caller sets a peer's rights before the peer can use them. Nothing here belongs on a post path:
//! it makes system calls, allocates and blocks.
#![allow(unsafe_code)]

use super::context::Gid;
use super::error::VerbsError;
use super::pair::{QueuePair, Retry};
use super::queue::no_block;
use super::registration::Rights;
use super::sys::{
    Cm, IBV_QP_ACCESS_FLAGS, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_RETRY_CNT,
    IBV_QP_RNR_RETRY, IBV_QP_TIMEOUT, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, RDMA_CM_EVENT_ADDR_ERROR,
    RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST,
    RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_MULTICAST_JOIN,
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED,
    RDMA_CM_EVENT_UNREACHABLE, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS, RDMA_PS_TCP,
    RDMA_PS_UDP, ibv_ah_attr, ibv_qp_attr, rdma_cm_id, rdma_conn_param, rdma_event_channel,
};
use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null_mut};
use nix::sys::socket::{SockaddrLike, SockaddrStorage};
use obol_deaths::deadbeat::VerbsGroup;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// The private data of a connection request: 56 bytes remain for the caller behind the library's
/// header; 196 in an answer.
pub const REQUEST_BYTES_MAX: usize = 56;
/// As [`REQUEST_BYTES_MAX`], for an accepting answer.
pub const ACCEPT_BYTES_MAX: usize = 196;
/// As [`REQUEST_BYTES_MAX`], for a rejecting answer.
pub const REJECT_BYTES_MAX: usize = 148;

/// The use of an [`Id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Reliable connections.
    Connections,
    /// Datagrams and groups.
    Datagrams,
}

/// The source of events of its ids.
#[derive(Debug)]
pub struct EventChannel {
    raw: NonNull<rdma_event_channel>,
    cm: &'static Cm,
}

// SAFETY: librdmacm's calls are safe from any thread (rdma_cm(7)).
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    /// Creates a non-blocking channel.
    pub fn new() -> Result<Arc<Self>, VerbsError> {
        let cm = Cm::get()?;
        // SAFETY: takes nothing.
        let raw = unsafe { (cm.create_event_channel)() };
        let raw = NonNull::new(raw)
            .ok_or_else(|| VerbsError::last("rdma_create_event_channel", "/dev/infiniband/rdma_cm"))?;
        let channel = Arc::new(Self { raw, cm });
        no_block(channel.as_fd()).map_err(|errno| VerbsError::failed("fcntl", "the event channel", errno))?;
        Ok(channel)
    }

    /// Takes the next event, if there is one. It is acknowledged at once, so an id can be dropped
    /// at any time.
    pub fn next(self: &Arc<Self>) -> Result<Option<Event>, VerbsError> {
        let mut raw = null_mut();
        // SAFETY: the channel lives, and `raw` is valid for a write.
        if unsafe { (self.cm.get_cm_event)(self.raw.as_ptr(), &raw mut raw) } != 0 {
            return match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                errno => Err(VerbsError::failed(
                    "rdma_get_cm_event",
                    "the event channel",
                    errno.unwrap_or(libc::EIO),
                )),
            };
        }
        // SAFETY: the library's event lives until it is acknowledged; which parameters it has
        // follows from its kind.
        let event = unsafe { Event::read(self, &*raw) };
        // SAFETY: it is acknowledged once.
        unsafe { (self.cm.ack_cm_event)(raw) };
        Ok(Some(event))
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel lives.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: all ids on the channel hold it, so none is left; it is destroyed once.
        unsafe { (self.cm.destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// Identifies an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(usize);

/// An event of an id.
#[derive(Debug)]
pub struct Event {
    /// The id; for a request, the listening one.
    pub key: Key,
    /// The event.
    pub what: What,
}

/// The kind of an event, with its data.
#[derive(Debug)]
pub enum What {
    /// The peer's address is resolved to a device; resolve the route next.
    AddressResolved,
    /// The route is resolved; connect next.
    RouteResolved,
    /// A peer's connection request: accept it, reject it, or drop the id.
    Request {
        /// The new connection.
        id: Id,
        /// The peer's queue pair, and its private data.
        peer: Peer,
    },
    /// The peer has accepted: move the queue pair to RTS, then [`Id::establish`].
    Response(Peer),
    /// Both sides are connected.
    Established,
    /// The peer has rejected, with this private data. Empty if no process listens there.
    Rejected(Vec<u8>),
    /// The connection has ended.
    Disconnected,
    /// The port has joined a group.
    Joined(Joined),
    /// Joining failed, or the membership has ended.
    JoinFailed(i32),
    /// Address, route or connection failed, with this error number.
    Failed(i32),
    /// The device is being removed: drop everything on it.
    DeviceRemoved,
    /// An event that requires no action.
    Other(u32),
}

/// The peer's end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    pub queue_pair: u32,
    /// Concurrent READs and CASes that it can serve, and can request.
    pub reads: (u8, u8),
    /// Its private data; padded with zeros by the library.
    pub data: Vec<u8>,
}

/// A group, for sending and receiving.
#[derive(Clone, Copy, Debug)]
pub struct Joined {
    pub group: Gid,
    /// Its local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The key of its datagrams.
    pub qkey: u32,
    /// The queue pair number of its datagrams.
    pub number: u32,
    pub(crate) path: ibv_ah_attr,
}

impl Joined {
    /// A handle for sending to the group.
    pub fn handle(
        &self,
        domain: &Arc<super::context::ProtectionDomain>,
    ) -> Result<super::pair::AddressHandle, VerbsError> {
        super::pair::AddressHandle::from_raw_path(domain, self.path)
    }

    /// The group in the form of the kernel module deadbeat, on the port that has joined it.
    pub fn destination(&self, device: &str, port: u8) -> VerbsGroup {
        let path = &self.path;
        VerbsGroup {
            device: device.to_owned(),
            port: port.into(),
            gid_index: path.grh.sgid_index.into(),
            group: self.group.0.into(),
            qkey: self.qkey,
            lid: self.lid,
            pkey_index: 0,
            flow_label: path.grh.flow_label,
            service_level: path.sl,
            static_rate: path.static_rate,
            traffic_class: path.grh.traffic_class,
            hop_limit: path.grh.hop_limit,
        }
    }
}

impl Event {
    /// # Safety
    ///
    /// The event is librdmacm's, not acknowledged yet, and came out of this channel.
    unsafe fn read(channel: &Arc<EventChannel>, raw: &super::sys::rdma_cm_event) -> Self {
        // SAFETY: these kinds have these parameters, and the data is as long as it says.
        let conn = || unsafe {
            let conn = raw.param.conn;
            Peer {
                queue_pair: conn.qp_num,
                reads: (conn.responder_resources, conn.initiator_depth),
                data: copied(conn.private_data, conn.private_data_len),
            }
        };
        let errno = if raw.status < 0 { -raw.status } else { libc::EHOSTUNREACH };
        let what = match raw.event {
            RDMA_CM_EVENT_ADDR_RESOLVED => What::AddressResolved,
            RDMA_CM_EVENT_ROUTE_RESOLVED => What::RouteResolved,
            RDMA_CM_EVENT_CONNECT_REQUEST => match NonNull::new(raw.id) {
                Some(id) => What::Request { id: Id { raw: id, channel: Arc::clone(channel) }, peer: conn() },
                None => What::Other(raw.event),
            },
            RDMA_CM_EVENT_CONNECT_RESPONSE => What::Response(conn()),
            RDMA_CM_EVENT_ESTABLISHED => What::Established,
            RDMA_CM_EVENT_REJECTED => What::Rejected(conn().data),
            RDMA_CM_EVENT_DISCONNECTED => What::Disconnected,
            RDMA_CM_EVENT_MULTICAST_JOIN => {
                // SAFETY: this kind has these parameters.
                let ud = unsafe { raw.param.ud };
                What::Joined(Joined {
                    group: Gid(ud.ah_attr.grh.dgid.raw),
                    lid: ud.ah_attr.dlid,
                    qkey: ud.qkey,
                    number: ud.qp_num,
                    path: ud.ah_attr,
                })
            }
            RDMA_CM_EVENT_MULTICAST_ERROR => What::JoinFailed(errno),
            RDMA_CM_EVENT_ADDR_ERROR
            | RDMA_CM_EVENT_ROUTE_ERROR
            | RDMA_CM_EVENT_CONNECT_ERROR
            | RDMA_CM_EVENT_UNREACHABLE => What::Failed(errno),
            RDMA_CM_EVENT_DEVICE_REMOVAL => What::DeviceRemoved,
            other => What::Other(other),
        };
        let of = if raw.event == RDMA_CM_EVENT_CONNECT_REQUEST { raw.listen_id } else { raw.id };
        Self { key: Key(of.addr()), what }
    }
}

/// # Safety
///
/// `at` is null or valid for reads of `len` bytes.
unsafe fn copied(at: *const c_void, len: u8) -> Vec<u8> {
    if at.is_null() {
        return Vec::new();
    }
    // SAFETY: as the caller promises.
    unsafe { core::slice::from_raw_parts(at.cast::<u8>(), usize::from(len)) }.to_vec()
}

/// One end of a connection, a listener, or a member of groups.
#[derive(Debug)]
pub struct Id {
    raw: NonNull<rdma_cm_id>,
    channel: Arc<EventChannel>,
}

// SAFETY: as for `EventChannel`.
unsafe impl Send for Id {}

impl Id {
    /// Creates an id on a channel.
    pub fn new(channel: &Arc<EventChannel>, space: Space) -> Result<Self, VerbsError> {
        let space = match space {
            Space::Connections => RDMA_PS_TCP,
            Space::Datagrams => RDMA_PS_UDP,
        };
        let mut raw = null_mut();
        // SAFETY: the channel lives and is held by the id, and `raw` is valid for a write.
        let done = unsafe { (channel.cm.create_id)(channel.raw.as_ptr(), &raw mut raw, null_mut(), space) };
        match NonNull::new(raw) {
            Some(raw) if done == 0 => Ok(Self { raw, channel: Arc::clone(channel) }),
            _ => Err(VerbsError::last("rdma_create_id", "the event channel")),
        }
    }

    /// Its identifier in events.
    pub fn key(&self) -> Key {
        Key(self.raw.as_ptr().addr())
    }

    fn check(&self, call: &'static str, on: impl FnOnce() -> String, done: c_int) -> Result<(), VerbsError> {
        if done == 0 { Ok(()) } else { Err(VerbsError::last(call, on())) }
    }

    fn set<T>(&self, option: c_int, mut value: T) -> Result<(), VerbsError> {
        // SAFETY: the id lives, and `value` is valid for reads of its size.
        let done = unsafe {
            let at = (&raw mut value).cast();
            (self.channel.cm.set_option)(self.raw.as_ptr(), RDMA_OPTION_ID, option, at, size_of::<T>())
        };
        self.check("rdma_set_option", || format!("option {option}"), done)
    }

    /// The byte by which routers and switches prioritise. Set it before the route is resolved.
    pub fn set_traffic_class(&self, class: u8) -> Result<(), VerbsError> {
        self.set(RDMA_OPTION_ID_TOS, class)
    }

    /// Allows a port to be bound although an earlier connection lingers. Set it before binding.
    pub fn set_reuse_address(&self) -> Result<(), VerbsError> {
        self.set::<c_int>(RDMA_OPTION_ID_REUSEADDR, 1)
    }

    /// Binds to a local address, which selects its device.
    pub fn bind(&self, own: SocketAddr) -> Result<(), VerbsError> {
        let raw = SockaddrStorage::from(own);
        // SAFETY: the id lives, and the address is valid for reads.
        let done = unsafe { (self.channel.cm.bind_addr)(self.raw.as_ptr(), raw.as_ptr().cast_mut()) };
        self.check("rdma_bind_addr", || own.to_string(), done)
    }

    /// Starts to receive peers' requests as events.
    pub fn listen(&self, backlog: u16) -> Result<(), VerbsError> {
        // SAFETY: the id lives.
        let done = unsafe { (self.channel.cm.listen)(self.raw.as_ptr(), c_int::from(backlog)) };
        self.check("rdma_listen", || format!("port {}", self.port()), done)
    }

    /// The local port number; 0 before the id is bound.
    pub fn port(&self) -> u16 {
        // SAFETY: the id lives.
        u16::from_be(unsafe { (self.channel.cm.get_src_port)(self.raw.as_ptr()) })
    }

    /// Resolves a peer's address to a device; answered by an event.
    pub fn resolve_address(
        &self,
        own: Option<IpAddr>,
        peer: SocketAddr,
        timeout: Duration,
    ) -> Result<(), VerbsError> {
        let own = own.map(|ip| SockaddrStorage::from(SocketAddr::new(ip, 0)));
        let raw = SockaddrStorage::from(peer);
        // SAFETY: the id lives, and the addresses are valid for reads.
        let done = unsafe {
            let own = own.as_ref().map_or(null_mut(), |own| own.as_ptr().cast_mut());
            (self.channel.cm.resolve_addr)(
                self.raw.as_ptr(),
                own,
                raw.as_ptr().cast_mut(),
                milliseconds(timeout),
            )
        };
        self.check("rdma_resolve_addr", || peer.to_string(), done)
    }

    /// Resolves the route to the peer; answered by an event.
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), VerbsError> {
        // SAFETY: the id lives.
        let done = unsafe { (self.channel.cm.resolve_route)(self.raw.as_ptr(), milliseconds(timeout)) };
        self.check("rdma_resolve_route", || "the peer".to_owned(), done)
    }

    /// Requests a connection for a queue pair in INIT; answered by an event.
    pub fn connect(&self, pair: &QueuePair, offer: &Offer<'_>) -> Result<(), VerbsError> {
        let mut param = offer.raw(pair, REQUEST_BYTES_MAX)?;
        // SAFETY: the id lives, and the parameters and their data are valid for reads.
        let done = unsafe { (self.channel.cm.connect)(self.raw.as_ptr(), &raw mut param) };
        self.check("rdma_connect", || "the peer".to_owned(), done)
    }

    /// Accepts a request for a queue pair in RTS.
    pub fn accept(&self, pair: &QueuePair, offer: &Offer<'_>) -> Result<(), VerbsError> {
        let mut param = offer.raw(pair, ACCEPT_BYTES_MAX)?;
        // SAFETY: as above.
        let done = unsafe { (self.channel.cm.accept)(self.raw.as_ptr(), &raw mut param) };
        self.check("rdma_accept", || "a request".to_owned(), done)
    }

    /// Rejects a request with private data.
    pub fn reject(&self, reason: &[u8]) -> Result<(), VerbsError> {
        let len = length(reason, REJECT_BYTES_MAX)?;
        // SAFETY: the id lives, and the data is valid for reads.
        let done = unsafe { (self.channel.cm.reject)(self.raw.as_ptr(), reason.as_ptr().cast(), len) };
        self.check("rdma_reject", || "a request".to_owned(), done)
    }

    /// Confirms to the peer that the answer arrived and the queue pair is in RTS.
    pub fn establish(&self) -> Result<(), VerbsError> {
        // SAFETY: the id lives.
        let done = unsafe { (self.channel.cm.establish)(self.raw.as_ptr()) };
        self.check("rdma_establish", || "the peer".to_owned(), done)
    }

    /// Ends the connection. The caller has to stop the queue pair.
    pub fn disconnect(&self) -> Result<(), VerbsError> {
        // SAFETY: the id lives.
        let done = unsafe { (self.channel.cm.disconnect)(self.raw.as_ptr()) };
        self.check("rdma_disconnect", || "the peer".to_owned(), done)
    }

    /// Changes a queue pair from RESET to INIT for this connection; the address must be resolved,
    /// or be a request's. From now on the peer has these rights through it, and no others.
    pub fn init(&self, pair: &QueuePair, rights: Rights) -> Result<(), VerbsError> {
        let (mut attr, mask) = self.attributes(IBV_QPS_INIT)?;
        attr.qp_access_flags = rights.flags();
        pair.modify(&mut attr, mask | IBV_QP_ACCESS_FLAGS)
    }

    /// Changes a queue pair from INIT to RTS: before [`Id::accept`] on one side, before
    /// [`Id::establish`] on the other.
    pub fn ready(&self, pair: &QueuePair, reads: u8, retry: Retry) -> Result<(), VerbsError> {
        let (mut attr, mask) = self.attributes(IBV_QPS_RTR)?;
        attr.max_dest_rd_atomic = reads;
        pair.modify(&mut attr, mask | IBV_QP_MAX_DEST_RD_ATOMIC)?;
        let (mut attr, mask) = self.attributes(IBV_QPS_RTS)?;
        attr.max_rd_atomic = reads;
        attr.timeout = retry.timeout;
        attr.retry_cnt = retry.count;
        attr.rnr_retry = retry.count;
        pair.modify(
            &mut attr,
            mask | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
        )
    }

    /// The attributes and the mask for `ibv_modify_qp` to bring a queue pair of this connection
    /// into a state.
    pub(crate) fn attributes(&self, state: u32) -> Result<(ibv_qp_attr, c_int), VerbsError> {
        let mut attr = ibv_qp_attr { qp_state: state, ..Default::default() };
        let mut mask = 0;
        // SAFETY: the id lives, and both are valid for reads and writes.
        let done = unsafe { (self.channel.cm.init_qp_attr)(self.raw.as_ptr(), &raw mut attr, &raw mut mask) };
        self.check("rdma_init_qp_attr", || "the connection".to_owned(), done)?;
        Ok((attr, mask))
    }

    /// Joins a group with the port of the bound device; answered by an event. The membership ends
    /// with the id.
    pub fn join(&self, group: IpAddr) -> Result<(), VerbsError> {
        let raw = SockaddrStorage::from(SocketAddr::new(group, 0));
        // SAFETY: the id lives, and the address is valid for reads.
        let done = unsafe {
            (self.channel.cm.join_multicast)(self.raw.as_ptr(), raw.as_ptr().cast_mut(), null_mut())
        };
        self.check("rdma_join_multicast", || group.to_string(), done)
    }

    pub fn leave(&self, group: IpAddr) -> Result<(), VerbsError> {
        let raw = SockaddrStorage::from(SocketAddr::new(group, 0));
        // SAFETY: the id lives, and the address is valid for reads.
        let done = unsafe { (self.channel.cm.leave_multicast)(self.raw.as_ptr(), raw.as_ptr().cast_mut()) };
        self.check("rdma_leave_multicast", || group.to_string(), done)
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once. No event of it is unacknowledged, so this does not wait.
        unsafe { (self.channel.cm.destroy_id)(self.raw.as_ptr()) };
    }
}

/// The parameters of one side when it connects or accepts.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// Concurrent READs and CASes in each direction.
    pub reads: u8,
    /// [`super::pair::Retry::count`].
    pub retries: u8,
    /// Private data for the peer; see [`REQUEST_BYTES_MAX`] and [`ACCEPT_BYTES_MAX`].
    pub data: &'a [u8],
}

impl Offer<'_> {
    fn raw(&self, pair: &QueuePair, max: usize) -> Result<rdma_conn_param, VerbsError> {
        Ok(rdma_conn_param {
            private_data: self.data.as_ptr().cast(),
            private_data_len: length(self.data, max)?,
            responder_resources: self.reads,
            initiator_depth: self.reads,
            flow_control: 0,
            retry_count: self.retries,
            rnr_retry_count: self.retries,
            srq: 0,
            qp_num: pair.number(),
        })
    }
}

fn length(data: &[u8], max: usize) -> Result<u8, VerbsError> {
    u8::try_from(data.len()).ok().filter(|_| data.len() <= max).ok_or(VerbsError::OutOfBounds {
        what: "the length of private data",
        value: data.len() as u64,
        max: max as u64,
    })
}

/// Never 0, which would mean infinite or none.
fn milliseconds(timeout: Duration) -> c_int {
    c_int::try_from(timeout.as_millis().max(1)).unwrap_or(c_int::MAX)
}
