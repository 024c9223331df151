//! What the console's threads send to the one that draws.

use crate::poll::Update;
use crate::state::chaos::DrillUpdate;
use crossterm::event::Event as Input;

/// A message to the thread that draws.
pub(crate) enum Message {
    Input(Input),
    Update(Update),
    Chaos(DrillUpdate),
    Signal(i32),
    /// A recording can not go on.
    NotRecording(String),
    /// Whoever started the console ends it.
    End,
}
