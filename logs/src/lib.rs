//! The logs of a cluster's processes.
//!
//! A process starts its log once ([`start`]) and ends it ([`finish`]). From then on the macros of
//! `tracing` put lines into a bounded queue; one thread of low priority writes them, to files with a
//! bounded size or to the journal of systemd. The same thread reads the process's own flight
//! recorder, as any observer does, and writes the protocol's events as lines: so the machines of the
//! protocol neither format, allocate nor wait for the log. A full queue drops lines and counts them.
//!
//! [`read`] is the other end: it merges what all processes of a host have written.

mod control;
mod events;
mod follow;
mod journal;
mod levels;
mod line;
pub mod merged;
mod place;
pub mod read;
mod rotate;
mod settings;
mod shared;
mod sink;
mod subscriber;
pub mod when;
mod writer;

pub use control::{ControlError, Levelled, State, request, state, states};
pub use events::{decided, event_line, explain, severity};
pub use journal::{SOCKET as JOURNAL_SOCKET, is_stderr as is_under_journal};
pub use levels::{Change, Filter, LevelError, Levels, MODULES, Severity};
pub use line::{Format, Line};
pub use place::{Folder, KEPT_BYTES_MAX, KEPT_FOR, Place, base, retire};
pub use rotate::{FILE_BYTES_MAX, FILES_MAX};
pub use settings::{Destination, LogOwner, Settings};
pub use shared::{Probe, QUEUE_LINES};
pub use sink::switch_off;
pub use writer::{finish, is_journal, probe, start};
