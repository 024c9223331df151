//! The holder of a table entry or a seat, in one word. It is claimed by one CAS that already names
//! the claimant, so that a claimant that dies at any instruction is distinguishable from one at
//! work.

use crate::host::process::{PID_BITS, Process, STARTED_BITS};

/// The holder's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// It has no holder.
    Free = 0,
    /// The holder prepares it.
    Claimed = 1,
    /// The holder is active.
    Live = 2,
    /// The holder released it properly; its process may still run.
    Closed = 3,
}

/// A decoded word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occupancy {
    pub(crate) phase: Phase,
    pub(crate) process: Process,
}

impl Occupancy {
    pub(crate) const FREE: u64 = 0;

    pub(crate) const fn word(phase: Phase, process: Process) -> u64 {
        let started = process.started & ((1 << STARTED_BITS) - 1);
        let pid = process.pid as u64 & ((1 << PID_BITS) - 1);
        ((phase as u64) << (PID_BITS + STARTED_BITS)) | (pid << STARTED_BITS) | started
    }

    pub(crate) const fn of(word: u64) -> Self {
        let phase = match word >> (PID_BITS + STARTED_BITS) {
            0 => Phase::Free,
            1 => Phase::Claimed,
            2 => Phase::Live,
            _ => Phase::Closed,
        };
        let pid = ((word >> STARTED_BITS) & ((1 << PID_BITS) - 1)) as u32;
        Self { phase, process: Process { pid, started: word & ((1 << STARTED_BITS) - 1) } }
    }

    /// Whether it may be claimed: it is free, was released, or its holder is proved dead.
    pub(crate) fn is_open(self) -> bool {
        match self.phase {
            Phase::Free | Phase::Closed => true,
            Phase::Claimed | Phase::Live => self.process.is_dead(),
        }
    }
}

const _: () = assert!(PID_BITS + STARTED_BITS == 62);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_phase_and_process() {
        let process = Process { pid: (1 << 22) - 1, started: (1 << 40) - 1 };
        for phase in [Phase::Free, Phase::Claimed, Phase::Live, Phase::Closed] {
            assert_eq!(Occupancy::of(Occupancy::word(phase, process)), Occupancy { phase, process });
        }
        assert_eq!(Occupancy::of(Occupancy::FREE).phase, Phase::Free);
    }
}
