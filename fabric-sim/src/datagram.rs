//! A datagram in transit, and the bytes that it shares with its copies.

/// Bytes that several datagrams may share.
#[derive(Debug, Default)]
pub(super) struct Payload {
    pub(super) bytes: Vec<u8>,
    pub(super) refs: u32,
}

/// A datagram in transit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Message {
    pub(super) source: u32,
    /// The sender's generation.
    pub(super) life: u32,
    /// When it leaves the sender, unless the sender dies before.
    pub(super) departs: u64,
    pub(super) target: u32,
    /// The intended receiver; 0 for any.
    pub(super) generation: u32,
    pub(super) payload: u32,
}
