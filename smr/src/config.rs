//! Who votes. A configuration is an entry of the log, and counts from when it is appended. It
//! differs from its predecessor by one voter, and the next one is appended only when it is
//! committed, so majorities of consecutive configurations intersect.
//!
//! A voter is one life of one process, by its address with the generation: a process that starts
//! again has empty memory and is another replica.

use crate::area::PLACES;
use obol_fabric::Address;
use obol_fabric::sealed::word;

/// The most voters that a configuration can have.
pub const VOTERS_MAX: usize = 7;
const _: () = assert!(VOTERS_MAX < PLACES as usize, "a voter that is removed keeps its place for a time");

/// Bytes of an encoded voter.
const VOTER_BYTES: usize = 40;

/// A replica that votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Voter {
    /// Its process.
    pub address: Address,
    /// The ring of others into which it writes when it leads.
    pub place: u8,
}

/// Who votes, and how many should.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Config {
    /// How many voters there should be. Entries of their own change it, not those that change voters.
    pub target: u32,
    /// Those that there are, in the order in which they were added.
    pub voters: Vec<Voter>,
    /// The place that was assigned last: places are assigned in turn, so that one that was freed
    /// is used again as late as possible.
    pub newest_place: u8,
}

impl Config {
    /// The first configuration: its founder alone.
    pub(crate) fn first(target: u32, founder: Address) -> Self {
        Self { target, voters: vec![Voter { address: founder, place: 0 }], newest_place: 0 }
    }

    /// More than half of the voters.
    pub fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// The voter at this address.
    pub fn voter(&self, at: Address) -> Option<&Voter> {
        self.voters.iter().find(|voter| voter.address == at)
    }

    /// The same with another voter; `None` if there is no place for it.
    pub(crate) fn with(&self, address: Address) -> Option<Self> {
        if self.voters.len() >= VOTERS_MAX || self.voter(address).is_some() {
            return None;
        }
        let is_free = |place: &u8| self.voters.iter().all(|voter| voter.place != *place);
        let place = (1..=PLACES).map(|n| (self.newest_place + n) % PLACES).find(is_free)?;
        let mut next = Self { newest_place: place, ..self.clone() };
        next.voters.push(Voter { address, place });
        assert!(next.follows(self) && next.voters.len() <= VOTERS_MAX);
        Some(next)
    }

    /// The same without a voter; `None` if it would be empty.
    pub(crate) fn without(&self, address: Address) -> Option<Self> {
        let mut next = self.clone();
        next.voters.retain(|voter| voter.address != address);
        (!next.voters.is_empty() && next.voters.len() < self.voters.len()).then_some(next)
    }

    /// Whether it may follow another one.
    pub fn follows(&self, before: &Self) -> bool {
        let new = self.voters.iter().filter(|voter| before.voter(voter.address).is_none()).count();
        let gone = before.voters.iter().filter(|voter| self.voter(voter.address).is_none()).count();
        new + gone <= 1
    }

    /// Whether each majority of its voters has a voter of each majority of another one's.
    pub fn intersects(&self, other: &Self) -> bool {
        let common = self.voters.iter().filter(|voter| other.voter(voter.address).is_some()).count();
        // How many common voters a majority has at least.
        let needs = |of: &Self| of.majority().saturating_sub(of.voters.len() - common);
        needs(self) + needs(other) > common
    }

    /// The wanted number of voters, as the payload of an entry; `None` if it is out of bounds.
    pub(crate) fn encode_target(target: u32) -> Option<[u8; 8]> {
        let may_be = target > 0 && target as usize <= VOTERS_MAX;
        may_be.then(|| u64::from(target).to_le_bytes())
    }

    /// Changes how many voters there should be, as such a payload says.
    pub(crate) fn resize(&mut self, payload: &[u8]) {
        let target = word(payload, 0).and_then(|target| u32::try_from(target).ok());
        self.target = target.filter(|target| Self::encode_target(*target).is_some()).unwrap_or(self.target);
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let numbers = [u64::from(self.target), u64::from(self.newest_place), self.voters.len() as u64];
        for word in numbers {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for Voter { address, place } in &self.voters {
            let Address { host, port, seat, region, generation } = *address;
            out.extend_from_slice(&host.to_le_bytes());
            for half in [u32::from(port), u32::from(seat), region, generation, u32::from(*place), 0] {
                out.extend_from_slice(&half.to_le_bytes());
            }
        }
    }

    /// The configuration of these bytes, and what follows it; `None` if they are invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let target = u32::try_from(word(bytes, 0)?).ok()?;
        let newest_place = u8::try_from(word(bytes, 1)?).ok().filter(|place| *place < PLACES)?;
        let count = usize::try_from(word(bytes, 2)?).ok().filter(|count| *count <= VOTERS_MAX)?;
        let (voters, rest) = bytes.get(24..)?.split_at_checked(count * VOTER_BYTES)?;
        let voters: Option<Vec<Voter>> = voters.chunks_exact(VOTER_BYTES).map(decode_voter).collect();
        let config = Self { target, voters: voters?, newest_place };
        let mut places: Vec<u8> = config.voters.iter().map(|voter| voter.place).collect();
        places.sort_unstable();
        places.is_sorted_by(|a, b| a < b).then_some((config, rest))
    }
}

