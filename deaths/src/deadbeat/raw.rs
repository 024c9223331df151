//! `kernel/deadbeat.h` in Rust.
#![allow(unsafe_code)]

use nix::libc::Ioctl;
use nix::{request_code_read, request_code_readwrite, request_code_write};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
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
pub(super) const GET_ABI: Ioctl = request_code_read!(GROUP, 0x40, size_of::<u32>());
pub(super) const CONFIGURE: Ioctl = request_code_write!(GROUP, 0x41, size_of::<RawConfiguration>());
pub(super) const REGISTER: Ioctl = request_code_readwrite!(GROUP, 0x42, size_of::<RawRegistration>());
pub(super) const UNREGISTER: Ioctl = request_code_write!(GROUP, 0x43, size_of::<u32>());

nix::ioctl_read_bad!(ioctl_get_abi, GET_ABI, u32);
nix::ioctl_write_ptr_bad!(ioctl_configure, CONFIGURE, RawConfiguration);
nix::ioctl_readwrite_bad!(ioctl_register, REGISTER, RawRegistration);
nix::ioctl_write_ptr_bad!(ioctl_unregister, UNREGISTER, u32);

pub(super) fn get_abi(file: &File) -> io::Result<u32> {
    let mut abi = 0;
    // SAFETY: the call writes a `__u32`.
    unsafe { ioctl_get_abi(file.as_raw_fd(), &raw mut abi) }?;
    Ok(abi)
}

pub(super) fn configure(file: &File, configuration: &RawConfiguration) -> io::Result<()> {
    // SAFETY: the call reads a `struct deadbeat_configuration`; a test compares the layouts.
    unsafe { ioctl_configure(file.as_raw_fd(), configuration) }?;
    Ok(())
}

/// Returns the registration's number.
pub(super) fn register(file: &File, mut registration: RawRegistration) -> io::Result<u32> {
    // SAFETY: the call reads and writes a `struct deadbeat_registration`, which is made of
    // integers.
    unsafe { ioctl_register(file.as_raw_fd(), &raw mut registration) }?;
    Ok(registration.id)
}

pub(super) fn unregister(file: &File, id: u32) -> io::Result<()> {
    // SAFETY: the call reads a `__u32`.
    unsafe { ioctl_unregister(file.as_raw_fd(), &raw const id) }?;
    Ok(())
}
