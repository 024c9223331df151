//! An open device, its protection domain, and their attributes.
#![allow(unsafe_code)]

use super::error::VerbsError;
use super::sys::{
    IBV_ATOMIC_GLOB, IBV_ATOMIC_HCA, IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND, IBV_PORT_ACTIVE,
    Verbs, ibv_context, ibv_device, ibv_device_attr, ibv_gid, ibv_pd, ibv_port_attr,
};
use core::ffi::{CStr, c_int};
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// A global identifier of a port or of a multicast group. For a RoCE v2 port it contains the IP
/// address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// As an IP address: IPv4 for a mapped one (`::ffff:a.b.c.d`).
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }

    pub(crate) const fn raw(self) -> ibv_gid {
        ibv_gid { raw: self.0 }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

/// The link layer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE.
    Ethernet,
    /// Neither, or unknown.
    Unspecified,
}

/// The scope of a device's atomic CAS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Atomics {
    /// It has none.
    None,
    /// Among operations of this device.
    Device,
    /// Among all devices and CPUs of the host.
    Host,
}

/// A device's capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The number of ports, which are numbered from 1.
    pub ports: u8,
    /// The scope of its atomic CAS.
    pub atomics: Atomics,
    /// Concurrent READs and CASes of a queue pair, as requester and as responder.
    pub reads_under_way: (u8, u8),
    /// The maximum size of a completion queue.
    pub completions: u32,
    /// The maximum size of a queue.
    pub requests: u32,
    /// Multicast groups that it can receive; 0 if it does not support them.
    pub groups: u32,
}

/// A port's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// Whether it can carry traffic.
    pub active: bool,
    /// The kernel's number of its state (`enum ibv_port_state`).
    pub state: u32,
    pub link_layer: LinkLayer,
    /// The current maximum packet size on the wire.
    pub mtu: u32,
    /// The size of its GID table.
    pub gids: u32,
    /// Its local identifier, on InfiniBand.
    pub lid: u16,
}

impl PortFacts {
    /// The state by its name.
    pub const fn state_name(&self) -> &'static str {
        match self.state {
            1 => "down",
            2 => "init",
            3 => "armed",
            4 => "active",
            5 => "active-defer",
            _ => "unknown",
        }
    }
}

/// `enum ibv_mtu`: 1 is 256 bytes, 5 is 4096.
pub(crate) fn mtu_bytes(code: u32) -> u32 {
    if (1..=5).contains(&code) { 128 << code } else { 0 }
}

/// An open device.
pub struct Context {
    raw: NonNull<ibv_context>,
    verbs: &'static Verbs,
    device: String,
}

// SAFETY: libibverbs' calls on a context are safe from any thread (`ibv_open_device` and the
// rdma-core documentation).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.device).finish_non_exhaustive()
    }
}

/// The library's list of devices, freed on drop.
struct Listed {
    verbs: &'static Verbs,
    list: NonNull<*mut ibv_device>,
    len: usize,
}

impl Listed {
    /// `None` if the kernel has no RDMA.
    fn get() -> Result<Option<Self>, VerbsError> {
        let verbs = Verbs::get()?;
        let mut len: c_int = 0;
        // SAFETY: `len` is valid for a write.
        let list = unsafe { (verbs.get_device_list)(&raw mut len) };
        Ok(NonNull::new(list).map(|list| Self { verbs, list, len: usize::try_from(len).unwrap_or(0) }))
    }

    fn devices(&self) -> impl Iterator<Item = (*mut ibv_device, String)> {
        (0..self.len).map(|at| {
            // SAFETY: the list holds `len` devices until it is freed, and each has a name that ends
            // in a zero.
            unsafe {
                let device = *self.list.as_ptr().add(at);
                let name = CStr::from_ptr((self.verbs.get_device_name)(device));
                (device, name.to_string_lossy().into_owned())
            }
        })
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // SAFETY: the list is the library's and is freed once.
        unsafe { (self.verbs.free_device_list)(self.list.as_ptr()) };
    }
}

/// The names of this host's RDMA devices, in the kernel's order.
pub fn device_names() -> Result<Vec<String>, VerbsError> {
    Ok(Listed::get()?.map_or_else(Vec::new, |listed| listed.devices().map(|(_, name)| name).collect()))
}

