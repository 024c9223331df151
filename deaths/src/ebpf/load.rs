//! Loads the programs into the kernel, pins them in a bpf file system of their own, and unloads
//! them.

use super::btf::Types;
use super::elf::{self, Program};
use super::{DEATH_BYTES, DIRECTORY, Deaths, EbpfError, PROCESS_BYTES, Pin, SLOTS, sys};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use strum::VariantArray;

const OBJECT: &[u8] = include_bytes!("../../../kernel/bpf/deaths.bpf.o");
/// The type description of the running kernel.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";
/// The source register value that marks a 64-bit load of a map descriptor.
const MAP_BY_FD: u8 = 1 << 4;
/// The same for a load of a function's address.
const FUNCTION: u8 = 4 << 4;
/// The symbol of [`NOTHING`].
const FUNCTION_NOTHING: &str = "function_nothing";
/// A function that returns 1: `r0 = 1; exit`.
const NOTHING: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 1, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
/// The call of `bpf_user_ringbuf_drain`.
const DRAIN: [u8; 8] = [0x85, 0, 0, 0, 209, 0, 0, 0];
/// `r0 = 0`.
const NO_CALL: [u8; 8] = [0xb7, 0, 0, 0, 0, 0, 0, 0];
/// Only the group may use them.
const FILE_MODE: u32 = 0o640;
/// The kernel maps an array only for users with write permission; freezing it prevents writes.
const DEATHS_MODE: u32 = 0o660;
const DIRECTORY_MODE: u32 = 0o750;
/// The length of the map that wakes, which holds nothing: whole pages of any machine.
const WAKES_BYTES: u32 = 64 << 10;

/// The loaded programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Whether proofs precede the release of the dead process's memory; otherwise they follow it.
    pub early: bool,
    /// Whether sleeping processes are woken; otherwise only the robust futex wakes them.
    pub wakes: bool,
}

type Maps = HashMap<&'static str, OwnedFd>;

/// Loads the programs. They stay until [`unload`], or until the host reboots. Members of the group
/// may use them; without one only root. Needs root, or `CAP_BPF`, `CAP_PERFMON`, `CAP_SYS_ADMIN`
/// and `CAP_CHOWN`.
pub fn load(group: Option<u32>) -> Result<Loaded, EbpfError> {
    if Path::new(DIRECTORY).join(Pin::Register.into_str()).exists() {
        return Err(EbpfError::Loaded);
    }
    let types =
        fs::read(KERNEL_TYPES).map_err(|error| EbpfError::NoTypes { path: KERNEL_TYPES.into(), error })?;
    let types = Types::read(&types).ok_or_else(|| EbpfError::NoTypes {
        path: KERNEL_TYPES.into(),
        error: io::Error::new(io::ErrorKind::InvalidData, "its format is not known"),
    })?;
    let mut maps = make_maps()?;
    let placed = place_all(&types, &maps);
    let mut pins = match placed {
        // A kernel that has the map, but does not allow its use there.
        Err(EbpfError::Program { .. }) if maps.remove(Pin::Wakes.into_str()).is_some() => {
            place_all(&types, &maps)?
        }
        placed => placed?,
    };
    let early = pins.iter().any(|(pin, _)| *pin == Pin::TaskstatsExit);
    let shown = [Pin::Deaths, Pin::Wakes].into_iter();
    pins.extend(shown.filter_map(|pin| maps.remove(pin.into_str()).map(|map| (pin, map))));
    let wakes = pins.iter().any(|(pin, _)| *pin == Pin::Wakes);
    // The one that processes open first is pinned last.
    pins.sort_by_key(|(pin, _)| *pin == Pin::Register);
    show(&pins, group).inspect_err(|_| {
        // A partial installation reports no deaths; report the first error.
        let _ = unload();
    })?;
    Ok(Loaded { early, wakes })
}

/// Unloads the programs. `false` if there were none. Registered processes notice within a second.
pub fn unload() -> Result<bool, EbpfError> {
    let directory = Path::new(DIRECTORY);
    if !directory.exists() {
        return Ok(false);
    }
    let mut any = false;
    for pin in Pin::VARIANTS {
        match fs::remove_file(directory.join(pin.into_str())) {
            Ok(()) => any = true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(EbpfError::Kernel { doing: "take an eBPF program away", error }),
        }
    }
    sys::unmount(c_path(directory)?.as_c_str())
        .map_err(|error| EbpfError::Kernel { doing: "unmount the bpf file system", error })?;
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(EbpfError::Kernel { doing: "remove the folder of the bpf file system", error })
        }
        _ => Ok(any),
    }
}

