//! Files that operators write in TOML: read strictly, with all mistakes at once.
//!
//! Unknown keys, missing keys, durations without a unit and values out of bounds are rejected
//! together, each with line, column and the nearest known name:
//!
//! ```text
//! profiles/mine.toml:12:1: unknown key lease.durration; did you mean lease.duration?
//! profiles/mine.toml:14:12: lease.drift_ppm is 20000, but must lie in 1..=10000
//! ```
//!
//! A reader takes one [`Section`] (a table) after the other and adds to [`Problems`]. This crate
//! knows no cluster, and no file's contents.

mod built_in;
pub mod duration;
pub mod file;
mod name;
mod problem;
mod problems;
mod read;
mod section;
mod value;

pub use built_in::{BuiltIn, names, text};
pub use name::{bare, nearest, shortened};
pub use problem::{FileError, PlacedProblem, Problem, Text};
pub use problems::{Problems, line};
pub use read::{read, recover};
pub use section::{At, LINE_CHARS_MAX, Section, is_line};
pub use value::{chosen, found, index_of, number, span, to_u32};
