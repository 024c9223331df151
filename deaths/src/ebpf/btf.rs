//! The types of the running kernel, from `/sys/kernel/btf/vmlinux`: offsets of structure members,
//! and ids of functions. The format is described in the kernel's Documentation/bpf/btf.rst.

use std::collections::HashMap;

pub(super) const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
/// Name, kind and count, size or type: the head of each type.
const TYPE_WORDS: usize = 3;

const STRUCT: u32 = 4;
const UNION: u32 = 5;
const FUNC: u32 = 12;

/// The number of words after the head of a type of this kind with `parts` parts. `None` for an
/// unknown kind.
fn words_behind(kind: u32, parts: usize) -> Option<usize> {
    Some(match kind {
        2 | 7..=12 | 16 | 18 => 0,
        1 | 14 | 17 => 1,
        3 => 3,
        STRUCT | UNION | 15 | 19 => 3 * parts,
        6 | 13 => 2 * parts,
        _ => return None,
    })
}

/// A kernel's types.
pub(super) struct Types {
    words: Vec<u32>,
    names: Vec<u8>,
    /// The index of the first word of each type; type 1 is the first.
    starts: Vec<usize>,
    /// Structures and functions by name.
    structures: HashMap<Vec<u8>, u32>,
    functions: HashMap<Vec<u8>, u32>,
}

impl Types {
    /// Reads the kernel's own description. `None` if it is damaged or has an unknown kind.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
        if bytes.get(..2)? != MAGIC.to_le_bytes() {
            return None;
        }
        let header = word(4)?;
        if header < HEADER_BYTES {
            return None;
        }
        let part = |at: usize, length: usize| {
            let from = header.checked_add(at)?;
            bytes.get(from..from.checked_add(length)?)
        };
        let types = part(word(8)?, word(12)?)?;
        let names = part(word(16)?, word(20)?)?.to_vec();
        let (words, _) = types.as_chunks::<4>();
        let words = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let mut new =
            Self { words, names, starts: Vec::new(), structures: HashMap::new(), functions: HashMap::new() };
        let mut at = 0;
        while at < new.words.len() {
            new.starts.push(at);
            let id = new.starts.len() as u32;
            let (kind, parts) = new.kind(at)?;
            let name = new.name(*new.words.get(at)?)?.to_vec();
            match kind {
                STRUCT => drop(new.structures.entry(name).or_insert(id)),
                FUNC => drop(new.functions.entry(name).or_insert(id)),
                _ => {}
            }
            at += TYPE_WORDS + words_behind(kind, parts)?;
        }
        (at == new.words.len()).then_some(new)
    }

    fn kind(&self, at: usize) -> Option<(u32, usize)> {
        let info = *self.words.get(at + 1)?;
        Some((info >> 24 & 0x1f, (info & 0xffff) as usize))
    }

    fn name(&self, at: u32) -> Option<&[u8]> {
        core::ffi::CStr::from_bytes_until_nul(self.names.get(at as usize..)?)
            .ok()
            .map(core::ffi::CStr::to_bytes)
    }

    /// The id of a function.
    pub(super) fn function(&self, name: &str) -> Option<u32> {
        self.functions.get(name.as_bytes()).copied()
    }

    /// The length of a structure in bytes.
    pub(super) fn size(&self, structure: &str) -> Option<u32> {
        let id = *self.structures.get(structure.as_bytes())?;
        self.words.get(self.starts.get(id as usize - 1)? + 2).copied()
    }

    /// The distance of a member from the start of its structure in bytes.
    pub(super) fn offset(&self, structure: &str, member: &str) -> Option<u32> {
        self.find(*self.structures.get(structure.as_bytes())?, member.as_bytes()).map(|bits| bits / 8)
    }

    /// In bits. Members of anonymous members belong to the structure itself.
    fn find(&self, id: u32, member: &[u8]) -> Option<u32> {
        let at = *self.starts.get((id as usize).checked_sub(1)?)?;
        let (kind, parts) = self.kind(at)?;
        if kind != STRUCT && kind != UNION {
            return None;
        }
        // A structure with bit fields keeps their length in the upper byte.
        let mask = if self.words.get(at + 1)? >> 31 == 1 { 0xff_ffff } else { u32::MAX };
        (0..parts).find_map(|part| {
            let at = at + TYPE_WORDS + 3 * part;
            let (name, of, bits) =
                (*self.words.get(at)?, *self.words.get(at + 1)?, self.words.get(at + 2)? & mask);
            match self.name(name)? {
                [] => self.find(of, member).map(|inner| bits + inner),
                name if name == member => Some(bits),
                _ => None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct task { int pid; union { int a; struct { int b; int c:4; }; }; };` of a length of 16,
    /// and `void exit(..)`.
    fn sample() -> Vec<u8> {
        let names = b"\0task\0pid\0a\0b\0c\0exit\0int\0";
        let at = |name: &str| {
            let name = [b"\0".as_slice(), name.as_bytes(), b"\0"].concat();
            names.windows(name.len()).position(|window| window == name).map_or(0, |at| at as u32 + 1)
        };
        let info = |kind: u32, parts: u32, bit_fields: bool| kind << 24 | parts | u32::from(bit_fields) << 31;
        let types: Vec<u32> = [
            vec![at("int"), info(1, 0, false), 4, 32],
            vec![0, info(STRUCT, 2, true), 8, at("b"), 1, 0, at("c"), 1, 4 << 24 | 32],
            vec![0, info(UNION, 2, false), 8, at("a"), 1, 0, 0, 2, 0],
            vec![at("task"), info(STRUCT, 2, false), 16, at("pid"), 1, 0, 0, 3, 64],
            vec![0, info(13, 1, false), 0, 0, 1],
            vec![at("exit"), info(FUNC, 0, false), 5],
        ]
        .concat();
        let header = [u32::from(MAGIC) | 1 << 16, 24, 0, types.len() as u32 * 4, types.len() as u32 * 4];
        let words = header.into_iter().chain([names.len() as u32]).chain(types);
        words.flat_map(u32::to_le_bytes).chain(*names).collect()
    }

    #[test]
    fn members_are_found_through_members_without_a_name() {
        let types = Types::read(&sample()).expect("well formed");
        assert_eq!(types.size("task"), Some(16));
        let offsets = ["pid", "a", "b", "c"].map(|member| types.offset("task", member));
        assert_eq!(offsets, [Some(0), Some(8), Some(8), Some(12)]);
        assert_eq!(types.offset("task", "d"), None);
        assert_eq!(types.offset("exit", "pid"), None, "no structure");
        assert_eq!((types.function("exit"), types.function("task")), (Some(6), None));
    }

    #[test]
    fn a_damaged_description_is_refused() {
        let whole = sample();
        for length in 0..whole.len() {
            assert!(Types::read(&whole[..length]).is_none(), "{length} bytes of it");
        }
        let mut unknown = whole;
        unknown[24 + 7] = 31;
        assert!(Types::read(&unknown).is_none(), "an unknown kind");
    }
}
