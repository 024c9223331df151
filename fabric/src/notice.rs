//! Death notices: the datagrams that are registered with the kernel in advance and sent when a
//! process dies.
//!
//! Anyone on the network may send datagrams to the group, and read those of others. So each notice
//! carries a *token*: a random number that its process drew for this one notice and shows only in
//! its region, which other users cannot read. A notice is accepted iff its token equals the one in
//! the seat that it names. Disclosing a token by sending it is harmless, because the death is true
//! then; and the token of *dying*, which is sent first, does not help to forge *dead*.

use crate::types::Address;
use obol_deaths::Stage;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The first eight bytes of every notice: `obol-die`.
const MAGIC: u64 = u64::from_le_bytes(*b"obol-die");
/// Changes with the layout or the meaning.
const VERSION: u32 = 1;

/// A death notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The nonce of the cluster.
    pub cluster: u64,
    /// The dying process; with the generation.
    pub who: Address,
    pub stage: Stage,
    /// Proves that the process itself registered the notice with its kernel. Never 0.
    pub token: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: u64,
    cluster: u64,
    token: u64,
    region: u32,
    generation: u32,
    version: u32,
    seat: u16,
    stage: u16,
}

/// Length of an encoded notice.
pub const NOTICE_BYTES: usize = size_of::<Raw>();
const _: () = assert!(NOTICE_BYTES == 40);

impl Notice {
    pub fn encode(&self) -> [u8; NOTICE_BYTES] {
        zerocopy::transmute!(Raw {
            magic: MAGIC.to_le(),
            cluster: self.cluster.to_le(),
            token: self.token.to_le(),
            region: self.who.region.to_le(),
            generation: self.who.generation.to_le(),
            version: VERSION.to_le(),
            seat: self.who.seat.to_le(),
            stage: (self.stage as u16).to_le(),
        })
    }

    /// Decodes a notice; `None` if it is not one of this version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let raw = Raw::read_from_bytes(bytes).ok()?;
        let known = u64::from_le(raw.magic) == MAGIC && u32::from_le(raw.version) == VERSION;
        let stage = match u16::from_le(raw.stage) {
            1 => Stage::Dying,
            2 => Stage::Dead,
            _ => return None,
        };
        let region = Address::region(u32::from_le(raw.region));
        let who =
            Address { seat: u16::from_le(raw.seat), generation: u32::from_le(raw.generation), ..region };
        let token = u64::from_le(raw.token);
        // Generation 0 would match any occupant.
        let whole = known && token != 0 && who.generation != 0;
        whole.then_some(Self { cluster: u64::from_le(raw.cluster), who, stage, token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice() -> Notice {
        let who = Address { seat: 3, generation: 7, ..Address::region(9) };
        Notice { cluster: 11, who, stage: Stage::Dead, token: 13 }
    }

    #[test]
    fn a_notice_survives_its_journey() {
        for stage in [Stage::Dying, Stage::Dead] {
            let sent = Notice { stage, ..notice() };
            assert_eq!(Notice::decode(&sent.encode()), Some(sent));
        }
    }

    #[test]
    fn what_is_no_notice_is_refused() {
        let raw = notice().encode();
        assert_eq!(Notice::decode(&raw[..39]), None);
        assert_eq!(Notice::decode(&[&raw[..], &[0]].concat()), None);
        for (at, fault) in [(0, "magic"), (32, "version"), (38, "stage")] {
            let mut wrong = raw;
            wrong[at] ^= 4;
            assert_eq!(Notice::decode(&wrong), None, "{fault}");
        }
        assert_eq!(Notice::decode(&Notice { token: 0, ..notice() }.encode()), None);
        let everybody = Address { generation: 0, ..notice().who };
        assert_eq!(Notice::decode(&Notice { who: everybody, ..notice() }.encode()), None);
    }
}
