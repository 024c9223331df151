//! Death notices from the kernel: `/dev/deadbeat`, provided by the module in `kernel/`.
//!
//! A program registers, in advance, the notices for when a process starts to die and when it is
//! dead, and their destinations. The kernel sends them at that moment from within the dying
//! process, before its memory is torn down; no program needs to be scheduled. A *dead* notice is a
//! proof: no thread of the process runs user code any more. This module does not interpret the
//! notices.
//!
//! Layouts and calls follow `kernel/deadbeat.h`; a test compares them.

mod raw;

use crate::ebpf::EbpfError;
use crate::pidfd;
use crate::poll::poll;
pub use raw::NOTICE_BYTES_MAX;

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags};
use raw::{ABI, DEVICE_NAME_BYTES, RawConfiguration, RawRegistration, UDP, VERBS};
use std::fs::{File, OpenOptions};
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::FromZeros;

/// The path of the device.
pub const DEVICE: &str = "/dev/deadbeat";
/// The maximum length of an RDMA device's name.
pub const DEVICE_NAME_MAX: usize = DEVICE_NAME_BYTES - 1;

/// A UDP multicast group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpGroup {
    /// Its address, an IPv4 one mapped.
    pub group: Ipv6Addr,
    pub port: u16,
    /// The outgoing network interface; without one the host's routes decide.
    pub interface: Option<String>,
    /// The time to live: the maximum number of routers, plus one.
    pub hops: u8,
}

/// A multicast group of unreliable datagrams on an RDMA device. All parameters but the device
/// result from joining the group; on InfiniBand the program stays joined for as long as notices are
/// to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsGroup {
    /// The device, such as `mlx5_0`.
    pub device: String,
    /// Its port, from 1.
    pub port: u32,
    /// The port's GID to send from.
    pub gid_index: u32,
    /// The group's MGID; on RoCE a multicast address, an IPv4 one mapped.
    pub group: Ipv6Addr,
    /// The group's key; below 2^31.
    pub qkey: u32,
    /// The group's MLID; 0 on RoCE.
    pub lid: u16,
    /// The port's partition to send from.
    pub pkey_index: u16,
    /// As returned by the join.
    pub flow_label: u32,
    /// As returned by the join.
    pub service_level: u8,
    /// As returned by the join.
    pub static_rate: u8,
    /// As returned by the join.
    pub traffic_class: u8,
    /// As the join says.
    pub hop_limit: u8,
}

/// Destinations of notices: each of the given groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    /// By UDP.
    pub udp: Option<UdpGroup>,
    /// By RDMA.
    pub verbs: Option<VerbsGroup>,
}

/// Why the kernel does not announce a death.
#[derive(Debug, thiserror::Error)]
pub enum DeadbeatError {
    /// The module is not loaded.
    #[error("{path} is not there; load the kernel module deadbeat (docs/kernel.md)")]
    Absent {
        /// The path of the device.
        path: PathBuf,
    },
    /// This user has no permission.
    #[error("cannot open {path}: {error}; put this user into the device's group (docs/kernel.md)")]
    Denied {
        /// The device.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// The module is of another version than this program.
    #[error(
        "the kernel module deadbeat has interface {found}, this program has {wanted}; install both from one \
         release"
    )]
    Version {
        /// The module's interface; 0 if it is too old to report one.
        found: u32,
        /// This program's.
        wanted: u32,
    },
    /// The destinations are invalid.
    #[error("death notices cannot go to {what}: {fault}")]
    Destination {
        /// The destination.
        what: String,
        fault: &'static str,
    },
    /// The kernel has no such network interface or RDMA device, or no RDMA at all.
    #[error("death notices cannot leave by {what}: {error}; see `ip link` and `rdma link`")]
    NoDevice {
        /// The requested interface or device.
        what: String,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// A notice is empty or too long.
    #[error("a death notice has 1 to {NOTICE_BYTES_MAX} bytes, not {bytes}")]
    NoticeLength {
        /// Its length.
        bytes: usize,
    },
    /// The process is dead.
    #[error("the process is dead already")]
    Dead,
    /// The process belongs to another user.
    #[error("the process belongs to another user; run as that user or with CAP_KILL")]
    NotYours,
    /// The limit of registrations is reached, of the open device, the process, or the user who
    /// opened it.
    #[error(
        "the kernel takes no more registrations: 4096 of one open {DEVICE}, 64 of one process, 8192 of one user; \
         let go of some"
    )]
    Full,
    /// There is no module, and the eBPF programs are not available.
    #[error("{0}")]
    Ebpf(#[from] EbpfError),
    /// The kernel lacks or refuses something else.
    #[error("cannot {doing}: {error}")]
    Kernel {
        /// The operation, as in "cannot ...".
        doing: &'static str,
        #[source]
        error: io::Error,
    },
}

