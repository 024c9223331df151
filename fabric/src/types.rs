//! The types shared by all layers: time, identities, addresses. Every number carries its unit in
//! its type.

#![warn(missing_docs, reason = "others write programs and backends against this")]

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use derive_more::Display;
use serde::{Deserialize, Serialize, Serializer};
use std::net::{IpAddr, Ipv6Addr};

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than any deployment runs (584 years).
    pub const MAX: Self = Self(u64::MAX);

    /// `n` microseconds.
    pub const fn from_micros(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }

    /// `n` milliseconds.
    pub const fn from_millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// `n` seconds.
    pub const fn from_secs(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000))
    }

    /// The span in microseconds, with fractions.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1_000.0
    }

    /// The span as the standard library's type.
    pub const fn to_std(self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.0)
    }

    /// Converts the standard library's type; saturates at [`Nanos::MAX`].
    pub fn from_std(span: core::time::Duration) -> Self {
        u64::try_from(span.as_nanos()).map_or(Self::MAX, Self)
    }

    /// The sum, or [`Nanos::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The span times `n`, or [`Nanos::MAX`].
    #[must_use]
    pub const fn saturating_mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl From<core::time::Duration> for Nanos {
    fn from(span: core::time::Duration) -> Self {
        Self::from_std(span)
    }
}

impl From<Nanos> for core::time::Duration {
    fn from(span: Nanos) -> Self {
        span.to_std()
    }
}

/// Three significant figures with a suitable unit: `950ns`, `23.0us`, `1.50ms`, `2.00s`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            n if n < 1_000 => return f.pad(&format!("{n}ns")),
            n if n < 1_000_000 => (n as f64 / 1e3, "us"),
            n if n < 1_000_000_000 => (n as f64 / 1e6, "ms"),
            n => (n as f64 / 1e9, "s"),
        };
        let digits = if value < 9.995 {
            2
        } else if value < 99.95 {
            1
        } else {
            0
        };
        f.pad(&format!("{value:.digits$}{unit}"))
    }
}

/// A point on one process's monotonic clock, in nanoseconds. Never compare instants of two hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instant(pub u64);

impl Instant {
    /// Before everything.
    pub const ZERO: Self = Self(0);
    /// After everything: a deadline that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The time since `earlier`; zero if that is later.
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for Instant {
    type Output = Self;
    /// Saturates at [`Instant::NEVER`].
    fn add(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Nanos> for Instant {
    fn add_assign(&mut self, span: Nanos) {
        *self = *self + span;
    }
}

impl Sub<Nanos> for Instant {
    type Output = Self;
    /// Saturates at [`Instant::ZERO`].
    fn sub(self, span: Nanos) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

/// The number of a view (a membership). Slot `k` decides view `k`; ids have no gaps. (uKharon,
/// section 3.)
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
pub struct ViewId(pub u64);

impl ViewId {
    /// The view that every cluster starts with.
    pub const GENESIS: Self = Self(0);

    /// The view that follows this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// One life of one process in the cluster. Assigned by the coordinators, never reused; zero stands
/// for none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// No incarnation: a process that has not joined yet.
    pub const NONE: Self = Self(0);
}

/// The address of a process: a region and a seat in it.
///
/// The owner of a region has seat 0; programs attached to it have the others. `generation`
/// distinguishes successive occupants of a seat, so an operation on a predecessor never hits its
/// successor. `host` and `port` are zero on fabrics within one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// IPv6 (or mapped IPv4) address of the host.
    pub host: u128,
    /// Port of the host's connection manager.
    pub port: u16,
    /// Seat in the region; 0 is the owner.
    pub seat: u16,
    /// The region's number in the cluster.
    pub region: u32,
    /// The occupant of the seat; 0 for any (acceptor memory outlives its process).
    pub generation: u32,
}

impl Address {
    /// The address of the region's current owner, whichever it is.
    pub const fn region(region: u32) -> Self {
        Self { host: 0, port: 0, seat: 0, region, generation: 0 }
    }

    /// The same region, seat 0, any occupant.
    #[must_use]
    pub const fn owner(self) -> Self {
        Self { seat: 0, generation: 0, ..self }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host != 0 {
            write!(f, "{}:{}/", Ipv6Addr::from(self.host), self.port)?;
        }
        write!(f, "r{}", self.region)?;
        if self.seat != 0 {
            write!(f, ".{}", self.seat)?;
        }
        if self.generation != 0 {
            write!(f, "g{}", self.generation)?;
        }
        Ok(())
    }
}

/// An IP address as IPv6, with IPv4 mapped: the form used by [`Address`].
pub const fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// An IP address as the host of an [`Address`].
pub fn host_bits(ip: IpAddr) -> u128 {
    mapped(ip).into()
}

/// The IP address of a host in an [`Address`].
pub fn ip_of(host: u128) -> IpAddr {
    Ipv6Addr::from(host).to_canonical()
}

/// The longest name of a process or a cluster, in bytes.
pub const NAME_BYTES_MAX: usize = 23;

/// A process's or cluster's name: 1 to 23 bytes of `a-z A-Z 0-9 . _ -`, starting with a letter or
/// digit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize)]
#[serde(try_from = "String")]
pub struct Name {
    len: u8,
    bytes: [u8; NAME_BYTES_MAX],
}

/// Why a text is not a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, or longer than [`NAME_BYTES_MAX`] bytes.
    #[error("a name has 1 to {NAME_BYTES_MAX} bytes, this one has {0}")]
    Length(usize),
    /// A character that is not allowed, at this byte.
    #[error("a name is made of a-z A-Z 0-9 . _ - and starts with a letter or digit; byte {0} is not")]
    Character(usize),
}

impl Name {
    /// Checks a text.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return Err(NameError::Length(text.len()));
        }
        for (at, byte) in text.bytes().enumerate() {
            if !(byte.is_ascii_alphanumeric() || at > 0 && matches!(byte, b'.' | b'_' | b'-')) {
                return Err(NameError::Character(at));
            }
        }
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { len: text.len() as u8, bytes })
    }

    /// The name as text; empty for `Name::default()`.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or("")
    }

    /// The stored form of a name: length byte first.
    pub fn to_words(self) -> [u64; 3] {
        let mut raw = [0u8; 24];
        raw[0] = self.len;
        raw[1..].copy_from_slice(&self.bytes);
        core::array::from_fn(|i| u64::from_le_bytes(raw[i * 8..i * 8 + 8].try_into().unwrap_or([0; 8])))
    }

    /// The reverse of [`Name::to_words`]; `None` if it is not a valid name.
    pub fn from_words(words: [u64; 3]) -> Option<Self> {
        let mut raw = [0u8; 24];
        for (chunk, word) in raw.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        let len = usize::from(raw[0]);
        Self::new(core::str::from_utf8(raw.get(1..=len)?).ok()?).ok()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        Self::new(&text)
    }
}

