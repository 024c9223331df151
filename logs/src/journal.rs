//! The journal of systemd: its native protocol, one datagram an entry, so that view, incarnation and
//! name are fields that `journalctl` can match; and what `journalctl -o json` prints.
//!
//! The crate `tracing-journald` sends in the calling thread, which waits when the journal is busy.
//! Here the log's own thread sends.

use crate::levels::Severity;
use crate::line::Line;
use obol_fabric::Name;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::env;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Where the journal listens.
pub const SOCKET: &str = "/run/systemd/journal/socket";
/// What all fields of obol begin with, followed by their name in capitals.
const PREFIX: &str = "OBOL_";

/// Whether standard error leads to the journal: systemd says which device and inode it is.
pub fn is_stderr() -> bool {
    let told = env::var("JOURNAL_STREAM").unwrap_or_default();
    let own = std::fs::metadata("/proc/self/fd/2").map(|meta| format!("{}:{}", meta.dev(), meta.ino()));
    own.is_ok_and(|own| own == told)
}

/// Sends lines to the journal.
#[derive(Debug)]
pub(crate) struct Journal {
    socket: UnixDatagram,
    /// Fields of all lines: the cluster and its identity.
    common: Vec<(&'static str, String)>,
}

impl Journal {
    pub(crate) fn open(at: &Path, cluster: Name, identity: String) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(at)?;
        Ok(Self { socket, common: vec![("CLUSTER", cluster.to_string()), ("IDENTITY", identity)] })
    }

    pub(crate) fn line(&self, line: &Line) -> io::Result<()> {
        self.socket.send(&encode(line, &self.common)).map(drop)
    }
}

/// A line in the native protocol.
fn encode(line: &Line, common: &[(&'static str, String)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let mut put = |name: &str, value: &str| {
        out.extend_from_slice(name.as_bytes());
        if value.contains('\n') {
            out.push(b'\n');
            out.extend_from_slice(&(value.len() as u64).to_le_bytes());
        } else {
            out.push(b'=');
        }
        out.extend_from_slice(value.as_bytes());
        out.push(b'\n');
    };
    let Line { unix, severity, process, module, text, fields } = line;
    put("MESSAGE", text);
    put("PRIORITY", &severity.priority().to_string());
    put("SYSLOG_IDENTIFIER", "obol");
    for (name, value) in common {
        put(&format!("{PREFIX}{name}"), value);
    }
    put("OBOL_PROCESS", process.as_str());
    put("OBOL_MODULE", module);
    // An event is written some time after it happened.
    put("OBOL_TIME_NS", &unix.to_string());
    for (name, value) in fields {
        put(&format!("{PREFIX}{}", field_name(name)), value);
    }
    out
}

/// The journal takes capitals, digits and underscores.
fn field_name(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    name.chars().map(letter).collect()
}

/// A line of `journalctl -o json`; `None` if obol did not write it.
pub(crate) fn parse(json: &str) -> Option<Line> {
    let Value::Object(entry) = serde_json::from_str(json).ok()? else { return None };
    let process = Name::new(&text(&entry, "OBOL_PROCESS")?).ok()?;
    let received = || text(&entry, "__REALTIME_TIMESTAMP")?.parse::<u64>().ok()?.checked_mul(1000);
    let unix = text(&entry, "OBOL_TIME_NS").and_then(|time| time.parse().ok()).or_else(received)?;
    let priority = text(&entry, "PRIORITY").and_then(|priority| priority.parse().ok());
    let own = ["PROCESS", "MODULE", "TIME_NS", "CLUSTER", "IDENTITY"];
    let mut fields: Vec<(Cow<'static, str>, String)> = entry
        .keys()
        .filter_map(|key| Some((key, key.strip_prefix(PREFIX)?)))
        .filter(|(_, name)| !own.contains(name))
        .filter_map(|(key, name)| Some((Cow::Owned(name.to_ascii_lowercase()), text(&entry, key)?)))
        .collect();
    fields.sort();
    Some(Line {
        unix,
        severity: Severity::of_priority(priority.unwrap_or(6)),
        process,
        module: Cow::Owned(text(&entry, "OBOL_MODULE").unwrap_or_default()),
        text: text(&entry, "MESSAGE").unwrap_or_default(),
        fields,
    })
}

/// A field's text. One that is not UTF-8, or has control characters, comes as an array of bytes; one
/// that was sent several times as an array of its values.
fn text(entry: &Map<String, Value>, name: &str) -> Option<String> {
    fn of(value: &Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Array(all) if all.iter().all(Value::is_number) => {
                let bytes = all.iter().map(|byte| byte.as_u64().and_then(|byte| u8::try_from(byte).ok()));
                Some(String::from_utf8_lossy(&bytes.collect::<Option<Vec<u8>>>()?).into_owned())
            }
            Value::Array(all) => of(all.first()?),
            _ => None,
        }
    }
    of(entry.get(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::tests::line;

    #[test]
    fn an_entry_has_the_fields_of_its_line() {
        let folder = tempfile::tempdir().expect("made");
        let at = folder.path().join("socket");
        let journal_end = UnixDatagram::bind(&at).expect("bound");
        let cluster = Name::new("default").expect("a name");
        let journal = Journal::open(&at, cluster, "00ff".to_owned()).expect("connected");
        journal.line(&line("excluded").with("view", 8).with("two-lines", "a\nb")).expect("sent");
        let mut bytes = [0; 4096];
        let length = journal_end.recv(&mut bytes).expect("received");
        let head = "MESSAGE=excluded\nPRIORITY=4\nSYSLOG_IDENTIFIER=obol\nOBOL_CLUSTER=default\nOBOL_IDENTITY=00ff\n\
            OBOL_PROCESS=node-2\nOBOL_MODULE=membership\nOBOL_TIME_NS=1795572847120394811\nOBOL_VIEW=8\nOBOL_TWO_LINES\n";
        let wanted = [head.as_bytes(), &3u64.to_le_bytes(), b"a\nb\n"].concat();
        assert_eq!(String::from_utf8_lossy(&bytes[..length]), String::from_utf8_lossy(&wanted));
    }

    #[test]
    fn entries_of_a_real_journal_are_read() {
        let printed = include_str!("../testdata/journal.json");
        let lines: Vec<Line> = printed.lines().filter_map(parse).collect();
        assert!(lines.len() < printed.lines().count(), "lines of other programs are left out");
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["excluded: node-2 (7), by view 8", "two\nlines", "control \u{1b}[2J"]);
        let first = &lines[0];
        assert_eq!(
            (first.unix, first.severity, first.process.as_str()),
            (1_795_572_847_120_394_811, Severity::Warn, "node-2")
        );
        assert_eq!((first.field("view"), first.field("incarnation")), (Some("8"), Some("7")));
        assert_eq!(first.module, "membership");
        assert_eq!(first.fields.len(), 2, "what every line has is not a field: {:?}", first.fields);
    }
}
