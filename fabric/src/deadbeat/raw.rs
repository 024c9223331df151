//! `kernel/deadbeat.h` in Rust.
#![allow(unsafe_code)]

use super::NOTICE_BYTES_MAX;
use core::mem::size_of;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use zerocopy::FromZeros;

pub(super) const ABI: u32 = 1;
pub(super) const DEVICE_NAME_BYTES: usize = 64;
pub(super) const UDP: u32 = 1;
pub(super) const VERBS: u32 = 2;

/// The kernel's `struct deadbeat_udp`.
#[derive(Clone, Copy, FromZeros)]
#[repr(C)]
pub(super) struct RawUdp {
    pub(super) group: [u8; 16],
    pub(super) interface: u32,
    pub(super) port: u16,
    pub(super) hops: u8,
    pub(super) reserved: u8,
}

/// The kernel's `struct deadbeat_verbs`.
#[derive(Clone, Copy, FromZeros)]
#[repr(C)]
pub(super) struct RawVerbs {
    pub(super) device: [u8; DEVICE_NAME_BYTES],
    pub(super) group: [u8; 16],
    pub(super) port: u32,
    pub(super) gid_index: u32,
    pub(super) qkey: u32,
    pub(super) flow_label: u32,
    pub(super) lid: u16,
    pub(super) pkey_index: u16,
    pub(super) service_level: u8,
    pub(super) static_rate: u8,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
}

/// The kernel's `struct deadbeat_configuration`.
#[derive(Clone, Copy, FromZeros)]
#[repr(C)]
pub(super) struct RawConfiguration {
    pub(super) destinations: u32,
    pub(super) udp: RawUdp,
    pub(super) verbs: RawVerbs,
}

/// The kernel's `struct deadbeat_registration`.
#[derive(Clone, Copy, FromZeros)]
#[repr(C)]
pub(super) struct RawRegistration {
    pub(super) pid: u32,
    pub(super) id: u32,
    pub(super) dying_bytes: u16,
    pub(super) dead_bytes: u16,
    pub(super) dying: [u8; NOTICE_BYTES_MAX],
    pub(super) dead: [u8; NOTICE_BYTES_MAX],
}

const WRITE: u32 = 1;
const READ: u32 = 2;

/// The kernel's `_IOC`.
const fn call(direction: u32, number: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | 0xdb << 8 | number
}

pub(super) const GET_ABI: u32 = call(READ, 0x40, size_of::<u32>());
pub(super) const CONFIGURE: u32 = call(WRITE, 0x41, size_of::<RawConfiguration>());
pub(super) const REGISTER: u32 = call(READ | WRITE, 0x42, size_of::<RawRegistration>());
pub(super) const UNREGISTER: u32 = call(WRITE, 0x43, size_of::<u32>());

/// # Safety
///
/// `request` takes a pointer to exactly this type, and what the kernel writes is valid for it.
unsafe fn ioctl<A>(file: &File, request: u32, argument: &mut A) -> io::Result<()> {
    // SAFETY: `argument` is valid for reads and writes; the caller answers for its type.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request.into(), core::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(super) fn get_abi(file: &File) -> io::Result<u32> {
    let mut abi = 0u32;
    // SAFETY: the call writes a `__u32`.
    unsafe { ioctl(file, GET_ABI, &mut abi) }.map(|()| abi)
}

pub(super) fn configure(file: &File, mut configuration: RawConfiguration) -> io::Result<()> {
    // SAFETY: the call reads a `struct deadbeat_configuration`; a test compares the layouts.
    unsafe { ioctl(file, CONFIGURE, &mut configuration) }
}

/// Returns the registration's number.
pub(super) fn register(file: &File, mut registration: RawRegistration) -> io::Result<u32> {
    // SAFETY: the call reads and writes a `struct deadbeat_registration`, which is made of
    // integers.
    unsafe { ioctl(file, REGISTER, &mut registration) }.map(|()| registration.id)
}

pub(super) fn unregister(file: &File, mut id: u32) -> io::Result<()> {
    // SAFETY: the call reads a `__u32`.
    unsafe { ioctl(file, UNREGISTER, &mut id) }
}
