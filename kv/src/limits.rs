//! Limits that more than one part has.

/// Bytes of the longest value.
pub const VALUE_BYTES_MAX: usize = 1024;

/// PUTs that a primary executes at most before all its backups have the first of them.
pub(crate) const AHEAD_MAX: usize = 256;

/// Polls of an idle node between two rounds of other work.
pub(crate) const POLLS_PER_TICK: u32 = 32;
