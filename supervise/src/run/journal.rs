//! The messages of `run`, on standard error: standard output is the program's.

use obol_term::output;
use serde::Serialize;
use std::fmt;

/// One thing that happened.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Message {
    /// The program runs.
    Started {
        pid: u32,
    },
    Member {
        incarnation: u64,
    },
    /// It is none any more.
    Lost {
        why: String,
    },
    /// It was asked to end by this signal, and has its time to do so.
    Stopping {
        signal: i32,
    },
    /// It is killed, with all that it started.
    Killed {
        why: String,
    },
    /// It left, after nothing of it ran any more.
    Left,
    /// It has ended, with this code as in shells.
    Ended {
        code: u8,
    },
    /// It is started again after a pause.
    Restart {
        pause_ms: u64,
    },
    /// A hook has ended.
    Hook {
        hook: &'static str,
        view: Option<u64>,
        code: Option<u8>,
        error: Option<String>,
    },
    /// Something does not work.
    Trouble {
        text: String,
    },
}

impl Message {
    /// Whether people want to read it who did not ask for everything.
    const fn matters(&self) -> bool {
        match self {
            Self::Hook { code, .. } => !matches!(code, Some(0)),
            _ => true,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { pid } => write!(f, "started (pid {pid})"),
            Self::Member { incarnation } => write!(f, "a member, as incarnation {incarnation}"),
            Self::Lost { why } => write!(f, "lost its membership: {why}"),
            Self::Stopping { signal } => write!(f, "is being terminated (signal {signal})"),
            Self::Killed { why } => write!(f, "is killed: {why}"),
            Self::Left => f.write_str("left the cluster"),
            Self::Ended { code } => write!(f, "ended with exit code {code}"),
            Self::Restart { pause_ms } => write!(f, "starts again in {pause_ms} ms"),
            Self::Hook { hook, view, code, error } => {
                write!(f, "the hook {hook}")?;
                if let Some(view) = view {
                    write!(f, " for view {view}")?;
                }
                match (code, error) {
                    (Some(code), _) => write!(f, " ended with exit code {code}"),
                    (None, Some(error)) => write!(f, ": {error}"),
                    (None, None) => Ok(()),
                }
            }
            Self::Trouble { text } => f.write_str(text),
        }
    }
}

/// Writes messages.
pub(super) struct Journal {
    pub(super) name: obol_fabric::Name,
    pub(super) json: bool,
}

impl Journal {
    pub(super) fn write(&self, message: &Message) {
        match message {
            Message::Lost { .. } | Message::Killed { .. } | Message::Trouble { .. } => {
                tracing::warn!(target: "run", "{message}");
            }
            Message::Hook { code: Some(0), .. } => tracing::debug!(target: "run", "{message}"),
            Message::Hook { .. } => tracing::warn!(target: "run", "{message}"),
            _ => tracing::info!(target: "run", "{message}"),
        }
        // The program runs on without a reader of this message.
        let _ = match serde_json::to_string(message) {
            Ok(text) if self.json => output::remark(text),
            _ if message.matters() => output::remark(format_args!("obol run: {}: {message}", self.name)),
            _ => Ok(()),
        };
    }
}
