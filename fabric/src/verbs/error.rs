//! What can go wrong between this program and an RDMA device: what, where, and what to do next.

use core::ffi::CStr;
use core::fmt;
use std::io;

/// A library that is loaded at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    /// libibverbs: devices, queues, memory.
    Ibverbs,
    /// librdmacm: connections and groups by IP address.
    Rdmacm,
}

impl Library {
    pub(crate) const fn file(self) -> &'static CStr {
        match self {
            Self::Ibverbs => c"libibverbs.so.1",
            Self::Rdmacm => c"librdmacm.so.1",
        }
    }

    const fn how_to_get(self) -> &'static str {
        match self {
            Self::Ibverbs => {
                "install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL, SUSE)"
            }
            Self::Rdmacm => "install librdmacm1 (Debian, Ubuntu, SUSE) or librdmacm (Fedora, RHEL)",
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file().to_string_lossy())
    }
}

/// Why an RDMA device, or something on it, can not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerbsError {
    /// A library can not be loaded.
    #[error("{library} can not be loaded ({reason}); {}", .library.how_to_get())]
    NoLibrary {
        /// Which.
        library: Library,
        /// What the loader says.
        reason: String,
    },
    /// A library is too old.
    #[error(
        "{library} has no {}@{}; install rdma-core 23 or later",
        .symbol.to_string_lossy(), .version.to_string_lossy()
    )]
    NoSymbol {
        /// Which.
        library: Library,
        /// The function that it lacks.
        symbol: &'static CStr,
        /// In which version.
        version: &'static CStr,
    },
    /// The kernel has no RDMA, or no device of it.
    #[error("{}", no_device(.undriven))]
    NoDevice {
        /// Devices of the kernel that no provider in user space drives.
        undriven: Vec<String>,
    },
    /// There is no device of the name that was asked for.
    #[error("no RDMA device {wanted}; {}", listed(.existing))]
    NoSuchDevice {
        /// The name.
        wanted: String,
        /// The devices that are there.
        existing: Vec<String>,
    },
    /// The device has no port of this number.
    #[error("{device} has no port {wanted}; choose one of 1..={ports}")]
    NoSuchPort {
        /// The device.
        device: String,
        /// The number that was asked for.
        wanted: u8,
        /// How many ports it has; they count from 1.
        ports: u8,
    },
    /// No port fits: each with the reason.
    #[error("no RDMA port can be used{}", each(.refused))]
    NoUsablePort {
        /// Device and port, and why not.
        refused: Vec<(String, String)>,
    },
    /// Registering memory exceeds what this process may lock.
    #[error(
        "{bytes} bytes can not be registered: this process may lock {limit} (RLIMIT_MEMLOCK); raise it with \
         `ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit, or /etc/security/limits.conf"
    )]
    LockedMemory {
        /// Bytes to be registered.
        bytes: usize,
        /// What RLIMIT_MEMLOCK allows.
        limit: u64,
    },
    /// An argument lies outside what the region, the device or the call can take.
    #[error("{what} is {value}, but at most {max} works")]
    OutOfBounds {
        /// What, as in "the length of private data".
        what: &'static str,
        /// The value.
        value: u64,
        /// The largest that works.
        max: u64,
    },
    /// A call failed.
    #[error("{call} on {on}: {}{}", io::Error::from_raw_os_error(*.errno), Self::advice(.call, *.errno))]
    Failed {
        /// The C function.
        call: &'static str,
        /// On what: a device, an address.
        on: String,
        /// Its error number.
        errno: i32,
    },
}

impl VerbsError {
    pub(crate) fn failed(call: &'static str, on: impl Into<String>, errno: i32) -> Self {
        Self::Failed { call, on: on.into(), errno }
    }

    /// The error of a call that just failed and left its reason in `errno`.
    pub(crate) fn last(call: &'static str, on: impl Into<String>) -> Self {
        Self::failed(call, on, io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// What can be done about a failed call, if its number tells.
    fn advice(call: &str, errno: i32) -> String {
        let advice = match errno {
            libc::ENODEV | libc::ENOENT if call == "rdma_create_event_channel" => {
                "load the kernel's module: modprobe rdma_ucm"
            }
            libc::EACCES | libc::EPERM => {
                "run as a user who may open /dev/infiniband/* (root, or the group that your udev rules name)"
            }
            libc::ENODEV | libc::ENXIO => {
                "the device is gone, or the address belongs to none; see `obol fabric list`"
            }
            libc::EADDRNOTAVAIL => "no RDMA device has this address; see `obol fabric list`",
            libc::EADDRINUSE => "another process listens there; choose another port",
            libc::ENOMEM => {
                "the device or the kernel has no room; close other users of it or lower the limits"
            }
            libc::ENOENT | libc::ENOSYS => "load the kernel's modules: modprobe -a ib_uverbs rdma_ucm",
            libc::EOPNOTSUPP => "the device can not do this; choose another one with `obol fabric list`",
            _ => return String::new(),
        };
        format!("; {advice}")
    }
}

fn no_device(undriven: &[String]) -> String {
    if undriven.is_empty() {
        return "this host has no RDMA device; load its driver, or make one in software on an Ethernet interface: \
                modprobe rdma_rxe && rdma link add rxe0 type rxe netdev INTERFACE"
            .to_owned();
    }
    format!(
        "no provider drives {}; install ibverbs-providers (Debian, Ubuntu) or rdma-core (Fedora, RHEL, SUSE), \
         and load ib_uverbs",
        undriven.join(", ")
    )
}

fn each(refused: &[(String, String)]) -> String {
    refused.iter().map(|(port, reason)| format!("; {port}: {reason}")).collect()
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "there are none".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    }
}
