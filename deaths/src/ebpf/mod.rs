//! Death notices by eBPF programs, for hosts where the module of [`crate::deadbeat`] is not wanted.
//!
//! Root loads them once ([`load`]); members of the given group then register themselves. They
//! report the death of a process in its slot of an array, which every process maps read-only: first
//! a *dying* token, then a *dead* one. There is no datagram to be lost or forged. Each *dying* wakes
//! the threads that wait for [`Wakes`], and they look at the array; the wake-up itself says nothing.
//! The programs are in `kernel/bpf/deaths.bpf.c`.
#![allow(unsafe_code)]

mod btf;
mod elf;
mod load;
mod sys;

pub use load::{Loaded, load, unload};

use crate::Stage;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::mman::munmap;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};
use strum::{EnumString, IntoStaticStr, VariantArray};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The directory of the pinned programs.
pub const DIRECTORY: &str = "/run/obol-deaths";
/// The maximum number of registered processes of a host.
pub const SLOTS: u32 = 4096;
/// Slots tried before giving up: with half of them taken, each try succeeds with probability 1/2.
const TRIES: u32 = 64;

/// `struct process` of the programs: the input of a registration.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Process {
    slot: u32,
    reserved: u32,
    dying: u64,
    dead: u64,
}

const PROCESS_BYTES: u32 = size_of::<Process>() as u32;
/// `struct death`: two words.
const DEATH_WORDS: usize = 2;
const DEATH_BYTES: u32 = (DEATH_WORDS * size_of::<u64>()) as u32;

/// The names in [`DIRECTORY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case", const_into_str)]
enum Pin {
    /// The one that processes open first is removed first.
    Register,
    Deaths,
    /// Absent on a kernel before 6.1, and where an earlier release has loaded the programs.
    Wakes,
    SignalGenerate,
    SchedProcessExit,
    TaskstatsExit,
}

impl Pin {
    fn path(self) -> PathBuf {
        Path::new(DIRECTORY).join(self.into_str())
    }
}

/// Why eBPF programs do not announce a death.
#[derive(Debug, thiserror::Error)]
pub enum EbpfError {
    /// They are not loaded.
    #[error("{DIRECTORY} is not there; load the eBPF programs with `obol detector load` as root")]
    Absent,
    /// They are loaded already.
    #[error("the eBPF programs are loaded already; `obol detector unload` takes them out")]
    Loaded,
    /// This user may not do that.
    #[error(
        "cannot {}: {error}; run as root, or as a member of the group that was named to `obol detector load`", what.display()
    )]
    Denied {
        /// The operation, as in "cannot ...".
        what: OsString,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// The kernel does not describe its types.
    #[error(
        "cannot read the kernel's types from {path}: {error}; this needs a kernel with CONFIG_DEBUG_INFO_BTF"
    )]
    NoTypes {
        /// The path of the description.
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The kernel has no such member of a structure.
    #[error("this kernel has no {symbol}; use the module deadbeat (docs/kernel.md)")]
    NoField {
        /// `structure.member`.
        symbol: String,
    },
    /// The kernel refuses a program.
    #[error(
        "the kernel refuses the eBPF program {name}: {error}{}; use the module deadbeat (docs/kernel.md)",
        in_brackets(verifier)
    )]
    Program {
        /// The program.
        name: String,
        #[source]
        error: io::Error,
        /// The end of the verifier's log.
        verifier: String,
    },
    /// The object in this program is damaged, or has unknown symbols.
    #[error("the eBPF programs in this executable are damaged; reinstall it")]
    Object,
    /// All tried slots are taken.
    #[error("{SLOTS} processes of this host are registered, or nearly so")]
    Full,
    /// The kernel lacks or refuses something else.
    #[error("cannot {doing}: {error}")]
    Kernel {
        /// The operation, as in "cannot ...".
        doing: &'static str,
        #[source]
        error: io::Error,
    },
}

fn in_brackets(verifier: &str) -> String {
    if verifier.is_empty() { String::new() } else { format!(" ({verifier})") }
}

/// Opens a pinned object.
fn open(pin: Pin) -> Result<OwnedFd, EbpfError> {
    let path = pin.path();
    let flags = if pin == Pin::Deaths { sys::READ_WRITE } else { sys::READ_ONLY };
    sys::get(load::c_path(&path)?.as_c_str(), flags).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => EbpfError::Absent,
        Some(libc::EACCES | libc::EPERM) => {
            let mut what = OsString::from("open ");
            what.push(path);
            EbpfError::Denied { what, error }
        }
        _ => EbpfError::Kernel { doing: "open an eBPF object", error },
    })
}

/// Distinguishes one loading from the next.
fn identity() -> Option<(u64, u64)> {
    fs::metadata(Pin::Register.path()).ok().map(|file| (file.dev(), file.ino()))
}

/// The array that reports deaths.
#[derive(Debug)]
pub struct Deaths {
    words: NonNull<AtomicU64>,
}

// SAFETY: the mapping is read only, by atomic loads, and stays until this is dropped.
unsafe impl Send for Deaths {}
// SAFETY: as above.
unsafe impl Sync for Deaths {}

