//! Messages of the console's threads to the drawing thread.

use crate::contexts::Summary;
use crate::state::chaos::DrillUpdate;
use crossterm::event::Event as Input;
use obol_fabric::Name;
use obol_observe::sampling::Update;

/// A message to the drawing thread.
pub(crate) enum Message {
    Input(Input),
    /// Whether the terminal's background is light.
    Background(bool),
    Update(Update),
    Chaos(DrillUpdate),
    /// What was read of the cluster at this place of the list.
    Summary(usize, Summary),
    /// A log line of a process.
    Logged(Name, String),
    Signal(i32),
    /// A recording cannot continue.
    NotRecording(String),
    /// The owner of the console ends it.
    End,
}
