//! The used commands of bpf(2), with the numbers and layouts of `linux/bpf.h`.
#![allow(unsafe_code)]

use super::btf;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use zerocopy::{FromZeros, Immutable, IntoBytes};

pub(super) const MAP_HASH: u32 = 1;
pub(super) const MAP_ARRAY: u32 = 2;
/// `BPF_MAP_TYPE_USER_RINGBUF`.
pub(super) const MAP_USER_RINGBUF: u32 = 31;
/// `BPF_F_MMAPABLE`.
pub(super) const MAPPABLE: u32 = 1 << 10;
/// `BPF_F_RDONLY`.
pub(super) const READ_ONLY: u32 = 1 << 3;
/// No flag of that kind.
pub(super) const READ_WRITE: u32 = 0;
pub(super) const RAW_TRACEPOINT: u32 = 17;
pub(super) const TRACING: u32 = 26;
pub(super) const SYSCALL: u32 = 31;
/// `BPF_TRACE_FENTRY`.
pub(super) const FENTRY: u32 = 24;
/// `BPF_F_SLEEPABLE`.
pub(super) const SLEEPABLE: u32 = 1 << 4;
/// The buffer of the verifier's log; the verifier keeps the end of its log there.
const LOG_BYTES: usize = 64 << 10;
const NAME_BYTES: usize = 16;

const MAP_CREATE: libc::c_int = 0;
const PROG_LOAD: libc::c_int = 5;
const OBJ_PIN: libc::c_int = 6;
const OBJ_GET: libc::c_int = 7;
const PROG_RUN: libc::c_int = 10;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BTF_LOAD: libc::c_int = 18;
const MAP_FREEZE: libc::c_int = 22;

#[derive(FromZeros, IntoBytes, Immutable)]
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: [u8; NAME_BYTES],
}

#[derive(FromZeros, IntoBytes, Immutable)]
#[repr(C)]
struct ProgLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_BYTES],
    interface: u32,
    attach_type: u32,
    btf: u32,
    func_info_bytes: u32,
    func_info: u64,
    func_infos: u32,
    line_info_bytes: u32,
    line_info: u64,
    line_infos: u32,
    attach_to: u32,
}

/// `struct bpf_func_info`: the type of the function that begins with an instruction.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct FunctionInfo {
    instruction: u32,
    of_type: u32,
}

#[derive(FromZeros, IntoBytes, Immutable)]
#[repr(C)]
struct BtfLoad {
    btf: u64,
    log: u64,
    btf_bytes: u32,
    log_bytes: u32,
    log_level: u32,
    reserved: u32,
}

#[derive(FromZeros, IntoBytes, Immutable)]
#[repr(C)]
struct Object {
    path: u64,
    fd: u32,
    flags: u32,
}

#[derive(FromZeros, IntoBytes, Immutable)]
#[repr(C)]
struct Run {
    fd: u32,
    result: u32,
    data_in_bytes: u32,
    data_out_bytes: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_in_bytes: u32,
    context_out_bytes: u32,
    context_in: u64,
    context_out: u64,
}

#[derive(FromZeros, IntoBytes, Immutable)]
#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    fd: u32,
    reserved: u32,
}

#[derive(FromZeros, IntoBytes, Immutable)]
#[repr(C)]
struct MapFd {
    fd: u32,
}

