//! What a gateway reports to the processes of its host about the pulses of others: a datagram from
//! the region of no process ([`FROM`]), which only the gateway of the own host can put into a lane.

use super::frame::Seat;
use obol_fabric::contract::Evidence;
use obol_fabric::types::Address;

/// The sender of such a datagram. No process has region 0.
pub(super) const FROM: Address = Address::region(0);

const WORD_BYTES: usize = 16;
const SILENT: u8 = 1;
const DIED: u8 = 2;
const VANISHED: u8 = 3;

/// A finding about another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PulseWord {
    /// No pulse of the host has arrived within the timeout.
    Silent(u8),
    /// The gateway of the host reports a death.
    Died(u8, Seat, Evidence),
    /// A process of the region is alive no more, by the bitmap of the host, which says not which one.
    Vanished(u8, u32),
}

impl PulseWord {
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        let none = Seat { region: 0, generation: 0, seat: 0 };
        let (kind, host, seat, evidence) = match self {
            Self::Silent(host) => (SILENT, host, none, 0),
            Self::Died(host, seat, evidence) => (DIED, host, seat, u8::from(evidence == Evidence::Proof)),
            Self::Vanished(host, region) => (VANISHED, host, Seat { region, ..none }, 0),
        };
        out.extend_from_slice(&[kind, host, evidence, 0]);
        out.extend_from_slice(&seat.region.to_le_bytes());
        out.extend_from_slice(&seat.generation.to_le_bytes());
        out.extend_from_slice(&u32::from(seat.seat).to_le_bytes());
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let ([kind, host, evidence, 0], rest) = bytes.split_first_chunk()? else { return None };
        let mut words = rest.chunks_exact(4).map(|word| word.try_into().map(u32::from_le_bytes));
        let mut word = || words.next()?.ok();
        let (region, generation, seat) = (word()?, word()?, u16::try_from(word()?).ok()?);
        let seat = Seat { region, generation, seat };
        if bytes.len() != WORD_BYTES {
            return None;
        }
        match (*kind, *evidence) {
            (SILENT, 0) => Some(Self::Silent(*host)),
            (DIED, 0) => Some(Self::Died(*host, seat, Evidence::Suspicion)),
            (DIED, 1) => Some(Self::Died(*host, seat, Evidence::Proof)),
            (VANISHED, 0) => Some(Self::Vanished(*host, region)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_survives_encoding_and_nothing_else_is_one() {
        let seat = Seat { region: 70, generation: 3, seat: 2 };
        for word in [
            PulseWord::Silent(3),
            PulseWord::Died(2, seat, Evidence::Suspicion),
            PulseWord::Died(2, seat, Evidence::Proof),
            PulseWord::Vanished(2, 70),
        ] {
            let mut bytes = Vec::new();
            word.encode(&mut bytes);
            assert_eq!(PulseWord::decode(&bytes), Some(word));
            bytes.push(0);
            assert_eq!(PulseWord::decode(&bytes), None);
        }
        assert_eq!(PulseWord::decode(&[9; WORD_BYTES]), None);
        assert_eq!(PulseWord::decode(b""), None);
    }
}
