//! `hooks.toml`: which hooks there are, what they are called for, and how.

use crate::body;
use crate::dead;
use crate::program::missing_program;
use obol_fabric::Nanos;
use obol_node::user;
use obol_observe::incidents::event::{Event, Kind, Severity, State};
use obol_profiles::document::{self, Faults, nearest, shortened};
use obol_profiles::{Fault, FileError};
use serde_json::Map;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The schema of such files.
const SCHEMA: u32 = 1;
/// Hooks of a file.
const HOOKS_MAX: usize = 64;
/// Where dead letters lie, below the user's state.
const DEAD_LETTERS: &str = "obol/hooks/dead-letters.jsonl";

const KEYS: [&str; 4] = ["schema", "dead_letters", "ca_file", "hook"];
const HOOK_KEYS: [&str; 14] = [
    "name",
    "on",
    "exec",
    "url",
    "secret_file",
    "bearer_file",
    "body",
    "template",
    "timeout",
    "attempts",
    "backoff",
    "backoff_max",
    "rate",
    "allow_http",
];
const BODIES: [&str; 3] = ["event", "slack", "grafana"];

/// A file of hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The hooks. Their names differ.
    pub hooks: Vec<Hook>,
    /// Where deliveries are kept that were given up.
    pub dead_letters: PathBuf,
    /// The certificates of authorities that may sign those of receivers; `None` for the host's.
    pub ca_file: Option<PathBuf>,
}

/// One hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its name.
    pub name: String,
    /// What it is called for.
    pub on: Vec<Kind>,
    /// How.
    pub action: Action,
    /// How long an attempt may take.
    pub timeout: Duration,
    /// Attempts, the first one included.
    pub attempts: u32,
    /// The pause before the second attempt; each further one is twice as long.
    pub backoff: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// Deliveries in a minute. Further events are counted and not delivered.
    pub rate: u32,
}

/// How a hook is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A program with its arguments. It gets the event as JSON on standard input.
    Exec(Vec<String>),
    /// A POST.
    Webhook {
        /// Where.
        url: String,
        /// The file with the key of the signature.
        secret_file: Option<PathBuf>,
        /// The file with the token of the header Authorization.
        bearer_file: Option<PathBuf>,
        /// What is sent.
        body: Body,
    },
}

/// The body of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The event.
    Event,
    /// As Slack takes it.
    Slack,
    /// As Grafana takes an annotation.
    Grafana,
    /// A template with placeholders.
    Template(String),
}

/// Why a file with a secret is none: its mode lets all users read it. A group may have it.
fn exposed(name: &str, what: &str, path: &Path) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let path = path.display();
    (mode & 0o007 != 0)
        .then(|| format!("{name}: {what} {path} is open to all users (mode {mode:o}): chmod o= {path}"))
}

impl Config {
    /// Reads and checks a file. All faults are reported, not only the first.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let text = document::text(path, "file of hooks")
            .map_err(|reason| FileError::Unreadable { path: path.display().to_string(), reason })?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads and checks a text; `origin` names its source in errors.
    pub fn parse(text: &str, origin: &str) -> Result<Self, FileError> {
        let mut reader = Reader { text, faults: Faults::default() };
        let config = reader.file();
        reader.faults.judge(config, text, origin)
    }

    /// What cannot work on this host though the file is valid: files that cannot be read or written,
    /// programs that are not there or cannot be run.
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = dead::unwritable(&self.dead_letters).into_iter().collect();
        let unread = |name: &str, what: &str, path: &Path| {
            let error = fs::read(path).err()?;
            Some(format!("{name}: {what} {}: {error}", path.display()))
        };
        problems.extend(self.ca_file.iter().filter_map(|path| unread("ca_file", "certificates in", path)));
        for hook in &self.hooks {
            match &hook.action {
                Action::Webhook { secret_file, bearer_file, .. } => {
                    for (what, path) in [("the secret in", secret_file), ("the token in", bearer_file)] {
                        let Some(path) = path else { continue };
                        problems.extend(unread(&hook.name, what, path));
                        problems.extend(exposed(&hook.name, what, path));
                    }
                }
                Action::Exec(words) => {
                    let missing = words.first().and_then(|program| missing_program(program));
                    problems.extend(missing.map(|why| format!("{}: {why}", hook.name)));
                }
            }
        }
        problems
    }
}

