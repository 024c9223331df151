//! Mouse events.

/// A mouse event and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mouse {
    Click(u16, u16),
    /// Down, or up.
    Wheel(bool),
}