fn make_maps() -> Result<Maps, EbpfError> {
    let kernel = |error: io::Error| match error.raw_os_error() {
        Some(libc::EPERM) => EbpfError::Denied { what: "load eBPF programs".into(), error },
        _ => EbpfError::Kernel { doing: "make an eBPF map", error },
    };
    let make = |name, kind, bytes, flags| sys::create_map(name, kind, bytes, SLOTS, flags).map_err(kernel);
    let deaths = make("deaths", sys::MAP_ARRAY, DEATH_BYTES, sys::MAPPABLE)?;
    sys::freeze(deaths.as_fd()).map_err(kernel)?;
    let mut maps = HashMap::from([
        ("processes", make("processes", sys::MAP_HASH, PROCESS_BYTES, 0)?),
        ("owners", make("owners", sys::MAP_ARRAY, 4, 0)?),
        ("deaths", deaths),
    ]);
    match sys::create_map("wakes", sys::MAP_USER_RINGBUF, 0, WAKES_BYTES, 0) {
        Ok(wakes) => {
            // Nobody may fill it.
            sys::freeze(wakes.as_fd()).map_err(kernel)?;
            maps.insert(Pin::Wakes.into_str(), wakes);
        }
        // Before Linux 6.1.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
        Err(error) => return Err(kernel(error)),
    }
    Ok(maps)
}

/// Loads and attaches all programs.
fn place_all(types: &Types, maps: &Maps) -> Result<Vec<(Pin, OwnedFd)>, EbpfError> {
    let mut pins = Vec::new();
    for program in elf::programs(OBJECT).ok_or(EbpfError::Object)? {
        let optional = program.section.starts_with("fentry/");
        match place(program, types, maps) {
            Ok(pin) => pins.push(pin),
            // The tracepoint reports the same, but later.
            Err(EbpfError::Program { .. }) if optional => {}
            Err(error) => return Err(error),
        }
    }
    Ok(pins)
}

/// Loads and attaches a program; pinning keeps it attached.
fn place(mut program: Program<'_>, types: &Types, maps: &Maps) -> Result<(Pin, OwnedFd), EbpfError> {
    let function = fill_in(&mut program, types, maps)?;
    let (kind, target) = program.section.split_once('/').ok_or(EbpfError::Object)?;
    let failed = |(error, verifier): (io::Error, String)| EbpfError::Program {
        name: program.section.to_owned(),
        error,
        verifier,
    };
    let pin = target.parse::<Pin>().map_err(|_| EbpfError::Object)?;
    let load =
        |kind, attach, flags| sys::load(target, kind, attach, flags, &program.code, function).map_err(failed);
    match kind {
        "syscall" => load(sys::SYSCALL, sys::Attach::default(), sys::SLEEPABLE).map(|fd| (pin, fd)),
        "fentry" => {
            let function = types.function(target).ok_or_else(|| {
                let error = io::Error::new(io::ErrorKind::NotFound, "this kernel has no such function");
                failed((error, String::new()))
            })?;
            let fd = load(sys::TRACING, sys::Attach { as_type: sys::FENTRY, to: function }, 0)?;
            let link = sys::attach(fd.as_fd(), None).map_err(|error| failed((error, String::new())))?;
            Ok((pin, link))
        }
        "raw_tp" => {
            let fd = load(sys::RAW_TRACEPOINT, sys::Attach::default(), 0)?;
            let name = CString::new(target).map_err(|_| EbpfError::Object)?;
            let link =
                sys::attach(fd.as_fd(), Some(&name)).map_err(|error| failed((error, String::new())))?;
            Ok((pin, link))
        }
        _ => Err(EbpfError::Object),
    }
}

/// Resolves each symbol: `map_NAME` to a map, `STRUCT__MEMBER` to an offset, `STRUCT__sizeof` to a
/// size, [`FUNCTION_NOTHING`] to a function that is appended, whose first instruction is returned.
/// Without the map `wakes`, what uses it is removed.
fn fill_in(program: &mut Program<'_>, types: &Types, maps: &Maps) -> Result<Option<usize>, EbpfError> {
    let wakes = maps.get(Pin::Wakes.into_str());
    let end = program.code.len();
    let mut function = None;
    for (at, symbol) in &program.symbols {
        let (value, kind) = match (*symbol, symbol.strip_prefix("map_"), symbol.split_once("__")) {
            ("map_wakes" | FUNCTION_NOTHING, ..) if wakes.is_none() => (Some(0), 0),
            (FUNCTION_NOTHING, ..) => {
                function = Some(end);
                // From the instruction behind this one, which counts as two.
                (Some((end - at - 1) as u32), FUNCTION)
            }
            (_, Some(map), _) => (maps.get(map).map(|fd| fd.as_raw_fd() as u32), MAP_BY_FD),
            (_, None, Some((structure, "sizeof"))) => (types.size(structure), 0),
            (_, None, Some((structure, member))) => (types.offset(structure, member), 0),
            _ => return Err(EbpfError::Object),
        };
        let value = value.ok_or_else(|| EbpfError::NoField { symbol: symbol.replace("__", ".") })?;
        let instruction = program.code.get_mut(*at).ok_or(EbpfError::Object)?;
        instruction[1] |= kind;
        instruction[4..].copy_from_slice(&value.to_le_bytes());
    }
    if wakes.is_none() {
        program.code.iter_mut().filter(|code| **code == DRAIN).for_each(|code| *code = NO_CALL);
    }
    if function.is_some() {
        program.code.extend(NOTHING);
    }
    Ok(function)
}

