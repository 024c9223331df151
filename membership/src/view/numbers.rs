//! Sets of coordinators' numbers.

use obol_fabric::layout::PROPOSERS_MAX;

/// A set of coordinators' numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Numbers(u8);

const _: () = assert!(PROPOSERS_MAX <= u8::BITS as usize, "every number has a bit");

impl Numbers {
    /// No number.
    pub const NONE: Self = Self(0);

    const fn bit(number: u16) -> u8 {
        if number >= 1 && number as usize <= PROPOSERS_MAX { 1 << (number - 1) } else { 0 }
    }

    /// Whether this number is among them.
    pub const fn contains(self, number: u16) -> bool {
        self.0 & Self::bit(number) != 0
    }

    /// Adds a number; invalid ones are ignored.
    #[must_use]
    pub const fn with(self, number: u16) -> Self {
        Self(self.0 | Self::bit(number))
    }

    /// Whether all of these numbers are among them.
    pub const fn includes(self, others: Self) -> bool {
        others.0 & !self.0 == 0
    }

    /// How many numbers there are.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// All numbers, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        (1..=PROPOSERS_MAX as u16).filter(move |number| self.contains(*number))
    }

    /// As one byte.
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// The reverse of [`Numbers::to_bits`]; `None` if a bit stands for no number.
    pub fn from_bits(bits: u8) -> Option<Self> {
        let known = (1..=PROPOSERS_MAX as u16).fold(0, |bits, number| bits | Self::bit(number));
        (bits & !known == 0).then_some(Self(bits))
    }
}

impl FromIterator<u16> for Numbers {
    fn from_iter<I: IntoIterator<Item = u16>>(numbers: I) -> Self {
        numbers.into_iter().fold(Self::NONE, Self::with)
    }
}
