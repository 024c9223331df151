//! What becomes of an input: a few changes of the kinds that break programs.

use crate::Rng;

/// What inputs look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Fields of fixed widths, little-endian.
    Bytes,
    /// Lines of text with numbers and quoted words, such as TOML or JSON.
    Text,
}

/// Numbers at which arithmetic goes wrong; narrower fields take their low bytes.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    1 << 31,
    u32::MAX as u64,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// What stands for a value in a text.
const WORDS: [&str; 24] = [
    "0",
    "-1",
    "1",
    "255",
    "65535",
    "65536",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
    "-9223372036854775808",
    "1e400",
    "nan",
    "inf",
    "\"\"",
    "\"0 ns\"",
    "\"18446744073709551615 s\"",
    "\"\\u0000\"",
    "\"\\u001b[2J\"",
    "[]",
    "[[]]",
    "{}",
    "true",
    "1979-05-27",
    "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
];

/// Changes to one input at most, as a power of two.
const STACK_LOG2: usize = 4;

impl Shape {
    pub(crate) fn mutate(self, parents: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
        let mut input = rng.pick(parents).cloned().unwrap_or_default();
        for _ in 0..1 << rng.below(STACK_LOG2 + 1) {
            match self {
                Self::Bytes => bytes(&mut input, parents, rng),
                Self::Text if rng.below(4) == 0 => bytes(&mut input, parents, rng),
                Self::Text => text(&mut input, parents, rng),
            }
        }
        input
    }
}

fn bytes(input: &mut Vec<u8>, parents: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.below(input.len());
    match rng.below(9) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = rng.next() as u8;
            }
        }
        2..=4 => {
            let width = 1 << rng.below(4);
            let number = *rng.pick(&NUMBERS).unwrap_or(&0);
            if let Some(field) = input.get_mut(at..at + width) {
                field.copy_from_slice(&number.to_le_bytes()[..width]);
            }
        }
        5 => {
            // One more or one less than what is there.
            let width = 1 << rng.below(4);
            if let Some(field) = input.get_mut(at..at + width) {
                let mut wide = [0; 8];
                wide[..width].copy_from_slice(field);
                let by = [1, u64::MAX, 256, 0x8000][rng.below(4)];
                let number = u64::from_le_bytes(wide).wrapping_add(by);
                field.copy_from_slice(&number.to_le_bytes()[..width]);
            }
        }
        6 => {
            let end = at + rng.below(32).min(input.len() - at);
            input.drain(at..end);
        }
        7 => {
            let end = at + rng.below(64).min(input.len() - at);
            let again = input[at..end].to_vec();
            let to = rng.below(input.len() + 1);
            input.splice(to..to, again);
        }
        _ => {
            let other = rng.pick(parents).map_or(&[][..], |other| other);
            let from = rng.below(other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
    }
}

fn text(input: &mut Vec<u8>, parents: &[Vec<u8>], rng: &mut Rng) {
    let mut lines: Vec<Vec<u8>> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let at = rng.below(lines.len());
    match rng.below(6) {
        0 => drop(lines.remove(at)),
        1 => {
            let again = lines[at].clone();
            lines.insert(rng.below(lines.len() + 1), again);
        }
        2 => {
            let with = rng.below(lines.len());
            lines.swap(at, with);
        }
        3 => {
            let other = rng.pick(parents).map_or(&[][..], |other| other);
            let theirs: Vec<&[u8]> = other.split(|byte| *byte == b'\n').collect();
            if let Some(line) = rng.pick(&theirs) {
                lines.insert(at, line.to_vec());
            }
        }
        _ => value(&mut lines[at], rng),
    }
    *input = lines.join(&b'\n');
}

/// Another value in place of one of the line's tokens.
fn value(line: &mut Vec<u8>, rng: &mut Rng) {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'"' | b'.' | b'-' | b'_');
    let mut tokens = Vec::new();
    let mut from = 0;
    while let Some(start) = line[from..].iter().position(is_part).map(|at| from + at) {
        let end = line[start..].iter().position(|byte| !is_part(byte)).map_or(line.len(), |at| start + at);
        tokens.push(start..end);
        from = end;
    }
    // Values come last, as a rule.
    let which = if rng.below(3) == 0 { rng.pick(&tokens) } else { tokens.last() };
    if let (Some(token), Some(word)) = (which.cloned(), rng.pick(&WORDS)) {
        line.splice(token, word.bytes());
    }
}