fn decode_voter(bytes: &[u8]) -> Option<Voter> {
    let host = u128::from_le_bytes(bytes.first_chunk::<16>().copied()?);
    let half = |n: usize| {
        let at = 16 + 4 * n;
        Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let (port, seat) = (u16::try_from(half(0)?).ok()?, u16::try_from(half(1)?).ok()?);
    let address = Address { host, port, seat, region: half(2)?, generation: half(3)? };
    let place = u8::try_from(half(4)?).ok().filter(|place| *place < PLACES)?;
    Some(Voter { address, place })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(region: u32) -> Address {
        Address { region, generation: 3, host: 5, port: 6, ..Address::default() }
    }

    #[test]
    fn configurations_change_by_one_voter() {
        let one = Config::first(3, at(1));
        let two = one.with(at(2)).expect("room");
        let three = two.with(at(3)).expect("room");
        assert!(two.follows(&one) && three.follows(&two) && !three.follows(&one));
        assert_eq!((one.majority(), two.majority(), three.majority()), (1, 2, 2));
        assert_eq!(three.with(at(3)), None, "it votes already");
        assert_eq!(three.without(at(4)), None, "it does not vote");
        assert_eq!(one.without(at(1)), None, "it would be empty");
        let other = three.without(at(1)).and_then(|two| two.with(at(4))).expect("room");
        assert!(!other.follows(&three));
    }

    #[test]
    fn majorities_intersect_if_one_voter_differs_and_may_not_if_two_do() {
        let mut all = vec![Config::first(5, at(1))];
        for region in 2..=VOTERS_MAX as u32 {
            all.push(all[all.len() - 1].with(at(region)).expect("room"));
        }
        for (n, config) in all.iter().enumerate() {
            assert!(config.intersects(config));
            let next = all.get(n + 1);
            assert!(next.is_none_or(|next| config.intersects(next) && next.intersects(config)), "{config:?}");
        }
        assert!(!all[0].intersects(&all[2]), "one of one, and the two others of three");
        let replaced = all[2].without(at(1)).and_then(|two| two.with(at(9))).expect("room");
        assert!(!all[2].intersects(&replaced), "two of three, and the third with the new one");
    }

    #[test]
    fn there_should_be_as_many_voters_as_was_said_last() {
        let mut config = Config::first(3, at(1));
        for (target, then) in [(5, 5), (0, 5), (VOTERS_MAX as u32 + 1, 5), (1, 1), (7, 7)] {
            if let Some(payload) = Config::encode_target(target) {
                config.resize(&payload);
            }
            config.resize(&u64::from(target).to_le_bytes());
            assert_eq!(config.target, then, "{target}");
        }
        config.resize(&[3, 0]);
        config.resize(&[0xff; 8]);
        assert_eq!(config.target, 7, "what is cut off or invalid changes nothing");
    }

    #[test]
    fn a_freed_place_is_used_again_last() {
        let mut config = Config::first(3, at(0)).with(at(1)).expect("room");
        let mut places = Vec::new();
        for region in 2..10 {
            config = config.with(at(region)).expect("room");
            places.push(config.newest_place);
            config = config.without(at(region)).expect("two are left");
        }
        assert_eq!(places, [2, 3, 4, 5, 6, 7, 2, 3]);
    }

    #[test]
    fn an_encoded_configuration_is_decoded() {
        let config = Config::first(5, at(1)).with(at(2)).expect("room");
        let mut bytes = Vec::new();
        config.encode(&mut bytes);
        bytes.push(9);
        assert_eq!(Config::decode(&bytes), Some((config, &[9][..])));
        for len in 0..bytes.len() - 1 {
            assert_eq!(Config::decode(&bytes[..len]), None, "{len} bytes");
        }
        let twice = Config { voters: vec![Voter { address: at(1), place: 1 }; 2], ..Config::default() };
        let mut bytes = Vec::new();
        twice.encode(&mut bytes);
        assert_eq!(Config::decode(&bytes), None, "two voters in one place");
    }
}
