//! The content of a frame. All numbers are little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 8 | sequence; pulses and notices have one count |
//! | 8 | the sender's clock when it was sent |
//! | 8 | the liveness bitmap |
//! | 8 | of a notice: the sequence of the last pulse before it |
//! | 1 | kind: 0 pulse, 1 notice |
//! | 1 | number of deaths |
//! | 11 each | region (4), generation (4), seat (2), evidence (1) |

use super::DEATHS_MAX;
use obol_fabric::contract::Evidence;
use obol_fabric::types::Instant;

const HEAD_BYTES: usize = 34;
const DEATH_BYTES: usize = 11;
/// The shortest content of a frame: without deaths.
pub const PLAIN_BYTES_MIN: usize = HEAD_BYTES;
/// The longest content of a frame.
pub const PLAIN_BYTES_MAX: usize = HEAD_BYTES + DEATHS_MAX * DEATH_BYTES;

/// The death of a process, which the kernel of its host has reported there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Death {
    pub region: u32,
    /// Which of the region's owners.
    pub generation: u32,
    /// Its seat in the region.
    pub seat: u16,
    /// A suspicion or a proof. A sender passes no silence on.
    pub evidence: Evidence,
}

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// Sent once per period.
    Pulse,
    /// Sent at a death, at once.
    Notice {
        /// The sequence of the last pulse before it; 0 if there was none. On another path a notice
        /// may overtake that pulse.
        after: u64,
    },
}

/// A frame, the same on all paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Counts the frames of the sender's life, from 1.
    pub sequence: u64,
    /// When it was sent, by the sender's clock.
    pub sent: Instant,
    /// One bit for each process of the host that is alive.
    pub alive: u64,
    pub kind: FrameKind,
    /// Piggybacked: deaths that were reported lately.
    pub deaths: Vec<Death>,
}

const PULSE: u8 = 0;
const NOTICE: u8 = 1;

impl Frame {
    /// Appends the content.
    pub fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(self.deaths.len() <= DEATHS_MAX, "the sender bounds them");
        let (kind, after) = match self.kind {
            FrameKind::Pulse => (PULSE, 0),
            FrameKind::Notice { after } => (NOTICE, after),
        };
        for word in [self.sequence, self.sent.0, self.alive, after] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let deaths = self.deaths.get(..DEATHS_MAX).unwrap_or(&self.deaths);
        out.extend_from_slice(&[kind, deaths.len() as u8]);
        for death in deaths {
            out.extend_from_slice(&death.region.to_le_bytes());
            out.extend_from_slice(&death.generation.to_le_bytes());
            out.extend_from_slice(&death.seat.to_le_bytes());
            out.push(u8::from(death.evidence == Evidence::Proof));
        }
    }

    /// Reads a content. `None` if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, mut rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let (words, [kind, count]) = head.split_first_chunk::<32>()? else { return None };
        let mut words = words.chunks_exact(8).map(|word| word.try_into().map(u64::from_le_bytes));
        let mut word = || words.next()?.ok();
        let (sequence, sent, alive, after) = (word()?, Instant(word()?), word()?, word()?);
        let kind = match (*kind, after) {
            (PULSE, 0) => FrameKind::Pulse,
            (NOTICE, after) if after < sequence => FrameKind::Notice { after },
            _ => return None,
        };
        let count = usize::from(*count);
        if sequence == 0 || count > DEATHS_MAX || rest.len() != count * DEATH_BYTES {
            return None;
        }
        let mut deaths = Vec::with_capacity(count);
        while let Some((death, after)) = rest.split_first_chunk::<DEATH_BYTES>() {
            deaths.push(Death::decode(death)?);
            rest = after;
        }
        Some(Self { sequence, sent, alive, kind, deaths })
    }
}

impl Death {
    fn decode(bytes: &[u8; DEATH_BYTES]) -> Option<Self> {
        let (region, rest) = bytes.split_first_chunk()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let (seat, [evidence]) = rest.split_first_chunk()? else { return None };
        let evidence = match evidence {
            0 => Evidence::Suspicion,
            1 => Evidence::Proof,
            _ => return None,
        };
        Some(Self {
            region: u32::from_le_bytes(*region),
            generation: u32::from_le_bytes(*generation),
            seat: u16::from_le_bytes(*seat),
            evidence,
        })
    }
}
