//! Reads the one object that this crate brings along (`kernel/bpf/deaths.bpf.o`): its programs, and
//! where symbols are to be filled in. ELF for a little-endian machine of 64 bits, as clang writes
//! it for the target `bpf`.

use zerocopy::FromBytes;

/// `SHT_SYMTAB`.
const SYMBOLS: u32 = 2;
/// `SHT_PROGBITS`.
const PROGRAM: u32 = 1;
/// `SHT_REL`.
const RELOCATIONS: u32 = 9;
/// `SHF_EXECINSTR`.
const EXECUTABLE: u64 = 4;
/// `R_BPF_64_64`: the value of an instruction that loads 64 bits.
const LOAD_64: u64 = 1;

#[derive(FromBytes)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    class: u8,
    order: u8,
    rest: [u8; 34],
    sections_at: u64,
    tail: [u8; 10],
    section_bytes: u16,
    sections: u16,
    names: u16,
}

#[derive(FromBytes)]
#[repr(C)]
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    at: u64,
    bytes: u64,
    link: u32,
    info: u32,
    align: u64,
    entry_bytes: u64,
}

#[derive(FromBytes)]
#[repr(C)]
struct Symbol {
    name: u32,
    kind: u8,
    other: u8,
    section: u16,
    value: u64,
    bytes: u64,
}

#[derive(FromBytes)]
#[repr(C)]
struct Relocation {
    at: u64,
    info: u64,
}

/// A program and the places of its symbols.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program<'a> {
    /// The name of its section: `KIND/TARGET`.
    pub(super) section: &'a str,
    pub(super) code: Vec<[u8; 8]>,
    /// Which instruction takes which symbol's value.
    pub(super) symbols: Vec<(usize, &'a str)>,
}

/// All programs of an object. `None` if it is none that this reads.
pub(super) fn programs(object: &[u8]) -> Option<Vec<Program<'_>>> {
    let (header, _) = Header::read_from_prefix(object).ok()?;
    if header.magic != *b"\x7fELF" || header.class != 2 || header.order != 1 {
        return None;
    }
    let section = |index: usize| -> Option<Section> {
        let at = usize::try_from(header.sections_at)
            .ok()?
            .checked_add(index.checked_mul(size_of::<Section>())?)?;
        Section::read_from_prefix(object.get(at..)?).ok().map(|(section, _)| section)
    };
    let content = |section: &Section| -> Option<&[u8]> {
        let at = usize::try_from(section.at).ok()?;
        object.get(at..at.checked_add(usize::try_from(section.bytes).ok()?)?)
    };
    let sections: Vec<Section> = (0..header.sections.into()).map(section).collect::<Option<_>>()?;
    let names = content(sections.get(usize::from(header.names))?)?;
    let table = sections.iter().find(|section| section.kind == SYMBOLS)?;
    let symbols: Vec<Symbol> = entries(content(table)?)?;
    let symbol_names = content(sections.get(table.link as usize)?)?;

    let mut programs = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        if section.kind != PROGRAM || section.flags & EXECUTABLE == 0 || section.bytes == 0 {
            continue;
        }
        let (code, rest) = content(section)?.as_chunks::<8>();
        let mut program =
            Program { section: text(names, section.name)?, code: code.to_vec(), symbols: Vec::new() };
        let of_this = |s: &&Section| s.kind == RELOCATIONS && s.info as usize == index;
        if let Some(relocations) = sections.iter().find(of_this) {
            for relocation in entries::<Relocation>(content(relocations)?)? {
                let symbol = symbols.get((relocation.info >> 32) as usize)?;
                let at = usize::try_from(relocation.at).ok()? / 8;
                if relocation.info & 0xffff_ffff != LOAD_64 || at + 1 >= code.len() {
                    return None;
                }
                program.symbols.push((at, text(symbol_names, symbol.name)?));
            }
        }
        if !rest.is_empty() {
            return None;
        }
        programs.push(program);
    }
    Some(programs)
}

/// A table of entries. Copied, because nothing says that the object is aligned.
fn entries<E: FromBytes>(table: &[u8]) -> Option<Vec<E>> {
    table.chunks(size_of::<E>()).map(|entry| E::read_from_bytes(entry).ok()).collect()
}

fn text(names: &[u8], at: u32) -> Option<&str> {
    let from = names.get(at as usize..)?;
    core::ffi::CStr::from_bytes_until_nul(from).ok()?.to_str().ok()
}
