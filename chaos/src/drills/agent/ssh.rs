//! Reaches a fault agent on another host through the operator's own `ssh`, with their
//! configuration, agent, jump hosts and known hosts. No check is weakened, and it never prompts for
//! a password.

use super::invocation::Invocation;
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;

/// Options beside the operator's: no prompts, no unknown hosts, no shared connection; a dead
/// network is noticed within seconds.
const OPTIONS: [&str; 7] = [
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=1",
    "ServerAliveCountMax=3",
    "ControlPath=none",
    "ForwardAgent=no",
];

/// A host reached by `ssh`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ssh {
    /// As on ssh's command line: `host` or `user@host`, or an alias of the configuration.
    pub host: String,
    /// A configuration in place of the operator's.
    pub config: Option<PathBuf>,
    /// The program there; by default, this program's own path.
    pub program: Option<PathBuf>,
}

/// How the other hosts of a cluster are reached by `ssh`, at their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// A configuration in place of the operator's.
    pub config: Option<PathBuf>,
    /// The program there; by default, this program's own path.
    pub program: Option<PathBuf>,
}

impl Login {
    /// As the operator has configured ssh.
    pub const fn new() -> Self {
        Self { config: None, program: None }
    }

    /// The way to the host of this address.
    pub(crate) fn to(&self, address: IpAddr) -> Ssh {
        Ssh { host: address.to_string(), config: self.config.clone(), program: self.program.clone() }
    }
}

/// An invalid host name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a host: use a name such as node-7 or me@node-7, without blanks or a leading '-'")]
pub struct NoHost(pub String);

impl std::str::FromStr for Ssh {
    type Err = NoHost;

    fn from_str(host: &str) -> Result<Self, NoHost> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "@.-_:[]%".contains(c);
        if host.is_empty() || host.starts_with('-') || !host.chars().all(plain) {
            return Err(NoHost(host.to_owned()));
        }
        Ok(Self { host: host.to_owned(), config: None, program: None })
    }
}

/// Quotes a text for a POSIX shell, because ssh passes its command to one.
fn quoted(text: &OsStr) -> OsString {
    let mut word = OsString::from("'");
    for (n, part) in text.to_string_lossy().split('\'').enumerate() {
        if n > 0 {
            word.push("'\\''");
        }
        word.push(part);
    }
    word.push("'");
    word
}

impl Ssh {
    /// Starts a fault agent there. Faults and targets are not in the command: they follow as JSON
    /// on its standard input.
    pub(super) fn command(&self, invocation: Invocation<'_>) -> Command {
        let mut command = Command::new("ssh");
        if let Some(config) = &self.config {
            command.arg("-F").arg(config);
        }
        command.arg("-T");
        for option in OPTIONS {
            command.args(["-o", option]);
        }
        command.args(["--", &self.host]);
        let program = self.program.as_deref().unwrap_or(invocation.program);
        command.arg(quoted(program.as_os_str()));
        command.args(invocation.arguments().iter().map(|argument| quoted(argument)));
        command.arg("--stdio");
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_quoted_as_one_word() {
        for text in ["plain", "two words", "a'b", "$(reboot)", "`x`; y", "\\", ""] {
            let shown = Command::new("sh")
                .arg("-c")
                .arg({
                    let mut script = OsString::from("printf %s ");
                    script.push(quoted(OsStr::new(text)));
                    script
                })
                .output()
                .expect("sh runs");
            assert_eq!(String::from_utf8_lossy(&shown.stdout), text);
        }
    }

    #[test]
    fn an_option_is_not_a_host() {
        for bad in ["", "-oProxyCommand=x", "a b", "a;b", "$(x)", "a\nb"] {
            assert_eq!(bad.parse::<Ssh>(), Err(NoHost(bad.to_owned())));
        }
        for good in ["node-7", "me@10.0.0.1", "me@[fe80::1%eth0]"] {
            assert_eq!(good.parse::<Ssh>().map(|ssh| ssh.host), Ok(good.to_owned()));
        }
    }
}