/// The open device. Its registrations last until this and all of them are dropped.
#[derive(Clone, Debug)]
pub struct Deadbeat(Arc<File>);

impl Deadbeat {
    /// Opens the device and checks the module's version.
    pub fn open() -> Result<Self, DeadbeatError> {
        Self::open_at(Path::new(DEVICE))
    }

    fn open_at(path: &Path) -> Result<Self, DeadbeatError> {
        // A child must not keep the registrations alive.
        let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path);
        let file = opened.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
                DeadbeatError::Absent { path: path.to_owned() }
            }
            Some(libc::EACCES | libc::EPERM) => DeadbeatError::Denied { path: path.to_owned(), error },
            _ => DeadbeatError::Kernel { doing: "open /dev/deadbeat", error },
        })?;
        match raw::get_abi(&file) {
            Ok(ABI) => Ok(Self(Arc::new(file))),
            Ok(found) => Err(DeadbeatError::Version { found, wanted: ABI }),
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => {
                Err(DeadbeatError::Version { found: 0, wanted: ABI })
            }
            Err(error) => {
                Err(DeadbeatError::Kernel { doing: "ask the module deadbeat for its version", error })
            }
        }
    }

    /// Whether the module is about to be unloaded and waits for this device and its registrations
    /// to be dropped.
    pub fn is_unloading(&self) -> bool {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::empty())];
        poll(&mut fds, Some(Duration::ZERO)).is_ok()
            && fds[0].revents().is_some_and(|ready| ready.contains(PollFlags::POLLHUP))
    }

    /// Sets the destinations of this open device's notices. Once; open it again for other
    /// destinations.
    pub fn configure(&self, destinations: &Destinations) -> Result<(), DeadbeatError> {
        let what = destinations.names();
        raw::configure(&self.0, &destinations.raw()?).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => {
                DeadbeatError::Destination { what, fault: "the kernel takes it for invalid" }
            }
            Some(libc::EISCONN) => {
                DeadbeatError::Destination { what, fault: "this open device has its destinations already" }
            }
            Some(libc::ENODEV | libc::EOPNOTSUPP | libc::EADDRNOTAVAIL) => {
                DeadbeatError::NoDevice { what, error }
            }
            _ => DeadbeatError::Kernel { doing: "set the destinations of death notices", error },
        })
    }

    /// From now on the kernel sends `dying` (nothing, if it is empty) and `dead` when the process
    /// of this pidfd dies, until the registration is dropped or this process ends. A process may
    /// register itself: its own death is announced before its files are closed.
    pub fn register(
        &self,
        pidfd: BorrowedFd<'_>,
        dying: &[u8],
        dead: &[u8],
    ) -> Result<Registration, DeadbeatError> {
        if let Some(wrong) = [dying, dead].iter().find(|n| n.len() > NOTICE_BYTES_MAX) {
            return Err(DeadbeatError::NoticeLength { bytes: wrong.len() });
        }
        if dead.is_empty() {
            return Err(DeadbeatError::NoticeLength { bytes: 0 });
        }
        let mut raw = RawRegistration::new_zeroed();
        raw.pid = pid_of(pidfd)?;
        raw.dying_bytes = dying.len() as u16;
        raw.dead_bytes = dead.len() as u16;
        raw.dying[..dying.len()].copy_from_slice(dying);
        raw.dead[..dead.len()].copy_from_slice(dead);
        let id = raw::register(&self.0, raw).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTCONN) => {
                DeadbeatError::Destination { what: "nowhere".to_owned(), fault: "configure the device first" }
            }
            Some(libc::ESRCH) => DeadbeatError::Dead,
            Some(libc::EPERM) => DeadbeatError::NotYours,
            Some(libc::ENOSPC | libc::EDQUOT) => DeadbeatError::Full,
            _ => DeadbeatError::Kernel { doing: "register a process with the module deadbeat", error },
        })?;
        let registration = Registration { deadbeat: self.clone(), id };
        // Modules cannot resolve a pidfd, so the kernel was given a pid. It was this process's pid
        // if the process has not ended yet. If it has ended, the pid may already have been reused;
        // a notice sent meanwhile was still correct.
        if pidfd::ended(&pidfd) { Err(DeadbeatError::Dead) } else { Ok(registration) }
    }
}

