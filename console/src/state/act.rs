//! What an operator does to one process from the console: kill it, let it leave, start it again. As
//! drills, only where the console was started with `--arm`; each is asked about once more, and done
//! by the command of the same name.

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Kill,
    Stop,
    Start,
}

impl Verb {
    /// The command that does it.
    pub(crate) const fn command(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Start => "start",
        }
    }

    /// What it means, for the question.
    pub(crate) const fn means(self) -> &'static str {
        match self {
            Self::Kill => "Kill {} at once (SIGKILL)",
            Self::Stop => "Stop {} gracefully, so that it leaves",
            Self::Start => "Start {} again",
        }
    }
}