const MAPPED_BYTES: usize = SLOTS as usize * DEATH_BYTES as usize;

impl Deaths {
    fn open() -> Result<Self, EbpfError> {
        let map = open(Pin::Deaths)?;
        sys::map(map.as_fd(), MAPPED_BYTES)
            .map(|words| Self { words: words.cast() })
            .map_err(|error| EbpfError::Kernel { doing: "map the array of deaths", error })
    }

    /// The token in a slot for this stage; 0 if it was never used.
    #[inline]
    pub fn token(&self, slot: u32, stage: Stage) -> u64 {
        let word = match stage {
            Stage::Dying => 0,
            Stage::Dead => 1,
        };
        let index = (slot % SLOTS) as usize * DEATH_WORDS + word;
        // SAFETY: the mapping holds `SLOTS` entries of `DEATH_WORDS` words, aligned to a page; the
        // kernel writes whole words.
        unsafe { self.words.add(index).as_ref() }.load(Ordering::Acquire)
    }
}

impl Drop for Deaths {
    fn drop(&mut self) {
        // SAFETY: made by mmap with this length, and no reference into it is left.
        let gone = unsafe { munmap(self.words.cast(), MAPPED_BYTES) };
        debug_assert!(gone.is_ok(), "{gone:?}");
    }
}

/// A descriptor that becomes ready whenever a fatal signal was sent to a registered process.
#[derive(Debug)]
pub struct Wakes(OwnedFd);

impl Wakes {
    /// Has `epoll` return `data` at each such signal. At each only once, because the map is always ready
    /// by its level.
    pub fn wait_with(&self, epoll: &Epoll, data: u64) -> io::Result<()> {
        Ok(epoll.add(&self.0, EpollEvent::new(EpollFlags::EPOLLOUT | EpollFlags::EPOLLET, data))?)
    }
}

/// Tries to map for writing the page with the fill level of the map that wakes. Only the programs may
/// fill it: a test shows that the kernel refuses this.
pub fn map_wakes_for_writing() -> io::Result<()> {
    let map =
        sys::get(load::c_path(&Pin::Wakes.path()).map_err(io::Error::other)?.as_c_str(), sys::READ_WRITE)?;
    sys::map_for_writing(map.as_fd())
}

/// What the kernel publishes when this process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    pub slot: u32,
    /// A fatal signal was sent.
    pub dying: u64,
    /// No thread runs user code any more.
    pub dead: u64,
}

/// The loaded programs.
#[derive(Clone, Debug)]
pub struct Programs {
    register: Arc<OwnedFd>,
    deaths: Arc<Deaths>,
    wakes: Option<Arc<Wakes>>,
    identity: (u64, u64),
}

impl Programs {
    /// Opens them, if they are loaded and this user has permission.
    pub fn open() -> Result<Self, EbpfError> {
        let before = identity();
        let register = Arc::new(open(Pin::Register)?);
        let deaths = Arc::new(Deaths::open()?);
        let wakes = match open(Pin::Wakes) {
            Err(EbpfError::Absent) => None,
            wakes => Some(Arc::new(Wakes(wakes?))),
        };
        // All are of one loading.
        let identity = identity().filter(|&after| Some(after) == before).ok_or(EbpfError::Absent)?;
        Ok(Self { register, deaths, wakes, identity })
    }

    /// Whether they were unloaded, or reloaded, since they were opened. They report nothing then.
    pub fn are_gone(&self) -> bool {
        identity() != Some(self.identity)
    }

    /// The array of deaths.
    pub fn deaths(&self) -> &Arc<Deaths> {
        &self.deaths
    }

    /// What wakes a process that waits for deaths. `None` if these programs do not wake anyone.
    pub fn wakes(&self) -> Option<&Arc<Wakes>> {
        self.wakes.as_ref()
    }

    /// Registers the calling process until its death, with the given tokens. They must be random:
    /// the array is write-protected, so tokens cannot be forged, but two processes with equal
    /// tokens could be confused.
    pub fn register(&self, dying: u64, dead: u64) -> Result<Tokens, EbpfError> {
        for attempt in 0..TRIES {
            // Tokens are random, so the starting slot is, too.
            let slot = (dead as u32).wrapping_add(attempt.wrapping_mul(attempt)) % SLOTS;
            let mut process = Process { slot, reserved: 0, dying, dead };
            let result = sys::run(self.register.as_fd(), &mut process).map_err(|error| {
                match error.raw_os_error() {
                    Some(libc::EPERM) => EbpfError::Denied { what: "run an eBPF program".into(), error },
                    _ => EbpfError::Kernel { doing: "run the eBPF program that registers", error },
                }
            })?;
            match -result {
                0 => {
                    return Ok(Tokens { slot: process.slot, dying: process.dying, dead: process.dead });
                }
                libc::EBUSY | libc::EAGAIN => {}
                code => {
                    let error = io::Error::from_raw_os_error(code);
                    return Err(EbpfError::Kernel { doing: "register this process", error });
                }
            }
        }
        Err(EbpfError::Full)
    }
}