/// The registration of one process. Dropping it removes it.
#[derive(Debug)]
pub struct Registration {
    deadbeat: Deadbeat,
    id: u32,
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Fails only if there is no such registration.
        let gone = raw::unregister(&self.deadbeat.0, self.id);
        debug_assert!(gone.is_ok(), "registration {} was lost: {gone:?}", self.id);
    }
}

impl Destinations {
    fn names(&self) -> String {
        let udp = self.udp.as_ref().map(|u| match &u.interface {
            Some(interface) => format!("UDP group {} port {} on {interface}", u.group, u.port),
            None => format!("UDP group {} port {}", u.group, u.port),
        });
        let verbs = self.verbs.as_ref().map(|v| format!("{} port {} group {}", v.device, v.port, v.group));
        [udp, verbs].into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }

    fn raw(&self) -> Result<RawConfiguration, DeadbeatError> {
        let wrong = |fault| DeadbeatError::Destination { what: self.names(), fault };
        let mut raw = RawConfiguration::new_zeroed();
        if self.udp.is_none() && self.verbs.is_none() {
            return Err(DeadbeatError::Destination {
                what: "nowhere".to_owned(),
                fault: "give at least one",
            });
        }
        if let Some(udp) = &self.udp {
            if !udp.group.to_canonical().is_multicast() || udp.port == 0 {
                return Err(wrong("a UDP group has a multicast address and a port"));
            }
            raw.destinations |= UDP;
            raw.udp.group = udp.group.octets();
            raw.udp.port = udp.port;
            raw.udp.hops = udp.hops;
            raw.udp.interface = udp.interface.as_deref().map_or(Ok(0), interface_index)?;
        }
        if let Some(verbs) = &self.verbs {
            let multicast = verbs.group.to_canonical().is_multicast();
            let name = verbs.device.as_bytes();
            if !multicast || name.is_empty() || name.len() > DEVICE_NAME_MAX || name.contains(&0) {
                return Err(wrong("an RDMA group has a device and a multicast address"));
            }
            raw.destinations |= VERBS;
            raw.verbs.device[..name.len()].copy_from_slice(name);
            raw.verbs.group = verbs.group.octets();
            raw.verbs.port = verbs.port;
            raw.verbs.gid_index = verbs.gid_index;
            raw.verbs.qkey = verbs.qkey;
            raw.verbs.flow_label = verbs.flow_label;
            raw.verbs.lid = verbs.lid;
            raw.verbs.pkey_index = verbs.pkey_index;
            raw.verbs.service_level = verbs.service_level;
            raw.verbs.static_rate = verbs.static_rate;
            raw.verbs.traffic_class = verbs.traffic_class;
            raw.verbs.hop_limit = verbs.hop_limit;
        }
        Ok(raw)
    }
}

fn interface_index(name: &str) -> Result<u32, DeadbeatError> {
    let none = |error: Errno| DeadbeatError::NoDevice { what: name.to_owned(), error: error.into() };
    if name.contains('\0') {
        return Err(none(Errno::ENODEV));
    }
    if_nametoindex(name).map_err(none)
}

/// The process number that a pidfd names, in this process's pid namespace.
fn pid_of(pidfd: BorrowedFd<'_>) -> Result<u32, DeadbeatError> {
    let unknown = |error| DeadbeatError::Kernel { doing: "find the process of a pidfd in /proc", error };
    let info =
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).map_err(unknown)?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")).and_then(|pid| pid.trim().parse().ok());
    match pid {
        // The kernel's values for a process that was reaped, and for one of another namespace.
        Some(-1) => Err(DeadbeatError::Dead),
        Some(pid @ 1..=i32::MAX) => Ok(pid as u32),
        _ => {
            Err(unknown(io::Error::new(io::ErrorKind::InvalidInput, "it names no process that is seen here")))
        }
    }
}

#[cfg(test)]
mod tests;
