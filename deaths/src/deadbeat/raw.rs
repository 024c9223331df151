//! `kernel/deadbeat.h` in Rust.
#![allow(unsafe_code)]

use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};
use std::fs::File;
use std::io;
use zerocopy::FromZeros;

/// The maximum length of a notice in bytes.
pub const NOTICE_BYTES_MAX: usize = 256;

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

/// The letter of these calls.
const GROUP: u8 = 0xdb;
pub(super) const GET_ABI: Opcode = opcode::read::<u32>(GROUP, 0x40);
pub(super) const CONFIGURE: Opcode = opcode::write::<RawConfiguration>(GROUP, 0x41);
pub(super) const REGISTER: Opcode = opcode::read_write::<RawRegistration>(GROUP, 0x42);
pub(super) const UNREGISTER: Opcode = opcode::write::<u32>(GROUP, 0x43);

pub(super) fn get_abi(file: &File) -> io::Result<u32> {
    // SAFETY: the call writes a `__u32`.
    Ok(unsafe { ioctl(file, Getter::<GET_ABI, u32>::new()) }?)
}

pub(super) fn configure(file: &File, configuration: RawConfiguration) -> io::Result<()> {
    // SAFETY: the call reads a `struct deadbeat_configuration`; a test compares the layouts.
    Ok(unsafe { ioctl(file, Setter::<CONFIGURE, _>::new(configuration)) }?)
}

/// Returns the registration's number.
pub(super) fn register(file: &File, mut registration: RawRegistration) -> io::Result<u32> {
    // SAFETY: the call reads and writes a `struct deadbeat_registration`, which is made of
    // integers.
    unsafe { ioctl(file, Updater::<REGISTER, _>::new(&mut registration)) }?;
    Ok(registration.id)
}

pub(super) fn unregister(file: &File, id: u32) -> io::Result<()> {
    // SAFETY: the call reads a `__u32`.
    Ok(unsafe { ioctl(file, Setter::<UNREGISTER, _>::new(id)) }?)
}
