//! The terminal as all commands see it: what they print and how they fail ([`output`]), untrusted
//! text made harmless ([`plain`]), the files that they write for users ([`file`](mod@file)), and the values of their
//! options ([`options`]). It knows nothing of clusters.

pub mod file;
pub mod options;
pub mod output;
pub mod plain;
