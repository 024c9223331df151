//! `hooks.toml`: which hooks there are, what they are called for, and how.

use crate::body;
use crate::letter_file;
use crate::program::missing_program;
use obol_config::{At, FileError, PlacedProblem, Problem, Problems, Section, index_of, shortened};
use obol_node::user;
use obol_observe::incidents::event::{Event, Kind, Severity, State};
use serde_json::Map;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The schema of such files.
const SCHEMA: u32 = 1;
/// Hooks of a file.
const HOOKS_MAX: usize = 64;
/// Where dead letters lie, below the user's state.
const DEAD_LETTERS: &str = "obol/hooks/dead-letters.jsonl";

type MakeBody = fn() -> Body;

/// The bodies that have a name.
const BODIES: [(&str, MakeBody); 3] =
    [("event", || Body::Event), ("slack", || Body::Slack), ("grafana", || Body::Grafana)];

/// A file of hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The hooks. Their names differ.
    pub hooks: Vec<Hook>,
    /// Where deliveries are kept that were given up.
    pub dead_letters: PathBuf,
    /// The certificates of authorities that may sign those of receivers; `None` for the host's.
    pub ca_file: Option<PathBuf>,
    /// What it was read from.
    text: String,
    places: Places,
}

/// Where keys that name something of this host are, in bytes of the file.
type Places = BTreeMap<&'static str, usize>;

