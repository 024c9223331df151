//! How the kernel reports the death of a process: by the module deadbeat, or by eBPF programs where the
//! module is not wanted.
//!
//! This crate registers processes and reads what the kernel publishes. What a report is worth is decided by
//! `obol_fabric::host`, which compares it with the seat of the process that is said to have died.

pub mod deadbeat;
mod detectors;
pub mod ebpf;
pub mod pidfd;
pub mod poll;

pub use detectors::Detectors;

/// The stage of a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// A signal that ends the process was sent: a suspicion.
    Dying = 1,
    /// No thread of the process runs user code any more: a proof.
    Dead = 2,
}

/// The mechanism that reports a death first, the best last. Robust futexes and pidfds report it as
/// well, but later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u64)]
pub enum Detection {
    /// A robust futex is the suspicion, a pidfd the proof.
    #[default]
    FutexPidfd = 0,
    /// eBPF programs: without a datagram, on one host.
    Ebpf = 1,
    /// The kernel module deadbeat.
    Module = 2,
}

impl Detection {
    /// The name for operators and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FutexPidfd => "futex+pidfd",
            Self::Ebpf => "ebpf",
            Self::Module => "module",
        }
    }

    /// Decodes the word of a seat.
    pub const fn of(word: u64) -> Self {
        match word as u32 {
            1 => Self::Ebpf,
            2 => Self::Module,
            _ => Self::FutexPidfd,
        }
    }

    /// The word of a seat; with eBPF the upper half is the slot of the death.
    pub const fn word(self, slot: u32) -> u64 {
        (slot as u64) << 32 | self as u64
    }

    /// The slot in such a word.
    pub const fn slot(word: u64) -> Option<u32> {
        match Self::of(word) {
            Self::Ebpf => Some((word >> 32) as u32),
            _ => None,
        }
    }
}