impl core::str::FromStr for Name {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

/// The owner of a region: the region's number and the owner's generation, which distinguishes a
/// successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionOwner {
    /// The number of the region.
    pub region: u32,
    /// Counts the owners of the region.
    pub generation: u32,
}

/// In the number of a region, which is much smaller: a second thread of the owner, and another host
/// for whose processes it sends.
const SECOND_THREAD: u32 = 1 << 31;
const HOST_SHIFT: u32 = 16;
const REGION_MASK: u32 = (1 << HOST_SHIFT) - 1;

impl RegionOwner {
    pub(crate) const fn word(self) -> u64 {
        (self.region as u64) << 32 | self.generation as u64
    }

    /// The owner of the lanes of a second thread that sends: a lane has one writer.
    pub(crate) const fn second_thread(self) -> Self {
        Self { region: self.region | SECOND_THREAD, ..self }
    }

    /// The owner of the lanes by which a gateway delivers what the processes of another host send: those
    /// of one host do not fill those of another one.
    pub(crate) const fn on_behalf_of(self, host: u8) -> Self {
        Self { region: self.region | (host as u32) << HOST_SHIFT, ..self }
    }

    /// The process, whichever thread of it the word names, and for whomever it sent.
    pub(crate) const fn of(word: u64) -> Self {
        Self { region: (word >> 32) as u32 & REGION_MASK, generation: word as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_shows_three_figures_and_its_unit() {
        let shown = |n| Nanos(n).to_string();
        assert_eq!(shown(950), "950ns");
        assert_eq!(shown(23_000), "23.0us");
        assert_eq!(shown(9_996), "10.0us");
        assert_eq!(shown(1_500_000), "1.50ms");
        assert_eq!(shown(2_000_000_000), "2.00s");
    }

    #[test]
    fn names_are_checked_and_survive_a_region() {
        let name = Name::new("app-2").expect("valid");
        assert_eq!(Name::from_words(name.to_words()), Some(name));
        assert_eq!(Name::new(""), Err(NameError::Length(0)));
        assert_eq!(Name::new("-x"), Err(NameError::Character(0)));
        assert_eq!(Name::new("a/b"), Err(NameError::Character(1)));
        assert_eq!(Name::from_words([u64::MAX; 3]), None);
        assert_eq!(Name::from_words([0; 3]), None);
    }
}
