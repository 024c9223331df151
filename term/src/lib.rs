//! The terminal as all commands see it: what they print and how they fail ([`output`]), untrusted
//! text made harmless ([`plain`]), and the values of their options ([`options`]). It knows nothing of
//! clusters.

pub mod options;
pub mod output;
pub mod plain;
