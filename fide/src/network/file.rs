//! Reads a network from TOML, or all problems of the text.

use super::topology::{Class, CommonCause, Link, Network, Node};
use obol_config::{At, FileError, Problem, Problems, Section, bare, is_line, nearest, shortened};
use obol_fabric::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use toml::de::DeValue;

/// A file to begin with.
pub const EXAMPLE: &str = include_str!("../../examples/two-racks.toml");

/// The schema of files that this program reads.
const SCHEMA: u32 = 1;
const NAMES: &str = "a list of names";
/// Characters of a name.
const NAME_CHARS_MAX: usize = 200;
/// Bounds of the file's contents.
const NODES_MAX: usize = 4096;
const MEMBERS_MAX: usize = 64;
const TREES_MAX: u32 = 4;
const LONGEST: Nanos = Nanos(10_000_000_000);
/// The least percentage beside none: with less, a result is beyond all that a file can say.
const PERCENT_MIN: f64 = 1e-9;
const SHORTEST_PERIOD: Nanos = Nanos(1_000);

impl Network {
    /// Reads and checks TOML. `origin` names the source in errors.
    ///
    /// # Errors
    ///
    /// All faults of the text, with line and column.
    pub fn parse(text: &str, origin: &str) -> Result<Self, FileError> {
        obol_config::read(text, origin, |top, problems| {
            let mut reader = Reader::default();
            reader.document(top, problems);
            Some(reader.network)
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// As [`Network::parse`], and if the file cannot be read.
    pub fn load(path: &str) -> Result<Self, FileError> {
        let text = obol_config::text(path, "network")?;
        Self::parse(&text, path)
    }
}

#[derive(Default)]
struct Reader {
    network: Network,
    names: BTreeMap<String, usize>,
    /// Whether these are all names: otherwise one that is not among them may be right.
    knows_all: bool,
    connected: BTreeSet<[usize; 2]>,
}

/// A value that must be there; its default if it is not.
fn needed<T: Default>(section: &mut Section<'_, '_>, key: &str, wanted: &str, read: Option<At<T>>) -> T {
    section.need(key, wanted, read).map(|at| at.value).unwrap_or_default()
}

fn span(section: &mut Section<'_, '_>, key: &str, low: Nanos, problems: &mut Problems) -> Nanos {
    let read = section.span(key, (low, LONGEST), problems);
    needed(section, key, "a duration such as \"10us\"", read)
}

fn number(section: &mut Section<'_, '_>, key: &str, bounds: (u32, u32), problems: &mut Problems) -> u32 {
    let read = section.number(key, bounds, problems);
    needed(section, key, "a whole number", read)
}

/// A probability, written in percent.
fn percent(section: &mut Section<'_, '_>, key: &str, problems: &mut Problems) -> f64 {
    let wanted = "a number from 0 to 100 (percent)";
    let read = section.take(key, wanted, problems, |path, value| {
        let written = match value {
            DeValue::Float(number) => number.as_str(),
            _ => value.as_integer()?.as_str(),
        };
        let fits = |percent: &f64| *percent == 0.0 || (PERCENT_MIN..=100.0).contains(percent);
        let parsed = written.parse::<f64>().ok();
        let is_tiny = parsed.is_some_and(|percent| percent > 0.0 && percent < PERCENT_MIN);
        let percent = parsed.filter(fits);
        // The same zero, whichever was written.
        Some(percent.map(|percent| percent.abs() / 100.0).ok_or_else(|| Problem::Bounds {
            key: path.to_owned().into(),
            found: shortened(written),
            low: "0".to_owned(),
            high: if is_tiny { "100 (0, or 0.000000001 and more)" } else { "100" }.to_owned(),
        }))
    });
    needed(section, key, wanted, read)
}

impl Reader {
    fn document(&mut self, top: &mut Section<'_, '_>, problems: &mut Problems) {
        top.accept(["schema", "name", "description", "hosts", "switches", "plan", "class", "cause"]);
        let misspelt = top.has_unknown();
        top.schema(SCHEMA, problems);
        let name = top.line("name", problems);
        self.network.name = needed(top, "name", "a line of text", name);
        let description = top.line("description", problems);
        self.network.description = needed(top, "description", "a line of text", description);
        // Names first: all else refers to them.
        let before = problems.count();
        self.nodes(top, "hosts", true, problems);
        self.nodes(top, "switches", false, problems);
        let are_there = top.has("hosts") && top.has("switches");
        self.knows_all = are_there && !misspelt && problems.count() == before;
        if let Some(section) = top.needed_section("plan", problems) {
            section.read(problems, |section, problems| self.plan(section, problems));
        }
        if let Some(section) = top.needed_section("class", problems) {
            section.read(problems, |section, problems| self.each(section, problems, Self::class));
        }
        if let Some(section) = top.section("cause", problems) {
            section.read(problems, |section, problems| self.each(section, problems, Self::cause));
        }
    }

    fn nodes(&mut self, top: &mut Section<'_, '_>, key: &str, host: bool, problems: &mut Problems) {
        let names = top.list(key, NAMES, problems, |path, name| {
            let wrong = || Problem::WrongType {
                key: path.to_owned().into(),
                found: format!("the string {:?}", shortened(name)),
                wanted: format!("a name of 1 to {NAME_CHARS_MAX} characters"),
            };
            is_line(name, NAME_CHARS_MAX).then(|| name.to_owned()).ok_or_else(wrong)
        });
        for At { at, value: name } in top.need(key, NAMES, names).unwrap_or_default() {
            let number = self.network.nodes.len();
            if number == NODES_MAX {
                return problems.other(at, format!("more than {NODES_MAX} hosts and switches"));
            }
            if self.names.insert(name.clone(), number).is_some() {
                problems.other(at, format!("{} is named twice", bare(&name)));
            }
            self.network.nodes.push(Node { name, host });
        }
    }

    /// A node by its name; `None` if a mistake elsewhere may be why it is not known.
    fn node(&self, key: &str, name: &str) -> Result<Option<usize>, Problem> {
        let node = self.names.get(name).copied();
        if node.is_some() || !self.knows_all {
            return Ok(node);
        }
        Err({
            let meant = nearest(name, self.names.keys().map(String::as_str));
            let meant = meant.map_or(String::new(), |name| format!("; did you mean {name}?"));
            Problem::Other(format!("{key}: {} is neither in hosts nor in switches{meant}", bare(name)))
        })
    }

    fn node_list(&self, section: &mut Section<'_, '_>, key: &str, problems: &mut Problems) -> Vec<usize> {
        let list = section.list(key, NAMES, problems, |path, name| self.node(path, name));
        let mut nodes = Vec::new();
        for At { at, value: node } in section.need(key, NAMES, list).unwrap_or_default() {
            let Some(node) = node else { continue };
            if nodes.contains(&node) {
                problems.other(at, format!("{} has the same name twice", section.key(key)));
            }
            nodes.push(node);
        }
        nodes
    }

    /// Reads each table of a table whose keys are names.
    fn each(
        &mut self,
        tables: &mut Section<'_, '_>,
        problems: &mut Problems,
        read: fn(&mut Self, &str, &mut Section<'_, '_>, &mut Problems),
    ) {
        for (name, value) in tables.entries() {
            let path = tables.key(&bare(name));
            let wanted = format!("a table, [{path}]");
            if let Some(section) = Section::of(&path, value, &wanted, problems) {
                section.read(problems, |section, problems| read(self, name, section, problems));
            }
        }
    }

    fn plan(&mut self, section: &mut Section<'_, '_>, problems: &mut Problems) {
        let wanted = &mut self.network.wanted;
        wanted.period = span(section, "period", SHORTEST_PERIOD, problems);
        wanted.host_latency = span(section, "host_latency", Nanos::ZERO, problems);
        wanted.host_jitter = span(section, "host_jitter", Nanos::ZERO, problems);
        wanted.trees = number(section, "trees", (1, TREES_MAX), problems) as usize;
        wanted.frame_bytes = number(section, "frame_bytes", (64, 9216), problems);
        wanted.grouped = percent(section, "grouped_percent", problems);
        let members = self.node_list(section, "members", problems);
        let written = section.value("members");
        let at = written.map_or(section.at, |value| value.span().start);
        let count = written.and_then(|value| value.get_ref().as_array()).map(|list| list.len());
        if let Some(switch) = members.iter().find(|m| !self.network.nodes[**m].host) {
            let name = bare(&self.network.nodes[*switch].name);
            problems.other(at, format!("plan.members: {name} is a switch"));
        } else if let Some(count) = count.filter(|count| !(2..=MEMBERS_MAX).contains(count)) {
            problems.other(at, format!("plan.members has {count} hosts, but must have 2 to {MEMBERS_MAX}"));
        }
        self.network.wanted.members = members;
    }

    fn class(&mut self, name: &str, section: &mut Section<'_, '_>, problems: &mut Problems) {
        let class = Class {
            name: name.to_owned(),
            rate_mbit: number(section, "rate_mbit", (1, 10_000_000), problems),
            latency: span(section, "latency", Nanos::ZERO, problems),
            jitter: span(section, "jitter", Nanos::ZERO, problems),
            failure: percent(section, "failure_percent", problems),
        };
        self.network.classes.push(class);
        self.links(section, problems);
    }

    fn links(&mut self, section: &mut Section<'_, '_>, problems: &mut Problems) {
        const WANTED: &str = "a list of pairs of names, as in [[\"host-1\", \"switch-1\"]]";
        let class = self.network.classes.len() - 1;
        let key = section.key("links");
        let value = section.value("links");
        let Some(value) = section.need("links", WANTED, value) else { return };
        let Some(list) = value.get_ref().as_array() else {
            return problems.wrong_type(value.span().start, &key, value.get_ref(), WANTED);
        };
        for item in list {
            let at = item.span().start;
            let pair: Vec<_> = item.get_ref().as_array().into_iter().flatten().collect();
            let names: Option<Vec<&str>> = pair.iter().map(|end| end.get_ref().as_str()).collect();
            let (&[first, second], Some(&[one, other])) = (&pair[..], names.as_deref()) else {
                problems.wrong_type(at, &key, item.get_ref(), WANTED);
                continue;
            };
            let one = problems.take(first.span().start, self.node(&key, one));
            let other = problems.take(second.span().start, self.node(&key, other));
            let (Some(one), Some(other)) = (one.flatten(), other.flatten()) else { continue };
            let ends = [one, other];
            if one == other {
                problems.other(at, format!("{key}: a link from a node to itself"));
            } else if !self.connected.insert([one.min(other), one.max(other)]) {
                problems.other(at, format!("{key}: these two nodes have a link already"));
            } else {
                self.network.links.push(Link { ends, class });
            }
        }
    }

    fn cause(&mut self, name: &str, section: &mut Section<'_, '_>, problems: &mut Problems) {
        let failure = percent(section, "failure_percent", problems);
        let takes = self.node_list(section, "takes", problems);
        self.network.causes.push(CommonCause { name: name.to_owned(), failure, takes });
    }
}
