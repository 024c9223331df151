//! The version of this program that a process runs, stored in its seat.

use core::fmt;

/// A version, such as 0.1.0. All zero if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u32);

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
        assert!(major < 1 << 8 && minor < 1 << 12 && patch < 1 << 12, "it has to fit a half word");
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
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("--"),
            word => write!(f, "{}.{}.{}", word >> 24, word >> 12 & 0xfff, word & 0xfff),
        }
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
    }
}