/// Mounts the file system and pins everything in it, with its permissions.
fn show(pins: &[(Pin, OwnedFd)], group: Option<u32>) -> Result<(), EbpfError> {
    let directory = Path::new(DIRECTORY);
    let kernel = |doing| move |error| EbpfError::Kernel { doing, error };
    match fs::create_dir(directory) {
        // Left by a killed load; anything mounted there is covered.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.map_err(kernel("make the folder of the bpf file system"))?,
    }
    sys::mount_bpf(c_path(directory)?.as_c_str()).map_err(kernel("mount a bpf file system"))?;
    let give = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
        chown(path, None, group)
    };
    give(directory, DIRECTORY_MODE).map_err(kernel("set the rights of the bpf file system"))?;
    for (pin, object) in pins {
        let path = directory.join(pin.into_str());
        sys::pin(object.as_fd(), c_path(&path)?.as_c_str()).map_err(kernel("pin an eBPF program"))?;
        let mode = if *pin == Pin::Deaths { DEATHS_MODE } else { FILE_MODE };
        give(&path, mode).map_err(kernel("set the rights of an eBPF program"))?;
    }
    // Tries what other users will do, so that a kernel that does not permit it fails now.
    Deaths::open().map(drop)
}

pub(super) fn c_path(path: &Path) -> Result<CString, EbpfError> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| EbpfError::Object)
}

/// The object, as shipped and as relocated for the running kernel.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_the_programs_and_asks_for_nothing_unknown() {
        let programs = elf::programs(OBJECT).expect("it is read");
        let mut sections: Vec<&str> = programs.iter().map(|program| program.section).collect();
        sections.sort_unstable();
        assert_eq!(
            sections,
            [
                "fentry/taskstats_exit",
                "raw_tp/sched_process_exit",
                "raw_tp/signal_generate",
                "syscall/register"
            ]
        );
        for program in &programs {
            assert!(!program.symbols.is_empty(), "{} has maps", program.section);
            for (at, symbol) in &program.symbols {
                assert_eq!(program.code[*at][0], 0x18, "{symbol} goes into a load of 64 bits");
                assert!(
                    symbol.starts_with("map_") || symbol.contains("__") || *symbol == FUNCTION_NOTHING,
                    "{symbol}"
                );
            }
        }
    }

    #[test]
    fn the_object_is_read_wherever_it_lies() {
        let programs = elf::programs(OBJECT).expect("it is read");
        for shift in 1..8 {
            let moved = [&vec![0; shift], OBJECT].concat();
            assert_eq!(elf::programs(&moved[shift..]).as_ref(), Some(&programs));
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert_eq!(elf::programs(b"\x7fELF"), None);
        for length in (0..OBJECT.len()).step_by(97) {
            assert_eq!(elf::programs(&OBJECT[..length]), None, "{length} bytes of it");
        }
    }

    #[test]
    fn what_wakes_is_left_out_where_the_kernel_has_no_such_map() {
        let programs = elf::programs(OBJECT).expect("it is read");
        let used =
            |symbol| programs.iter().filter(|p| p.symbols.iter().any(|(_, name)| *name == symbol)).count();
        assert_eq!([used("map_wakes"), used(FUNCTION_NOTHING)], [1, 1]);
        let calls = programs.iter().flat_map(|program| &program.code).filter(|code| **code == DRAIN);
        assert_eq!(calls.count(), 1);

        let types = fs::read(KERNEL_TYPES).ok().and_then(|types| Types::read(&types));
        let (types, mut maps) = match (types, make_maps()) {
            (Some(types), Ok(maps)) => (types, maps),
            (_, maps) => return obol_checks::skipped("ebpf-here", format!("{:?}", maps.err())),
        };
        maps.remove(Pin::Wakes.into_str());
        place_all(&types, &maps).expect("the kernel accepts the rest");
    }
}