type Table<'a> = DeTable<'a>;
type Value<'a> = Spanned<DeValue<'a>>;

struct Reader<'t> {
    text: &'t str,
    faults: Faults,
}

impl Reader<'_> {
    fn fault(&mut self, at: usize, fault: impl Into<String>) {
        self.faults.add(at, Fault::Other(fault.into()));
    }

    fn unknown(&mut self, table: &Table<'_>, prefix: &str, known: &[&'static str]) {
        for name in table.keys().filter(|name| !known.contains(&name.get_ref().as_ref())) {
            let near = nearest(name.get_ref(), known.iter().copied());
            let nearest = near.map(|near| format!("{prefix}{near}").into());
            let key = format!("{prefix}{}", document::bare(name.get_ref()));
            self.faults.add(name.span().start, Fault::UnknownKey { key, nearest });
        }
    }

    fn wrong_type(&mut self, key: &str, value: &Value<'_>, wanted: &str) {
        let (key, found) = (key.to_owned().into(), document::found(value.get_ref()));
        self.faults.add(value.span().start, Fault::WrongType { key, found, wanted: wanted.to_owned() });
    }

    fn text(&mut self, value: &Value<'_>, key: &str) -> Option<String> {
        let text = value.get_ref().as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        if text.is_none() {
            self.wrong_type(key, value, "a text in quotes");
        }
        text
    }

    fn optional(&mut self, table: &Table<'_>, key: &str) -> Option<String> {
        let value = table.get(key)?;
        self.text(value, &format!("hook.{key}"))
    }

    fn texts(&mut self, value: &Value<'_>, key: &str) -> Option<Vec<(usize, String)>> {
        let all = value.get_ref().as_array().filter(|all| !all.is_empty());
        let Some(all) = all else {
            self.wrong_type(key, value, "a list of texts, [\"..\", \"..\"]");
            return None;
        };
        all.iter().map(|one| Some((one.span().start, self.text(one, key)?))).collect()
    }

    fn span(&mut self, table: &Table<'_>, key: &str, default: Duration, most: Nanos) -> Duration {
        let Some(value) = table.get(key) else { return default };
        let name = format!("hook.{key}");
        match document::span(&name, value.get_ref(), (Nanos::from_millis(1), most)) {
            Some(Ok(span)) => return span.to_std(),
            Some(Err(fault)) => self.faults.add(value.span().start, fault),
            None => self.wrong_type(&name, value, "a duration such as \"5s\""),
        }
        default
    }

    fn number(&mut self, table: &Table<'_>, key: &str, default: u32, bounds: (u32, u32)) -> u32 {
        let Some(value) = table.get(key) else { return default };
        let name = format!("hook.{key}");
        match document::number(&name, value.get_ref(), bounds) {
            Some(Ok(number)) => return number,
            Some(Err(fault)) => self.faults.add(value.span().start, fault),
            None => self.wrong_type(&name, value, "a whole number"),
        }
        default
    }

    fn file(&mut self) -> Option<Config> {
        let (document, syntax) = DeTable::parse_recoverable(self.text);
        if !syntax.is_empty() {
            self.faults.with_syntax(self.text, &syntax);
            return None;
        }
        let table = document.get_ref();
        match table.get("schema") {
            None => {
                self.faults.add(0, Fault::MissingKey { key: "schema".into(), wanted: SCHEMA.to_string() });
            }
            Some(schema) => {
                let found = schema.get_ref().as_integer().map(|n| n.as_str().to_owned());
                if found.as_deref() != Some(&SCHEMA.to_string()) {
                    // Other apparent errors may be valid in that schema.
                    let found = found.unwrap_or_else(|| document::found(schema.get_ref()));
                    self.faults.add(schema.span().start, Fault::Schema { found, known: SCHEMA });
                    return None;
                }
            }
        }
        self.unknown(table, "", &KEYS);
        let path = |reader: &mut Self, key: &str| {
            let value = table.get(key)?;
            let path = PathBuf::from(reader.text(value, key)?);
            if !path.is_absolute() {
                reader.fault(value.span().start, format!("{key} must be an absolute path"));
            }
            Some(path)
        };
        let ca_file = path(self, "ca_file");
        let dead_letters = match table.get("dead_letters") {
            Some(_) => path(self, "dead_letters"),
            None => user::state_home().map(|home| home.join(DEAD_LETTERS)).or_else(|| {
                self.fault(0, "dead_letters must be set where neither XDG_STATE_HOME nor HOME is");
                None
            }),
        };
        let hooks = match table.get("hook") {
            None => {
                self.fault(0, "there is no hook; add a table [[hook]]");
                Vec::new()
            }
            Some(value) => self.hooks(value),
        };
        Some(Config { hooks, dead_letters: dead_letters?, ca_file })
    }

    fn hooks(&mut self, value: &Value<'_>) -> Vec<Hook> {
        let Some(array) = value.get_ref().as_array().filter(|array| !array.is_empty()) else {
            self.fault(value.span().start, "hook must be one table for each hook, [[hook]]");
            return Vec::new();
        };
        if array.len() > HOOKS_MAX {
            self.fault(value.span().start, format!("{} hooks, but a file can have {HOOKS_MAX}", array.len()));
        }
        let mut names = BTreeSet::new();
        let mut hooks = Vec::new();
        for entry in array.iter() {
            let at = entry.span().start;
            let Some(table) = entry.get_ref().as_table() else {
                self.fault(at, "a hook must be a table, [[hook]]");
                continue;
            };
            self.unknown(table, "hook.", &HOOK_KEYS);
            let Some(hook) = self.hook(table, at) else { continue };
            if !names.insert(hook.name.clone()) {
                self.fault(at, format!("{:?} is the name of two hooks", shortened(&hook.name)));
            }
            hooks.push(hook);
        }
        hooks
    }

    fn hook(&mut self, table: &Table<'_>, at: usize) -> Option<Hook> {
        let missing = |key: &'static str, wanted: &str| Fault::MissingKey {
            key: key.into(),
            wanted: wanted.to_owned(),
        };
        let name = self.optional(table, "name");
        if table.get("name").is_none() {
            self.faults.add(at, missing("hook.name", "a text in quotes"));
        }
        let on = match table.get("on") {
            None => {
                self.faults
                    .add(at, missing("hook.on", "a list of events, such as [\"alert\", \"failover\"]"));
                None
            }
            Some(value) => self.kinds(value),
        };
        let action = self.action(table, at);
        let backoff = self.span(table, "backoff", Duration::from_secs(1), Nanos::from_secs(3600));
        let backoff_max = self.span(table, "backoff_max", Duration::from_secs(300), Nanos::from_secs(86_400));
        let timeout = self.span(table, "timeout", Duration::from_secs(10), Nanos::from_secs(600));
        let attempts = self.number(table, "attempts", 8, (1, 100));
        let rate = self.number(table, "rate", 60, (1, 10_000));
        if backoff_max < backoff {
            self.fault(at, "hook.backoff_max must not be shorter than hook.backoff");
        }
        Some(Hook { name: name?, on: on?, action: action?, timeout, attempts, backoff, backoff_max, rate })
    }

    fn kinds(&mut self, value: &Value<'_>) -> Option<Vec<Kind>> {
        let words = self.texts(value, "hook.on")?;
        let names = || Kind::ALL.into_iter().map(Kind::name);
        let mut kinds = Vec::new();
        for (at, word) in words {
            match Kind::ALL.into_iter().find(|kind| kind.name() == word) {
                Some(kind) => kinds.push(kind),
                None => {
                    let nearest = nearest(&word, names()).map(Into::into);
                    let options = names().map(Into::into).collect();
                    let found = shortened(&word);
                    self.faults.add(at, Fault::Choice { key: "hook.on".into(), found, options, nearest });
                }
            }
        }
        Some(kinds)
    }

    fn action(&mut self, table: &Table<'_>, at: usize) -> Option<Action> {
        match (table.get("exec"), table.get("url")) {
            (Some(exec), None) => {
                for key in ["secret_file", "bearer_file", "body", "template", "allow_http"] {
                    if let Some(value) = table.get(key) {
                        self.fault(value.span().start, format!("hook.{key} is for hooks with a url"));
                    }
                }
                let words = self.texts(exec, "hook.exec")?;
                Some(Action::Exec(words.into_iter().map(|(_, word)| word).collect()))
            }
            (None, Some(url)) => self.webhook(table, url),
            _ => {
                self.fault(at, "a hook needs either exec, a program with its arguments, or url");
                None
            }
        }
    }

    fn webhook(&mut self, table: &Table<'_>, value: &Value<'_>) -> Option<Action> {
        let url = self.text(value, "hook.url")?;
        let allow_http = table.get("allow_http").and_then(|flag| flag.get_ref().as_bool());
        if let Some(flag) = table.get("allow_http").filter(|_| allow_http.is_none()) {
            self.wrong_type("hook.allow_http", flag, "true or false");
        }
        let at = value.span().start;
        if url.starts_with("http://") {
            if allow_http != Some(true) {
                self.fault(at, "hook.url is not encrypted: use https, or say allow_http = true");
            }
        } else if !url.starts_with("https://") {
            self.fault(at, format!("hook.url is {:?}, but must begin with https://", shortened(&url)));
        }
        let secret_file = self.optional(table, "secret_file").map(PathBuf::from);
        let bearer_file = self.optional(table, "bearer_file").map(PathBuf::from);
        let body = self.body(table)?;
        Some(Action::Webhook { url, secret_file, bearer_file, body })
    }

    fn body(&mut self, table: &Table<'_>) -> Option<Body> {
        if let Some(value) = table.get("template") {
            if let Some(body) = table.get("body") {
                self.fault(body.span().start, "hook.body and hook.template exclude each other");
            }
            let template = self.text(value, "hook.template")?;
            if let Err(why) = body::check(&template, &sample()) {
                self.fault(value.span().start, format!("hook.template: {why}"));
            }
            return Some(Body::Template(template));
        }
        let Some(value) = table.get("body") else { return Some(Body::Event) };
        match self.text(value, "hook.body")?.as_str() {
            "event" => Some(Body::Event),
            "slack" => Some(Body::Slack),
            "grafana" => Some(Body::Grafana),
            other => {
                let options = BODIES.map(Into::into).to_vec();
                let nearest = nearest(other, BODIES).map(Into::into);
                let found = shortened(other);
                self.faults.add(
                    value.span().start,
                    Fault::Choice { key: "hook.body".into(), found, options, nearest },
                );
                None
            }
        }
    }
}