/// # Safety
///
/// `attributes` is what the kernel takes for this command, and each address in it is valid for what
/// the command does.
unsafe fn bpf<A: IntoBytes + Immutable>(command: libc::c_int, attributes: &mut A) -> io::Result<i32> {
    // SAFETY: the pointer and length are those of `attributes`; the caller answers for what is in
    // it.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, core::ptr::from_mut(attributes), size_of::<A>() as libc::c_uint)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// # Safety
///
/// As [`bpf`], of a command that makes a descriptor.
unsafe fn bpf_fd<A: IntoBytes + Immutable>(command: libc::c_int, attributes: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: as the caller says; the kernel has just made the descriptor for us.
    unsafe { bpf(command, attributes).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// The kernel keeps names of at most 15 characters.
fn short(name: &str) -> [u8; NAME_BYTES] {
    let mut short = [0; NAME_BYTES];
    for (to, from) in short.iter_mut().zip(name.bytes().take(NAME_BYTES - 1)) {
        *to = from;
    }
    short
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

/// A map. Keys have four bytes, where there are values.
pub(super) fn create_map(
    name: &str,
    kind: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut wanted = MapCreate {
        kind,
        key_bytes: if value_bytes == 0 { 0 } else { 4 },
        value_bytes,
        entries,
        flags,
        inner: 0,
        numa_node: 0,
        name: short(name),
    };
    // SAFETY: no address is in it.
    unsafe { bpf_fd(MAP_CREATE, &mut wanted) }
}

/// Makes the map read-only for user space.
pub(super) fn freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no address is in it.
    unsafe { bpf(MAP_FREEZE, &mut MapFd { fd: raw(map) }) }.map(drop)
}

/// The only type of [`function_type`] that is a function.
const FUNCTION: u32 = 2;

/// Describes a static function without parameters or result. The kernel asks for the types of
/// programs of several functions, but uses none of it except that they are static.
fn function_type() -> io::Result<OwnedFd> {
    const HEADER_BYTES: u32 = 24;
    const NAMES: &[u8; 4] = b"\0of\0";
    // Each is a name, a kind and what it refers to: a prototype, and a function that has it.
    let types = [0, 13 << 24, 0, 1, 12 << 24, 1];
    let length = size_of_val(&types) as u32;
    let header = [u32::from(btf::MAGIC) | 1 << 16, HEADER_BYTES, 0, length, length, NAMES.len() as u32];
    let described: Vec<u8> =
        header.into_iter().chain(types).flat_map(u32::to_ne_bytes).chain(*NAMES).collect();
    let mut wanted = BtfLoad::new_zeroed();
    wanted.btf = described.as_ptr() as u64;
    wanted.btf_bytes = described.len() as u32;
    // SAFETY: `described` has `btf_bytes` bytes, and no log is asked for.
    unsafe { bpf_fd(BTF_LOAD, &mut wanted) }
}

/// How a program is attached; zero where its kind says it.
#[derive(Clone, Copy, Default)]
pub(super) struct Attach {
    pub(super) as_type: u32,
    /// The number of a kernel type.
    pub(super) to: u32,
}

/// Loads a program, in which another function may begin with the instruction `function`. If the
/// verifier rejects it, the text is the end of its log.
pub(super) fn load(
    name: &str,
    kind: u32,
    attach: Attach,
    flags: u32,
    code: &[[u8; 8]],
    function: Option<usize>,
) -> Result<OwnedFd, (io::Error, String)> {
    let mut log = vec![0u8; LOG_BYTES];
    let types = function.map(|_| function_type()).transpose().map_err(|error| (error, String::new()))?;
    let functions =
        [0, function.unwrap_or(0)].map(|at| FunctionInfo { instruction: at as u32, of_type: FUNCTION });
    let mut wanted = ProgLoad::new_zeroed();
    wanted.kind = kind;
    wanted.instructions = code.len() as u32;
    wanted.code = code.as_ptr() as u64;
    wanted.license = c"GPL".as_ptr() as u64;
    wanted.flags = flags;
    wanted.name = short(name);
    wanted.attach_type = attach.as_type;
    wanted.attach_to = attach.to;
    if let Some(types) = &types {
        wanted.btf = raw(types.as_fd());
        wanted.func_info_bytes = size_of::<FunctionInfo>() as u32;
        wanted.func_info = functions.as_ptr() as u64;
        wanted.func_infos = functions.len() as u32;
    }
    // SAFETY: `code` and `functions` have the given numbers of entries, and the licence ends with a zero.
    let first = unsafe { bpf_fd(PROG_LOAD, &mut wanted) };
    let Err(error) = first else { return first.map_err(|error| (error, String::new())) };
    // Again, with a log.
    wanted.log_level = 1;
    wanted.log_bytes = LOG_BYTES as u32;
    wanted.log = log.as_mut_ptr() as u64;
    // SAFETY: as above, and `log` has room for `LOG_BYTES` bytes.
    if let Ok(fd) = unsafe { bpf_fd(PROG_LOAD, &mut wanted) } {
        return Ok(fd);
    }
    let said = CStr::from_bytes_until_nul(&log).map(CStr::to_string_lossy).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    Err((error, lines[lines.len().saturating_sub(4)..].join("; ")))
}

/// Attaches a program to the raw tracepoint of this name, or to the target it was loaded for.
pub(super) fn attach(program: BorrowedFd<'_>, tracepoint: Option<&CStr>) -> io::Result<OwnedFd> {
    let name = tracepoint.map_or(0, |name| name.as_ptr() as u64);
    // SAFETY: the name, if there is one, ends with a zero.
    unsafe { bpf_fd(RAW_TRACEPOINT_OPEN, &mut RawTracepointOpen { name, fd: raw(program), reserved: 0 }) }
}

/// Pins an object in a bpf file system.
pub(super) fn pin(object: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    let mut wanted = Object { path: path.as_ptr() as u64, fd: raw(object), flags: 0 };
    // SAFETY: the path ends with a zero.
    unsafe { bpf(OBJ_PIN, &mut wanted) }.map(drop)
}

/// Opens a pinned object; needs the permissions named by the flags.
pub(super) fn get(path: &CStr, flags: u32) -> io::Result<OwnedFd> {
    let mut wanted = Object { path: path.as_ptr() as u64, fd: 0, flags };
    // SAFETY: the path ends with a zero.
    unsafe { bpf_fd(OBJ_GET, &mut wanted) }
}

/// Runs a program of the type [`SYSCALL`] in this thread and returns its result; it may change the
/// context.
pub(super) fn run<C: FromZeros + IntoBytes + zerocopy::FromBytes>(
    program: BorrowedFd<'_>,
    context: &mut C,
) -> io::Result<i32> {
    let mut wanted = Run::new_zeroed();
    wanted.fd = raw(program);
    wanted.context_in_bytes = size_of::<C>() as u32;
    wanted.context_in = core::ptr::from_mut(context) as u64;
    // SAFETY: the kernel reads the context, and writes it back; any bytes are valid for its type.
    unsafe { bpf(PROG_RUN, &mut wanted) }?;
    Ok(wanted.result as i32)
}

/// Mounts a bpf file system.
pub(super) fn mount_bpf(at: &CStr) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(mount(Some(c"bpf"), at, Some(c"bpf"), flags, None::<&CStr>)?)
}

/// Unmounts a file system, if there is one.
pub(super) fn unmount(at: &CStr) -> io::Result<()> {
    match umount2(at, MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The mappable part of a map, read-only.
pub(super) fn map(map: BorrowedFd<'_>, bytes: usize) -> io::Result<NonNull<u8>> {
    mapped(map, bytes, ProtFlags::PROT_READ, 0)
}

/// Tries to map the second page of a map for writing.
pub(super) fn map_for_writing(map: BorrowedFd<'_>) -> io::Result<()> {
    const PAGE_BYTES: usize = 4096;
    mapped(map, PAGE_BYTES, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, PAGE_BYTES as i64).map(drop)
}

fn mapped(map: BorrowedFd<'_>, bytes: usize, access: ProtFlags, from: i64) -> io::Result<NonNull<u8>> {
    let bytes = NonZeroUsize::new(bytes).ok_or(Errno::EINVAL)?;
    // SAFETY: a fresh mapping, which touches no memory of ours.
    Ok(unsafe { mmap(None, bytes, access, MapFlags::MAP_SHARED, map, from) }?.cast())
}
