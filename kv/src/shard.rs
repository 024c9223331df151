//! Shards of the keys. Each shard of a cache has servers of its own: members with a core, a region
//! and a lease, which share nothing with those of other shards even if they are threads of one
//! process. A server's name contains its shard and the number of shards, so every view defines the
//! assignment.

use core::fmt;
use obol_fabric::Name;
use obol_fabric::types::NameError;

/// Shards of a cache at most: a client has room for their answers.
pub const SHARDS_MAX: u32 = 8;

/// Prefix of the names of all servers.
pub const SERVER_PREFIX: &str = "kv-";

/// Prefix of the names of clients that work for one command each.
pub const CLIENT_PREFIX: &str = "kvc-";

/// 2^64 divided by the golden ratio: its multiples are spread evenly.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A part of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    index: u32,
    count: u32,
}

impl Shard {
    /// All keys in one.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// All shards of `count`, at most [`SHARDS_MAX`].
    pub fn split(count: u32) -> impl Iterator<Item = Self> {
        let count = count.min(SHARDS_MAX);
        (0..count).map(move |index| Self { index, count })
    }

    /// The shard of a key, of `count` shards.
    pub fn of_key(key: u64, count: u32) -> Self {
        let spread = u128::from(key.wrapping_mul(FACTOR));
        Self { index: ((spread * u128::from(count)) >> 64) as u32, count }
    }

    /// The shard of a server; `None` if it is not a server's name.
    pub fn of_server(name: &str) -> Option<Self> {
        let own = name.strip_prefix(SERVER_PREFIX).filter(|own| !own.is_empty())?;
        let numbers = own.rsplit_once('.').and_then(|(_, suffix)| suffix.split_once("of"));
        let Some((number, count)) = numbers else { return Some(Self::WHOLE) };
        let (number, count): (u32, u32) = (number.parse().ok()?, count.parse().ok()?);
        let shard = Self { index: number.checked_sub(1)?, count };
        (shard.index < count && (2..=SHARDS_MAX).contains(&count)).then_some(shard)
    }

    /// The name of the member that serves this shard for a server process.
    ///
    /// # Errors
    ///
    /// The server's name is too long.
    pub fn name(self, server: Name) -> Result<Name, NameError> {
        if self == Self::WHOLE { Ok(server) } else { Name::new(&format!("{server}.{self}")) }
    }

    /// Its index, from 0.
    pub const fn index(self) -> u32 {
        self.index
    }

    pub const fn count(self) -> u32 {
        self.count
    }
}

/// `1of4` is the first of four.
impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}of{}", self.index + 1, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_parsed_from_server_names_only() {
        let server = Name::new("kv-1").expect("a name");
        for count in 1..=SHARDS_MAX {
            for shard in Shard::split(count) {
                let name = shard.name(server).expect("short enough");
                assert_eq!(Shard::of_server(name.as_str()), Some(shard), "{name}");
            }
        }
        assert_eq!(Shard::WHOLE.name(server), Ok(server));
        for whole in ["kv-a", "kv-a.b", "kv-offer", "kv-1.2"] {
            assert_eq!(Shard::of_server(whole), Some(Shard::WHOLE), "{whole}");
        }
        for none in ["kv-", "kv", "app-1", "kv-1.0of2", "kv-1.3of2", "kv-1.1of1", "kv-1.1of9", "kv-1.xofy"] {
            assert_eq!(Shard::of_server(none), None, "{none}");
        }
    }

    #[test]
    fn every_shard_has_its_share_of_keys() {
        for count in 1..=SHARDS_MAX {
            let mut keys = vec![0_usize; count as usize];
            for key in 0..8_000 {
                let shard = Shard::of_key(key, count);
                assert!(shard.index < count);
                keys[shard.index as usize] += 1;
            }
            let fair = 8_000 / count as usize;
            assert!(keys.iter().all(|of| of.abs_diff(fair) < fair / 10), "{keys:?}");
        }
    }
}
