//! An operator's actions on one process: kill, stop, start. Like drills, they need `--arm`; each is
//! confirmed, and carried out by the command of the same name.

use obol_fabric::Name;

/// The action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Kill,
    Stop,
    Start,
}

impl Verb {
    pub(crate) const fn command(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Start => "start",
        }
    }

    /// What is run for it.
    pub(crate) fn line(self, who: Name, cluster: Name) -> String {
        format!("obol {} {who} --cluster {cluster}", self.command())
    }

    /// Its text in the confirmation.
    pub(crate) const fn means(self) -> &'static str {
        match self {
            Self::Kill => "Kill {} at once (SIGKILL)",
            Self::Stop => "Stop {} gracefully, so that it leaves",
            Self::Start => "Restart {}",
        }
    }
}