impl Context {
    /// Opens a device by its name.
    pub fn open(name: &str) -> Result<Arc<Self>, VerbsError> {
        let no_device = |existing| VerbsError::NoSuchDevice { wanted: name.to_owned(), existing };
        let Some(listed) = Listed::get()? else { return Err(no_device(Vec::new())) };
        let Some((device, _)) = listed.devices().find(|(_, n)| n == name) else {
            return Err(no_device(listed.devices().map(|(_, n)| n).collect()));
        };
        // SAFETY: the device is in the list, which is freed only after this.
        let raw = unsafe { (listed.verbs.open_device)(device) };
        let raw = NonNull::new(raw).ok_or_else(|| VerbsError::last("ibv_open_device", name))?;
        Ok(Arc::new(Self { raw, verbs: listed.verbs, device: name.to_owned() }))
    }

    pub fn device(&self) -> &str {
        &self.device
    }

    pub(crate) const fn raw(&self) -> NonNull<ibv_context> {
        self.raw
    }

    pub(crate) const fn verbs(&self) -> &'static Verbs {
        self.verbs
    }

    /// The device's capabilities.
    pub fn facts(&self) -> Result<DeviceFacts, VerbsError> {
        let mut attr = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context is open, and `attr` is valid for a write.
        let errno = unsafe { (self.verbs.query_device)(self.raw.as_ptr(), attr.as_mut_ptr()) };
        if errno != 0 {
            return Err(VerbsError::failed("ibv_query_device", &self.device, errno));
        }
        // SAFETY: any bytes make a valid one, and the call has filled it.
        let attr = unsafe { attr.assume_init() };
        let count = |n: c_int| u32::try_from(n).unwrap_or(0);
        let few = |n: c_int| u8::try_from(n.clamp(0, 255)).unwrap_or(0);
        Ok(DeviceFacts {
            ports: attr.phys_port_cnt,
            atomics: match attr.atomic_cap {
                IBV_ATOMIC_HCA => Atomics::Device,
                IBV_ATOMIC_GLOB => Atomics::Host,
                _ => Atomics::None,
            },
            reads_under_way: (few(attr.max_qp_init_rd_atom), few(attr.max_qp_rd_atom)),
            completions: count(attr.max_cqe),
            requests: count(attr.max_qp_wr),
            groups: count(attr.max_mcast_grp),
        })
    }

    /// The attributes of a port, counted from 1.
    pub fn port(&self, port: u8) -> Result<PortFacts, VerbsError> {
        // The call fills a prefix; the rest stays zero.
        let mut attr = ibv_port_attr::default();
        // SAFETY: the context is open, and `attr` is valid for a write.
        let errno = unsafe { (self.verbs.query_port)(self.raw.as_ptr(), port, &raw mut attr) };
        if errno != 0 {
            return Err(VerbsError::failed("ibv_query_port", format!("{}/{port}", self.device), errno));
        }
        Ok(PortFacts {
            active: attr.state == IBV_PORT_ACTIVE,
            state: attr.state,
            link_layer: match attr.link_layer {
                IBV_LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
                IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
                _ => LinkLayer::Unspecified,
            },
            mtu: mtu_bytes(attr.active_mtu),
            gids: u32::try_from(attr.gid_tbl_len).unwrap_or(0),
            lid: attr.lid,
        })
    }

    /// An entry of a port's GID table; `None` if it is empty.
    pub fn gid(&self, port: u8, index: u8) -> Result<Option<Gid>, VerbsError> {
        let mut gid = ibv_gid::default();
        // SAFETY: the context is open, and `gid` is valid for a write.
        let failed =
            unsafe { (self.verbs.query_gid)(self.raw.as_ptr(), port, c_int::from(index), &raw mut gid) };
        if failed == 0 {
            return Ok((gid.raw != [0; 16]).then_some(Gid(gid.raw)));
        }
        match std::io::Error::last_os_error().raw_os_error() {
            // RoCE: the kernel has no entry there.
            Some(libc::ENODATA | libc::EINVAL | libc::ENOENT | libc::EAGAIN) | None => Ok(None),
            Some(errno) => Err(VerbsError::failed("ibv_query_gid", format!("{}/{port}", self.device), errno)),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: all objects on the context hold it, so none is left; it is closed once.
        unsafe { (self.verbs.close_device)(self.raw.as_ptr()) };
    }
}

/// A protection domain: queue pairs reach only registrations of the same one.
#[derive(Debug)]
pub struct ProtectionDomain {
    raw: NonNull<ibv_pd>,
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// Creates one on a device.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.verbs.alloc_pd)(context.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| VerbsError::last("ibv_alloc_pd", context.device()))?;
        Ok(Arc::new(Self { raw, context: Arc::clone(context) }))
    }

    /// Its device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) const fn raw(&self) -> NonNull<ibv_pd> {
        self.raw
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: all objects in the domain hold it, so none is left; it is freed once.
        unsafe { (self.context.verbs.dealloc_pd)(self.raw.as_ptr()) };
    }
}