fn places(section: &Section<'_, '_>, keys: &[&'static str]) -> Places {
    keys.iter().filter(|key| section.has(key)).map(|key| (*key, section.place(key))).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    pub name: String,
    /// What it is called for.
    pub on: Vec<Kind>,
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
    places: Places,
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
        let text = obol_config::text(path, "file of hooks")?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads and checks a text; `origin` names its source in errors.
    pub fn parse(text: &str, origin: &str) -> Result<Self, FileError> {
        obol_config::read(text, origin, |top, problems| file(text, top, problems))
    }

    /// What cannot work on this host though the file is valid: files that cannot be read or written,
    /// programs that are not there or cannot be run. Each is where the file names it.
    pub fn problems(&self) -> Vec<PlacedProblem> {
        let mut problems = Vec::new();
        // A default is not in the file, so it is at its begin.
        let mut add = |places: &Places, key: &str, why: Option<String>| {
            let at = places.get(key).copied().unwrap_or(0);
            problems.extend(why.map(|why| PlacedProblem::at(&self.text, at, Problem::Other(why))));
        };
        let unread = |name: &str, what: &str, key: &str, path: &Path| {
            let error = fs::read(path).err()?;
            Some(format!(
                "{name}: {what} {}: {error}; make the file, readable by the user of `obol hooks run`, or correct {key}",
                path.display()
            ))
        };
        let ca_file = self.ca_file.as_ref();
        add(
            &self.places,
            "ca_file",
            ca_file.and_then(|path| unread("ca_file", "certificates in", "ca_file", path)),
        );
        let unwritable = letter_file::unwritable(&self.dead_letters);
        let unwritable = unwritable.map(|why| {
            format!("{why}; give this user the right to write there, or set dead_letters to another file")
        });
        add(&self.places, "dead_letters", unwritable);
        for Hook { name, action, places, .. } in &self.hooks {
            match action {
                Action::Webhook { secret_file, bearer_file, .. } => {
                    for (key, what, path) in [
                        ("secret_file", "the secret in", secret_file),
                        ("bearer_file", "the token in", bearer_file),
                    ] {
                        let Some(path) = path else { continue };
                        add(places, key, unread(name, what, &format!("hook.{key}"), path));
                        add(places, key, exposed(name, what, path));
                    }
                }
                Action::Exec(words) => {
                    let missing = words.first().and_then(|program| missing_program(program));
                    add(
                        places,
                        "exec",
                        missing.map(|why| format!("{name}: {why}; correct hook.exec, or install it")),
                    );
                }
            }
        }
        problems
    }
}

fn file(text: &str, top: &mut Section<'_, '_>, problems: &mut Problems) -> Option<Config> {
    top.schema(SCHEMA, problems);
    let mut path = |top: &mut Section<'_, '_>, key: &str| {
        let At { at, value } = top.string(key, problems)?;
        let path = PathBuf::from(value);
        if !path.is_absolute() {
            problems.other(at, format!("{key} must be an absolute path"));
        }
        Some(path)
    };
    let ca_file = path(top, "ca_file");
    let mut dead_letters = path(top, "dead_letters");
    if !top.has("dead_letters") {
        dead_letters = user::state_home().map(|home| home.join(DEAD_LETTERS));
        if dead_letters.is_none() {
            problems.other(0, "dead_letters must be set where neither XDG_STATE_HOME nor HOME is");
        }
    }
    let tables = top.tables("hook", problems);
    let tables = top.need("hook", "one table for each hook, [[hook]]", tables).unwrap_or_default();
    if tables.len() > HOOKS_MAX {
        let at = top.value("hook").map_or(0, |value| value.span().start);
        problems.other(at, format!("{} hooks, but a file can have {HOOKS_MAX}", tables.len()));
    }
    let mut names = BTreeSet::new();
    let mut hooks = Vec::new();
    for section in tables {
        let at = section.at;
        let Some(hook) = section.read(problems, hook) else { continue };
        if !names.insert(hook.name.clone()) {
            problems.other(at, format!("{:?} is the name of two hooks", shortened(&hook.name)));
        }
        hooks.push(hook);
    }
    let places = places(top, &["ca_file", "dead_letters"]);
    Some(Config { hooks, dead_letters: dead_letters?, ca_file, text: text.to_owned(), places })
}

fn hook(section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<Hook> {
    let name = section.string("name", problems).map(|at| at.value);
    let name = section.need("name", "a text in quotes", name);
    let on = section.some_list(
        "on",
        "a list of events, such as [\"alert\", \"failover\"]",
        problems,
        |path, word| {
            let names = Kind::ALL.map(Kind::name);
            index_of(path, word, &names).map(|at| Kind::ALL[at])
        },
    );
    let on = section.need("on", "a list of events, such as [\"alert\", \"failover\"]", on);
    let on = on.map(|on| on.into_iter().map(|at| at.value).collect());
    let action = action(section, problems);
    let before = problems.count();
    let mut span = |section: &mut Section<'_, '_>, key: &str, default: u64, most: u64| {
        let bounds = (Duration::from_millis(1), Duration::from_secs(most));
        section.span(key, bounds, problems).map_or(Duration::from_secs(default), |at| at.value)
    };
    let backoff = span(section, "backoff", 1, 3600);
    let backoff_max = span(section, "backoff_max", 300, 86_400);
    let timeout = span(section, "timeout", 10, 600);
    let attempts = section.number("attempts", (1, 100), problems).map_or(8, |at| at.value);
    let rate = section.number("rate", (1, 10_000), problems).map_or(60, |at| at.value);
    let is_misspelt = section.is_misspelt("backoff") || section.is_misspelt("backoff_max");
    if backoff_max < backoff && problems.count() == before && !is_misspelt {
        problems.other(section.at, "hook.backoff_max must not be shorter than hook.backoff");
    }
    let places = places(section, &["exec", "secret_file", "bearer_file"]);
    let (name, on, action) = (name?, on?, action?);
    Some(Hook { name, on, action, timeout, attempts, backoff, backoff_max, rate, places })
}

fn action(section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<Action> {
    let exec =
        section.some_list("exec", "a list of texts, [\"..\", \"..\"]", problems, |path, word| match word {
            "" => Err(Problem::Other(format!("{path} has an empty text"))),
            word => Ok(word.to_owned()),
        });
    let url = section.string("url", problems);
    match (section.has("exec"), section.has("url")) {
        (true, false) => {
            for key in ["secret_file", "bearer_file", "body", "template", "allow_http"] {
                if let Some(value) = section.value(key) {
                    problems.other(value.span().start, format!("hook.{key} is for hooks with a url"));
                }
            }
            Some(Action::Exec(exec?.into_iter().map(|at| at.value).collect()))
        }
        (false, true) => webhook(section, url, problems),
        _ => {
            section.accept(["secret_file", "bearer_file", "body", "template", "allow_http"]);
            section.accept(["backoff", "backoff_max", "timeout", "attempts", "rate"]);
            let misspelt = section.is_misspelt("exec") || section.is_misspelt("url");
            if misspelt {
                return None;
            }
            problems.other(section.at, "a hook needs either exec, a program with its arguments, or url");
            None
        }
    }
}

fn webhook(
    section: &mut Section<'_, '_>,
    url: Option<At<String>>,
    problems: &mut Problems,
) -> Option<Action> {
    let allow_http = section.flag("allow_http", problems);
    let secret_file = section.string("secret_file", problems).map(|at| at.value.into());
    let bearer_file = section.string("bearer_file", problems).map(|at| at.value.into());
    let body = body(section, problems);
    let At { at, value: url } = url?;
    if url.starts_with("http://") {
        if allow_http != Some(true) {
            problems.other(at, "hook.url is not encrypted: use https, or say allow_http = true");
        }
    } else if !url.starts_with("https://") {
        problems.other(at, format!("hook.url is {:?}, but must begin with https://", shortened(&url)));
    }
    Some(Action::Webhook { url, secret_file, bearer_file, body: body? })
}

fn body(section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<Body> {
    if section.has("template") {
        if let Some(body) = section.value("body") {
            problems.other(body.span().start, "hook.body and hook.template exclude each other");
        }
        let At { at, value } = section.string("template", problems)?;
        if let Err(why) = body::check(&value, &sample()) {
            problems.other(at, format!("hook.template: {why}"));
        }
        return Some(Body::Template(value));
    }
    section.accept(["template"]);
    if !section.has("body") {
        section.accept(["body"]);
        return Some(Body::Event);
    }
    section.choice("body", &BODIES, problems).map(|body| (body.value)())
}

/// An event for trying templates.
fn sample() -> Event {
    Event {
        id: "0-0".to_owned(),
        kind: Kind::Test,
        unix: 0,
        cluster: "default".to_owned(),
        identity: "0000000000000000".to_owned(),
        host: String::new(),
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

    /// What does not work on this host, each with line and column.
    fn listed(config: &Config) -> Vec<String> {
        let one =
            |PlacedProblem { line, column, problem }: PlacedProblem| format!("{line}:{column} {problem}");
        config.problems().into_iter().map(one).collect()
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
    fn one_mistake_is_one_problem_and_what_follows_from_it_is_not_reported() {
        let good = "[[hook]]\nname = \"a\"\non = [\"view\"]\nurl = \"https://x\"\nbody = \"slack\"\nbackoff = \"2s\"\n\
                    backoff_max = \"3s\"\n[[hook]]\nname = \"b\"\non = [\"view\"]\nexec = [\"sh\"]\n";
        parse(good).expect("valid");
        for (right, wrong) in [
            ("url = ", "urls = "),
            ("url = \"https://x\"", "url = 5"),
            ("exec = ", "exce = "),
            ("exec = [\"sh\"]", "exec = 5"),
            ("backoff = \"2s\"", "backoff = \"500s 2ms\""),
            ("backoff_max = \"3s\"", "backoff_max = 3"),
            ("backoff = \"2s\"", "backof = \"500s\""),
            ("[[hook]]\nname = \"a\"", "[[hook]]\nnames = \"a\""),
        ] {
            assert!(good.contains(right), "{right}");
            let told = parse(&good.replacen(right, wrong, 1)).expect_err("refused");
            assert_eq!(told.lines().count(), 1, "{wrong}:\n{told}");
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
            let problems = listed(&config);
            assert_eq!(problems.len(), faults, "{problems:?}");
            let is_told = |problem: &String| problem.starts_with("7:1 ") && problem.contains("mode 644");
            assert!(problems.iter().all(is_told), "{problems:?}");
        }
    }

    #[test]
    fn what_is_missing_on_this_host_is_listed() {
        let config = parse(
            "[[hook]]\nname = \"a\"\non = [\"view\"]\nurl = \"https://x\"\nsecret_file = \"/nowhere/secret\"\n",
        );
        let problems = listed(&config.expect("valid"));
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        for words in ["7:1 ", "/nowhere/secret", "or correct hook.secret_file"] {
            assert!(problem.contains(words), "{words:?} is not in {problem}");
        }
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
            let problems = listed(&parse(&hook).expect("valid"));
            assert_eq!(problems.len(), usize::from(says.is_some()), "{program}: {problems:?}");
            let is_told = |it: &String| it.starts_with("6:1 ") && says.is_some_and(|says| it.contains(says));
            assert!(problems.iter().all(is_told), "{problems:?}");
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
            listed(&Config::parse(&text, "hooks.toml").expect("valid"))
        };
        assert_eq!(below(&folder.path().join("new/dead.jsonl")), [""; 0], "its folder is made");
        assert_eq!(below(&file), [""; 0]);
        for wrong in [folder.path(), &file.join("dead.jsonl")] {
            let problems = below(wrong);
            assert!(
                matches!(&problems[..], [one] if one.starts_with("2:1 ") && one.contains("dead letters")),
                "{wrong:?}: {problems:?}"
            );
        }
    }
}
