//! What restarts the processes of a host, as the file of hosts names it. Drills end only processes
//! that something restarts.

use obol_config::{nearest, shortened};
use obol_fabric::Name;
use obol_membership::Kind;
use serde::{Deserialize, Serialize};

/// The first words of the key's values.
const WORDS: [&str; 3] = ["none", "systemd", "command"];
/// Lets drills start units.
const START: &str = "start";

/// What restarts the processes of a host when they have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum HostSupervisor {
    /// Nothing, or nothing that is known.
    #[default]
    None,
    /// systemd, by the units of `packaging/systemd`.
    Systemd {
        /// Whether a drill may start the units that it has ended, instead of waiting for the restart.
        start: bool,
    },
    /// A command of the operator's, which a drill runs on the host to start a process.
    Command(Vec<String>),
}

impl HostSupervisor {
    /// Reads the value of `supervisor` in the file of hosts.
    pub fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["none"] => Ok(Self::None),
            ["systemd"] => Ok(Self::Systemd { start: false }),
            ["systemd", START] => Ok(Self::Systemd { start: true }),
            ["systemd", other, ..] => {
                Err(format!("systemd is followed by {START} or nothing, not by {:?}", shortened(other)))
            }
            ["command", program, ..] if program.starts_with('/') => {
                Ok(Self::Command(words[1..].iter().map(|word| (*word).to_owned()).collect()))
            }
            ["command", ..] => Err(
                "command is followed by the path of a program, which begins with a slash, and its arguments"
                    .to_owned(),
            ),
            _ => {
                let first = words.first().copied().unwrap_or_default();
                let meant =
                    nearest(first, WORDS).map_or(String::new(), |word| format!("; did you mean {word}?"));
                Err(format!(
                    "{:?} is not a supervisor: known are none, systemd, systemd start, and command PROGRAM ARGUMENTS{meant}",
                    shortened(text)
                ))
            }
        }
    }

    /// Whether processes of the host come back after they have ended.
    pub fn restarts(&self) -> bool {
        *self != Self::None
    }

    /// How an operator starts a process of the host.
    pub fn by_hand(&self, kind: Kind, name: Name) -> String {
        match self {
            Self::Systemd { .. } => format!("`systemctl start {}`", unit(kind, name)),
            Self::None | Self::Command(_) => format!("start {name}"),
        }
    }

    /// The command by which a drill may start a process; `None` if it has to wait for the supervisor.
    pub fn start_command(&self, kind: Kind, name: Name) -> Option<Vec<String>> {
        match self {
            Self::None | Self::Systemd { start: false } => None,
            Self::Systemd { start: true } => Some(vec!["systemctl".into(), START.into(), unit(kind, name)]),
            Self::Command(words) => {
                Some(words.iter().cloned().chain([kind.name().to_owned(), name.to_string()]).collect())
            }
        }
    }
}

/// The unit of a process, see `packaging/systemd`; that of a program has its name.
fn unit(kind: Kind, name: Name) -> String {
    match kind {
        Kind::Coordinator => format!("obol-coordinator@{}", name.as_str().trim_start_matches("coord-")),
        Kind::Agent => format!("obol-agent@{name}"),
        Kind::LeaseCache => format!("obol-cache@{name}"),
        Kind::App => format!("{name}.service"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_is_one_of_the_known_and_others_are_refused_with_the_nearest() {
        let command =
            |words: &[&str]| HostSupervisor::Command(words.iter().map(|w| (*w).to_owned()).collect());
        for (text, wanted) in [
            ("none", HostSupervisor::None),
            ("systemd", HostSupervisor::Systemd { start: false }),
            ("systemd  start", HostSupervisor::Systemd { start: true }),
            ("command /bin/start -v", command(&["/bin/start", "-v"])),
        ] {
            assert_eq!(HostSupervisor::parse(text), Ok(wanted), "{text}");
        }
        for (text, word) in [
            ("sytemd", "did you mean systemd?"),
            ("systemd stop", "\"stop\""),
            ("command start", "begins with a slash"),
            ("command", "begins with a slash"),
            ("", "known are"),
        ] {
            let refused = HostSupervisor::parse(text).expect_err(text);
            assert!(refused.contains(word), "{text}: {refused}");
        }
    }

    #[test]
    fn a_drill_starts_processes_only_where_the_file_says_so() {
        let of = |text: &str, kind, name: &str| {
            let supervisor = HostSupervisor::parse(text).expect("known");
            supervisor.start_command(kind, Name::new(name).expect("a name")).map(|words| words.join(" "))
        };
        assert_eq!(of("none", Kind::Agent, "node-1"), None);
        assert_eq!(of("systemd", Kind::Agent, "node-1"), None);
        for (kind, name, unit) in [
            (Kind::Coordinator, "coord-3", "obol-coordinator@3"),
            (Kind::Agent, "node-1", "obol-agent@node-1"),
            (Kind::LeaseCache, "cache-1", "obol-cache@cache-1"),
            (Kind::App, "web", "web.service"),
        ] {
            assert_eq!(of("systemd start", kind, name), Some(format!("systemctl start {unit}")));
        }
        assert_eq!(of("command /bin/s -v", Kind::App, "web").as_deref(), Some("/bin/s -v app web"));
    }
}
