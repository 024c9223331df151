//! Versions of this program, and which of them work together.
//!
//! The minor version is the version of everything that processes share: regions, handshakes,
//! datagrams and views. Releases that are at most one minor version apart work together, see
//! [`Release::works_with`]; a patch changes nothing that is shared. `docs/upgrade.md` has the rules
//! that a change follows.

use core::fmt;
use core::str::FromStr;
use std::sync::OnceLock;

/// A version, such as 0.1.0. All zero if unknown. A process stores its own in its seat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u32);

/// A version without its patch, such as 0.1. Zero if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release(u16);

/// Has this process regard itself as of another release than it is. For tests of upgrades: a
/// release that changes nothing. A build for users ignores it: the environment of a daemon should not
/// change its release.
const TEST_RELEASE: &str = "OBOL_TEST_RELEASE";
/// Whether this is a build for users, see `packaging/build`.
const IS_SHIPPED: bool = option_env!("OBOL_SHIPPED").is_some();
/// Bits of a minor version.
const MINOR_BITS: u32 = 12;

/// The digits of a part of a version.
const fn number(text: &str) -> u32 {
    let bytes = text.as_bytes();
    let (mut n, mut at) = (0, 0);
    while at < bytes.len() {
        n = n * 10 + (bytes[at] - b'0') as u32;
        at += 1;
    }
    n
}

impl Version {
    /// The version of this build.
    pub const THIS: Self = Self::new(
        number(env!("CARGO_PKG_VERSION_MAJOR")),
        number(env!("CARGO_PKG_VERSION_MINOR")),
        number(env!("CARGO_PKG_VERSION_PATCH")),
    );

    const fn new(major: u32, minor: u32, patch: u32) -> Self {
        assert!(major < 1 << 4 && minor < 1 << MINOR_BITS && patch < 1 << 12, "it has to fit a half word");
        Self(major << 24 | minor << 12 | patch)
    }

    /// From a seat's half word.
    pub const fn of(word: u32) -> Self {
        Self(word)
    }

    /// As a seat's half word.
    pub const fn word(self) -> u32 {
        self.0
    }

    /// The version of this process: that of the build, unless a test says otherwise.
    pub fn own() -> Self {
        static OWN: OnceLock<Version> = OnceLock::new();
        *OWN.get_or_init(|| {
            let named = if IS_SHIPPED { None } else { std::env::var(TEST_RELEASE).ok() };
            let other = named.and_then(|text| text.parse::<Release>().ok());
            other.map_or(Self::THIS, |Release(of)| {
                let of = u32::from(of);
                Self::new(of >> MINOR_BITS, of & ((1 << MINOR_BITS) - 1), 0)
            })
        })
    }

    /// The release that this is a version of.
    pub const fn release(self) -> Release {
        Release((self.0 >> 12 & 0xfff | (self.0 >> 24 & 0xf) << MINOR_BITS) as u16)
    }
}

impl Release {
    /// The release of this build.
    pub const THIS: Self = Version::THIS.release();

    /// The release of this process.
    pub fn own() -> Self {
        Version::own().release()
    }

    /// From its number on the wire.
    pub const fn of(number: u16) -> Self {
        Self(number)
    }

    /// Its number on the wire.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Whether processes of the two can be in one cluster: the same major version, and minor ones
    /// at most one apart.
    pub const fn works_with(self, other: Self) -> bool {
        self.0 >> MINOR_BITS == other.0 >> MINOR_BITS && self.0.abs_diff(other.0) <= 1
    }

    /// Whether a cluster that speaks this release admits a member of another one: the same, or the
    /// next one. So all members are of two neighbouring releases, and the older one is spoken.
    pub const fn admits(self, newcomer: Self) -> bool {
        self.works_with(newcomer) && newcomer.0 >= self.0
    }

    /// The advice for a process of this release that meets another one that it does not work with.
    pub fn advice(self, other: Self) -> Advice {
        Advice { ours: self, theirs: other }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("--"),
            word => write!(f, "{}.{}.{}", word >> 24, word >> 12 & 0xfff, word & 0xfff),
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("--"),
            number => write!(f, "{}.{}", number >> MINOR_BITS, number & ((1 << MINOR_BITS) - 1)),
        }
    }
}

/// A text is not a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a release has the form MAJOR.MINOR, for example {}", Release::THIS)]
pub struct NoRelease;

impl FromStr for Release {
    type Err = NoRelease;

    fn from_str(text: &str) -> Result<Self, NoRelease> {
        let (major, minor) = text.split_once('.').ok_or(NoRelease)?;
        let part =
            |text: &str, bits: u32| text.parse::<u16>().ok().filter(|n| *n < 1 << bits).ok_or(NoRelease);
        Ok(Self(part(major, 4)? << MINOR_BITS | part(minor, MINOR_BITS)?))
    }
}

/// What to do about two releases that do not work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Advice {
    ours: Release,
    theirs: Release,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ours, theirs } = *self;
        write!(f, "this program is obol {ours}, and {theirs} is there; ")?;
        match ours.0 >> MINOR_BITS == theirs.0 >> MINOR_BITS {
            false => f.write_str("different major versions never work together")?,
            true if ours > theirs => {
                let first = Release(theirs.0.saturating_add(1));
                if first == ours {
                    write!(f, "upgrade the others to {ours} first")?;
                } else {
                    write!(
                        f,
                        "upgrade all processes of the cluster to {first} first, then to the next, up to {ours}"
                    )?;
                }
            }
            true => write!(f, "upgrade this program to {theirs}: the cluster has been upgraded")?,
        }
        f.write_str(" (docs/upgrade.md)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_comes_back_from_its_word() {
        assert_eq!(Version::THIS.to_string(), env!("CARGO_PKG_VERSION"));
        assert_eq!(Version::of(Version::new(12, 345, 4095).word()).to_string(), "12.345.4095");
        assert_eq!(Version::of(0).to_string(), "--");
        assert_eq!(Version::new(12, 345, 4095).release().to_string(), "12.345");
        assert_eq!(Version::own(), Version::THIS);
    }

    #[test]
    fn neighbouring_minor_versions_work_together_and_no_others() {
        let release = |text: &str| text.parse::<Release>().expect("a release");
        let pairs = [("0.1", "0.1"), ("0.1", "0.2"), ("0.2", "0.1"), ("1.0", "1.1")];
        assert!(pairs.iter().all(|(a, b)| release(a).works_with(release(b))));
        let pairs = [("0.1", "0.3"), ("0.3", "0.1"), ("0.1", "1.1"), ("0.4095", "1.0")];
        assert!(pairs.iter().all(|(a, b)| !release(a).works_with(release(b))));
        assert!(release("0.1").admits(release("0.2")) && !release("0.2").admits(release("0.1")));
        for text in ["", "0", "0.1.0", "16.0", "0.4096", "a.b", "-1.0"] {
            assert_eq!(text.parse::<Release>(), Err(NoRelease), "{text}");
        }
    }

    #[test]
    fn the_advice_names_the_next_step() {
        let advice = |ours: &str, theirs: &str| {
            let [ours, theirs] = [ours, theirs].map(|text| text.parse::<Release>().expect("a release"));
            ours.advice(theirs).to_string()
        };
        assert!(advice("0.3", "0.1").contains("upgrade all processes of the cluster to 0.2 first"));
        assert!(advice("0.1", "0.2").contains("upgrade this program to 0.2"));
        assert!(advice("1.0", "0.9").contains("never work together"));
    }
}
