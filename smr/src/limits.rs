//! Limits that more than one part has.

/// Bytes of the longest command, query or reply.
pub const PAYLOAD_BYTES_MAX: usize = 1024;
