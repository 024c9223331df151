//! What the mouse did.

/// What the mouse did, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mouse {
    Click(u16, u16),
    /// Down, or up.
    Wheel(bool),
}
