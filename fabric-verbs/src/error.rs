//! The errors of RDMA devices: what, where, and a remedy.

use core::ffi::CStr;
use derive_more::Display;
use std::io;

/// A library loaded at run time.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, Hash)]
#[display("{}", self.file().to_string_lossy())]
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

/// Why an RDMA device, or a resource on it, is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerbsError {
    /// A library cannot be loaded.
    #[error("{library} cannot be loaded ({reason}); {}", .library.how_to_get())]
    NoLibrary {
        library: Library,
        /// The loader's error.
        reason: String,
    },
    /// No library can be loaded by a static program.
    #[error(
        "{library} cannot be loaded by this program, which is linked statically; use the program of the \
         deb or rpm package"
    )]
    Static { library: Library },
    /// A library is too old.
    #[error(
        "{library} has no {}@{}; install rdma-core 23 or later",
        .symbol.to_string_lossy(), .version.to_string_lossy()
    )]
    NoSymbol {
        library: Library,
        /// The missing function.
        symbol: &'static CStr,
        version: &'static CStr,
    },
    /// The kernel has no RDMA, or no RDMA device.
    #[error("{}", no_device(.undriven))]
    NoDevice {
        /// Kernel devices without a provider in user space.
        undriven: Vec<String>,
    },
    /// There is no device of the requested name.
    #[error("no RDMA device {wanted}; {}", listed(.existing))]
    NoSuchDevice { wanted: String, existing: Vec<String> },
    /// The device has no port of this number.
    #[error("{device} has no port {wanted}; choose one of 1..={ports}")]
    NoSuchPort {
        device: String,
        wanted: u8,
        /// The number of its ports, which are numbered from 1.
        ports: u8,
    },
    /// No port is usable: each with the reason.
    #[error("no RDMA port can be used{}", each(.refused))]
    NoUsablePort {
        /// Device and port, with the reason.
        refused: Vec<(String, String)>,
    },
    /// Registering memory exceeds this process's locking limit.
    #[error(
        "{bytes} bytes cannot be registered: this process may lock {limit} (RLIMIT_MEMLOCK); raise it with \
         `ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit, or /etc/security/limits.conf"
    )]
    LockedMemory {
        /// The bytes to register.
        bytes: usize,
        /// The value of RLIMIT_MEMLOCK.
        limit: u64,
    },
    /// An argument exceeds a limit of the region, the device or the call.
    #[error("{what} is {value}, but at most {max} works")]
    OutOfBounds {
        /// The argument, as in "the length of private data".
        what: &'static str,
        value: u64,
        /// The maximum.
        max: u64,
    },
    /// A call failed.
    #[error("{call} on {on}: {}{}", io::Error::from_raw_os_error(*.errno), Self::advice(.call, *.errno))]
    Failed {
        /// The C function.
        call: &'static str,
        /// Its object: a device, an address.
        on: String,
        /// Its error number.
        errno: i32,
    },
}

impl VerbsError {
    /// Whether this host, or this program, has no RDMA at all. Any other error is of what there is.
    pub const fn is_absence(&self) -> bool {
        match self {
            Self::NoLibrary { .. } | Self::Static { .. } => true,
            Self::NoDevice { undriven } => undriven.is_empty(),
            _ => false,
        }
    }

    pub(crate) fn failed(call: &'static str, on: impl Into<String>, errno: i32) -> Self {
        Self::Failed { call, on: on.into(), errno }
    }

    /// The error of a call that just failed and set `errno`.
    pub(crate) fn last(call: &'static str, on: impl Into<String>) -> Self {
        Self::failed(call, on, io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// A remedy for a failed call, if the error number suggests one.
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
            libc::EOPNOTSUPP => "the device cannot do this; choose another one with `obol fabric list`",
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