/// An event for trying templates.
fn sample() -> Event {
    Event {
        id: "0-0".to_owned(),
        kind: Kind::Test,
        unix: 0,
        cluster: "default".to_owned(),
        identity: "0000000000000000".to_owned(),
        severity: Severity::Info,
        state: State::Event,
        subject: String::new(),
        title: "a \"test\"".to_owned(),
        details: Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "schema = 1\ndead_letters = \"/tmp/obol-dead-letters.jsonl\"\n";

    fn parse(hooks: &str) -> Result<Config, String> {
        Config::parse(&format!("{HEAD}{hooks}"), "hooks.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn a_hook_has_defaults() {
        let config = parse("[[hook]]\nname = \"page\"\non = [\"alert\"]\nexec = [\"/bin/page\", \"-x\"]\n")
            .expect("valid");
        let [hook] = &config.hooks[..] else { panic!("{config:?}") };
        assert_eq!(hook.action, Action::Exec(vec!["/bin/page".to_owned(), "-x".to_owned()]));
        assert_eq!((hook.attempts, hook.rate, hook.backoff), (8, 60, Duration::from_secs(1)));
        assert_eq!(hook.on, [Kind::Alert]);
    }

    #[test]
    fn every_fault_has_its_place_and_a_remedy() {
        let told = parse(
            "[[hook]]\nname = \"a\"\non = [\"alerts\"]\nurl = \"http://x\"\nbody = \"slak\"\nretires = 3\n\
             [[hook]]\nname = \"a\"\non = [\"view\"]\n\
             [[hook]]\nname = \"b\"\non = [\"view\"]\nurl = \"https://x\"\ntemplate = \"{{titel}}\"\ntimeout = \"5\"\n",
        )
        .expect_err("refused");
        for words in [
            "hooks.toml:5:7: hook.on is \"alerts\"",
            "did you mean alert?",
            "hooks.toml:6:7: hook.url is not encrypted",
            "hooks.toml:7:8: hook.body is \"slak\"",
            "did you mean slack?",
            "hooks.toml:8:1: unknown key hook.retires",
            "a hook needs either exec",
            "did you mean {{title}}?",
            "hook.timeout: \"5\" has no unit",
        ] {
            assert!(told.contains(words), "{words:?} is not in:\n{told}");
        }
    }

    #[test]
    fn names_are_unique_and_a_file_has_hooks() {
        let hook = "[[hook]]\nname = \"a\"\non = [\"view\"]\nexec = [\"x\"]\n";
        assert!(parse(&hook.repeat(2)).expect_err("refused").contains("two hooks"));
        assert!(parse("").expect_err("refused").contains("[[hook]]"));
        assert!(Config::parse("schema = 2\n", "h").expect_err("refused").to_string().contains("schema is 2"));
        assert!(Config::parse("schema = \n", "h").expect_err("refused").to_string().contains("syntax"));
    }

    #[test]
    fn a_secret_that_all_users_can_read_is_listed() {
        let secret = tempfile::NamedTempFile::new().expect("made");
        let path = secret.path().display();
        let hook = format!(
            "[[hook]]\nname = \"a\"\non = [\"view\"]\nurl = \"https://x\"\nsecret_file = \"{path}\"\n"
        );
        let config = parse(&hook).expect("valid");
        for (mode, faults) in [(0o600, 0), (0o640, 0), (0o644, 1)] {
            fs::set_permissions(secret.path(), fs::Permissions::from_mode(mode)).expect("changed");
            let problems = config.problems();
            assert_eq!(problems.len(), faults, "{problems:?}");
            assert!(problems.iter().all(|problem| problem.contains("mode 644")), "{problems:?}");
        }
    }

    #[test]
    fn what_is_missing_on_this_host_is_listed() {
        let config = parse(
            "[[hook]]\nname = \"a\"\non = [\"view\"]\nurl = \"https://x\"\nsecret_file = \"/nowhere/secret\"\n",
        );
        let problems = config.expect("valid").problems();
        assert!(problems.len() == 1 && problems[0].contains("/nowhere/secret"), "{problems:?}");
    }

    #[test]
    fn a_program_that_cannot_be_run_is_listed() {
        let text = tempfile::NamedTempFile::new().expect("made");
        let path = text.path().display().to_string();
        for (program, says) in [
            (path.as_str(), Some("may not be run")),
            ("/", Some("is a folder")),
            ("/nowhere/page", Some("/nowhere/page")),
            ("no-such-pager", Some("not in PATH")),
            ("sh", None),
            ("/bin/sh", None),
        ] {
            let hook = format!("[[hook]]\nname = \"a\"\non = [\"view\"]\nexec = [\"{program}\"]\n");
            let problems = parse(&hook).expect("valid").problems();
            assert_eq!(problems.len(), usize::from(says.is_some()), "{program}: {problems:?}");
            assert!(problems.iter().all(|it| says.is_some_and(|says| it.contains(says))), "{problems:?}");
        }
    }

    #[test]
    fn dead_letters_that_cannot_be_written_are_listed() {
        let folder = tempfile::tempdir().expect("made");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("written");
        let below = |path: &Path| {
            let text = format!(
                "schema = 1\ndead_letters = {path:?}\n[[hook]]\nname = \"a\"\non = [\"view\"]\nexec = [\"sh\"]\n"
            );
            Config::parse(&text, "hooks.toml").expect("valid").problems()
        };
        assert_eq!(below(&folder.path().join("new/dead.jsonl")), [""; 0], "its folder is made");
        assert_eq!(below(&file), [""; 0]);
        for wrong in [folder.path(), &file.join("dead.jsonl")] {
            let problems = below(wrong);
            assert!(
                matches!(&problems[..], [one] if one.contains("dead letters")),
                "{wrong:?}: {problems:?}"
            );
        }
    }
}
