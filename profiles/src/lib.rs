//! Every constant of a deployment, read from TOML and checked.
//!
//! A [`Profile`] is built in (`laptop`, `dedicated`) or a file. It is read strictly: unknown keys,
//! missing keys, durations without a unit and values out of bounds are rejected, all at once, with
//! line, column and the nearest known name:
//!
//! ```text
//! profiles/mine.toml:12:1: unknown key lease.durration; did you mean lease.duration?
//! profiles/mine.toml:14:12: lease.drift_ppm is 20000, but must lie in 1..=10000
//! ```
//!
//! One table (`keys.rs`) defines a profile's contents; reading, bounds, the written form
//! ([`Profile::to_toml`]) and the reference ([`Profile::reference`]) are derived from it. This
//! crate only reads and checks profiles; the daemons apply them.

mod check;
mod keys;
mod kind;
mod load;
mod profile;
mod read;
pub mod testbed;
mod write;

pub use kind::SCHEMA;
pub use load::BUILTIN;
pub use profile::{Alert, Profile, Pulse, Rdma, Scheduling};
pub use testbed::Testbed;
pub use write::KeyMeaning;
