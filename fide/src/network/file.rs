//! Reads a network from TOML, or all faults of the text.

use super::topology::{Class, CommonCause, Link, Network, Node};
use obol_fabric::Nanos;
use obol_profiles::document::{self, Faults, bare, found, nearest, shortened};
use obol_profiles::{Fault, FileError};
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// A file to begin with.
pub const EXAMPLE: &str = include_str!("../../examples/two-racks.toml");

/// The schema of files that this program reads.
const SCHEMA: &str = "1";
const TOP: [&str; 5] = ["schema", "name", "description", "hosts", "switches"];
const TABLES: [&str; 3] = ["plan", "class", "cause"];
const PLAN: [&str; 7] =
    ["members", "trees", "period", "frame_bytes", "host_latency", "host_jitter", "grouped_percent"];
const CLASS: [&str; 5] = ["rate_mbit", "latency", "jitter", "failure_percent", "links"];
const CAUSE: [&str; 2] = ["failure_percent", "takes"];
/// Bounds of the file's contents.
const NODES_MAX: usize = 4096;
const MEMBERS_MAX: usize = 64;
const TREES_MAX: u32 = 4;
const LONGEST: Nanos = Nanos(10_000_000_000);
/// The least percentage beside none: with less, a result is beyond all that a file can say.
const PERCENT_MIN: f64 = 1e-9;
const SHORTEST_PERIOD: Nanos = Nanos(1_000);

type Value<'i> = Spanned<DeValue<'i>>;
type Key<'i> = Spanned<DeString<'i>>;

impl Network {
    /// Reads and checks TOML. `origin` names the source in errors.
    ///
    /// # Errors
    ///
    /// All faults of the text, with line and column.
    pub fn parse(text: &str, origin: &str) -> Result<Self, FileError> {
        let (document, syntax) = DeTable::parse_recoverable(text);
        let mut reader = Reader::default();
        if syntax.is_empty() {
            reader.document(document.get_ref());
        }
        reader.faults.with_syntax(text, &syntax);
        reader.faults.judge(Some(reader.network), text, origin)
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// As [`Network::parse`], and if the file cannot be read.
    pub fn load(path: &str) -> Result<Self, FileError> {
        let text = document::text(path, "network")
            .map_err(|reason| FileError::Unreadable { path: path.to_owned(), reason })?;
        Self::parse(&text, path)
    }
}

#[derive(Default)]
struct Reader {
    network: Network,
    faults: Faults,
    names: BTreeMap<String, usize>,
    connected: BTreeSet<[usize; 2]>,
}

fn wrong(key: &str, value: &DeValue<'_>, wanted: &str) -> Fault {
    Fault::WrongType { key: key.to_owned().into(), found: found(value), wanted: wanted.to_owned() }
}

impl Reader {
    fn fault(&mut self, at: usize, fault: Fault) {
        self.faults.add(at, fault);
    }

    fn document(&mut self, document: &DeTable<'_>) {
        for (key, value) in document {
            let name = key.get_ref().as_ref();
            if TOP.contains(&name) || TABLES.contains(&name) {
                continue;
            }
            let written = bare(name);
            let fault = if value.get_ref().is_table() {
                Fault::UnknownTable { table: written, nearest: nearest(name, TABLES).map(Into::into) }
            } else {
                Fault::UnknownKey { key: written, nearest: nearest(name, TOP).map(Into::into) }
            };
            self.fault(key.span().start, fault);
        }
        self.head(document);
        // Names first: all else refers to them.
        for (key, host) in [("hosts", true), ("switches", false)] {
            match document.get(key) {
                Some(value) => self.nodes(key, value, host),
                None => self.missing(0, key, "a list of names"),
            }
        }
        match document.get("plan") {
            Some(value) => self.plan(value),
            None => self.fault(0, Fault::MissingTable("plan")),
        }
        match document.get("class") {
            Some(value) => self.each("class", value, Self::class),
            None => self.fault(0, Fault::MissingTable("class.NAME")),
        }
        if let Some(value) = document.get("cause") {
            self.each("cause", value, Self::cause);
        }
    }

    fn missing(&mut self, at: usize, key: &str, wanted: &str) {
        self.fault(at, Fault::MissingKey { key: key.to_owned().into(), wanted: wanted.to_owned() });
    }

    fn head(&mut self, document: &DeTable<'_>) {
        match document.get("schema") {
            Some(value) => match value.get_ref().as_integer() {
                Some(number) if number.as_str() == SCHEMA => {}
                Some(number) => {
                    let found = shortened(number.as_str());
                    self.fault(value.span().start, Fault::Schema { found, known: 1 });
                }
                None => self.fault(value.span().start, wrong("schema", value.get_ref(), "an integer")),
            },
            None => self.missing(0, "schema", SCHEMA),
        }
        for key in ["name", "description"] {
            let Some(value) = document.get(key) else {
                self.missing(0, key, "a line of text");
                continue;
            };
            match value.get_ref().as_str().filter(|text| is_line(text)) {
                Some(text) if key == "name" => text.clone_into(&mut self.network.name),
                Some(text) => text.clone_into(&mut self.network.description),
                None => self.fault(value.span().start, wrong(key, value.get_ref(), "a line of text")),
            }
        }
    }

    fn nodes(&mut self, key: &str, value: &Value<'_>, host: bool) {
        let Some(list) = value.get_ref().as_array() else {
            return self.fault(value.span().start, wrong(key, value.get_ref(), "a list of names"));
        };
        for item in list {
            let at = item.span().start;
            let Some(name) = item.get_ref().as_str().filter(|name| is_line(name)) else {
                self.fault(at, wrong(key, item.get_ref(), "a name"));
                continue;
            };
            if self.network.nodes.len() == NODES_MAX {
                return self.fault(at, Fault::Other(format!("more than {NODES_MAX} hosts and switches")));
            }
            let number = self.network.nodes.len();
            if self.names.insert(name.to_owned(), number).is_some() {
                self.fault(at, Fault::Other(format!("{} is named twice", bare(name))));
            }
            self.network.nodes.push(Node { name: name.to_owned(), host });
        }
    }

    /// A node by its name.
    fn node(&mut self, key: &str, value: &Value<'_>) -> Option<usize> {
        let Some(name) = value.get_ref().as_str() else {
            self.fault(value.span().start, wrong(key, value.get_ref(), "the name of a host or switch"));
            return None;
        };
        let node = self.names.get(name).copied();
        if node.is_none() {
            let meant = nearest(name, self.names.keys().map(String::as_str));
            let meant = meant.map_or(String::new(), |name| format!("; did you mean {name}?"));
            let fault = format!("{key}: {} is neither in hosts nor in switches{meant}", bare(name));
            self.fault(value.span().start, Fault::Other(fault));
        }
        node
    }

    fn node_list(&mut self, key: &str, value: &Value<'_>) -> Vec<usize> {
        let Some(list) = value.get_ref().as_array() else {
            self.fault(value.span().start, wrong(key, value.get_ref(), "a list of names"));
            return Vec::new();
        };
        let mut nodes = Vec::new();
        for item in list {
            let Some(node) = self.node(key, item) else { continue };
            if nodes.contains(&node) {
                self.fault(item.span().start, Fault::Other(format!("{key} has the same name twice")));
            }
            nodes.push(node);
        }
        nodes
    }

    /// The table behind a key, after its keys were checked; missing ones are faults.
    fn table<'d, 'i>(
        &mut self,
        path: &str,
        value: &'d Value<'i>,
        known: &[&'static str],
    ) -> Option<&'d DeTable<'i>> {
        let at = value.span().start;
        let Some(table) = value.get_ref().as_table() else {
            self.fault(at, wrong(path, value.get_ref(), &format!("a table, [{path}]")));
            return None;
        };
        let mut meant = Vec::new();
        for (key, _) in table {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let nearest = nearest(name, known.iter().copied());
                meant.extend(nearest);
                let nearest = nearest.map(|name| format!("{path}.{name}").into());
                let key_path = format!("{path}.{}", bare(name));
                self.fault(key.span().start, Fault::UnknownKey { key: key_path, nearest });
            }
        }
        for key in known.iter().filter(|key| !table.contains_key(**key) && !meant.contains(key)) {
            self.missing(at, &format!("{path}.{key}"), wanted(key));
        }
        Some(table)
    }

    fn each(&mut self, kind: &str, value: &Value<'_>, read: fn(&mut Self, &str, &Key<'_>, &Value<'_>)) {
        let Some(table) = value.get_ref().as_table() else {
            return self
                .fault(value.span().start, wrong(kind, value.get_ref(), &format!("tables, [{kind}.NAME]")));
        };
        for (name, value) in table {
            read(self, &format!("{kind}.{}", bare(name.get_ref())), name, value);
        }
    }

    fn plan(&mut self, value: &Value<'_>) {
        let Some(table) = self.table("plan", value, &PLAN) else { return };
        let half = LONGEST;
        for (key, low, at) in [
            ("period", SHORTEST_PERIOD, (|n| &mut n.wanted.period) as fn(&mut Network) -> &mut Nanos),
            ("host_latency", Nanos::ZERO, |n| &mut n.wanted.host_latency),
            ("host_jitter", Nanos::ZERO, |n| &mut n.wanted.host_jitter),
        ] {
            if let Some(span) = self.span("plan", table, key, (low, half)) {
                *at(&mut self.network) = span;
            }
        }
        if let Some(trees) = self.number("plan", table, "trees", (1, TREES_MAX)) {
            self.network.wanted.trees = trees as usize;
        }
        if let Some(bytes) = self.number("plan", table, "frame_bytes", (64, 9216)) {
            self.network.wanted.frame_bytes = bytes;
        }
        if let Some(grouped) = self.percent("plan", table, "grouped_percent") {
            self.network.wanted.grouped = grouped;
        }
        if let Some(value) = table.get("members") {
            let members = self.node_list("plan.members", value);
            if let Some(switch) = members.iter().find(|m| !self.network.nodes[**m].host) {
                let name = self.network.nodes[*switch].name.clone();
                self.fault(
                    value.span().start,
                    Fault::Other(format!("plan.members: {} is a switch", bare(&name))),
                );
            } else if !(2..=MEMBERS_MAX).contains(&members.len()) {
                let fault =
                    format!("plan.members has {} hosts, but must have 2 to {MEMBERS_MAX}", members.len());
                self.fault(value.span().start, Fault::Other(fault));
            }
            self.network.wanted.members = members;
        }
    }

    fn class(&mut self, path: &str, name: &Key<'_>, value: &Value<'_>) {
        let Some(table) = self.table(path, value, &CLASS) else { return };
        let rate = self.number(path, table, "rate_mbit", (1, 10_000_000));
        let latency = self.span(path, table, "latency", (Nanos::ZERO, LONGEST));
        let jitter = self.span(path, table, "jitter", (Nanos::ZERO, LONGEST));
        let failure = self.percent(path, table, "failure_percent");
        self.network.classes.push(Class {
            name: name.get_ref().to_string(),
            rate_mbit: rate.unwrap_or(1),
            latency: latency.unwrap_or_default(),
            jitter: jitter.unwrap_or_default(),
            failure: failure.unwrap_or(0.0),
        });
        if let Some(links) = table.get("links") {
            self.links(&format!("{path}.links"), links);
        }
    }

    fn links(&mut self, key: &str, value: &Value<'_>) {
        const WANTED: &str = "a list of pairs, as in [[\"host-1\", \"switch-1\"]]";
        let class = self.network.classes.len() - 1;
        let Some(list) = value.get_ref().as_array() else {
            return self.fault(value.span().start, wrong(key, value.get_ref(), WANTED));
        };
        for item in list {
            let at = item.span().start;
            let pair: Vec<&Value<'_>> = item.get_ref().as_array().into_iter().flatten().collect();
            let [one, other] = pair[..] else {
                self.fault(at, wrong(key, item.get_ref(), WANTED));
                continue;
            };
            let (Some(one), Some(other)) = (self.node(key, one), self.node(key, other)) else { continue };
            let ends = [one, other];
            if one == other {
                self.fault(at, Fault::Other(format!("{key}: a link from a node to itself")));
            } else if !self.connected.insert([one.min(other), one.max(other)]) {
                self.fault(at, Fault::Other(format!("{key}: these two nodes have a link already")));
            } else {
                self.network.links.push(Link { ends, class });
            }
        }
    }

    fn cause(&mut self, path: &str, name: &Key<'_>, value: &Value<'_>) {
        let Some(table) = self.table(path, value, &CAUSE) else { return };
        let failure = self.percent(path, table, "failure_percent").unwrap_or(0.0);
        let takes =
            table.get("takes").map_or(Vec::new(), |value| self.node_list(&format!("{path}.takes"), value));
        self.network.causes.push(CommonCause { name: name.get_ref().to_string(), failure, takes });
    }

    /// A value that is read by `read`, which returns `None` for another type.
    fn read<T>(
        &mut self,
        path: &str,
        table: &DeTable<'_>,
        key: &'static str,
        read: impl FnOnce(&str, &DeValue<'_>) -> Option<Result<T, Fault>>,
    ) -> Option<T> {
        let value = table.get(key)?;
        let path = format!("{path}.{key}");
        let read =
            read(&path, value.get_ref()).unwrap_or_else(|| Err(wrong(&path, value.get_ref(), wanted(key))));
        read.map_err(|fault| self.fault(value.span().start, fault)).ok()
    }

    fn span(
        &mut self,
        path: &str,
        table: &DeTable<'_>,
        key: &'static str,
        bounds: (Nanos, Nanos),
    ) -> Option<Nanos> {
        self.read(path, table, key, |path, value| document::span(path, value, bounds))
    }

    fn number(
        &mut self,
        path: &str,
        table: &DeTable<'_>,
        key: &'static str,
        bounds: (u32, u32),
    ) -> Option<u32> {
        self.read(path, table, key, |path, value| document::number(path, value, bounds))
    }

    /// A probability, written in percent.
    fn percent(&mut self, path: &str, table: &DeTable<'_>, key: &'static str) -> Option<f64> {
        self.read(path, table, key, |path, value| {
            if value.as_float().is_none() && value.as_integer().is_none() {
                return None;
            }
            let written = match value {
                DeValue::Float(number) => number.as_str().to_owned(),
                _ => value.as_integer()?.as_str().to_owned(),
            };
            let fits = |percent: &f64| *percent == 0.0 || (PERCENT_MIN..=100.0).contains(percent);
            let parsed = written.parse::<f64>().ok();
            let is_tiny = parsed.is_some_and(|percent| percent > 0.0 && percent < PERCENT_MIN);
            let percent = parsed.filter(fits);
            // The same zero, whichever was written.
            Some(percent.map(|percent| percent.abs() / 100.0).ok_or_else(|| Fault::Bounds {
                key: path.to_owned().into(),
                found: shortened(&written),
                low: "0".to_owned(),
                high: if is_tiny { "100 (0, or 0.000000001 and more)" } else { "100" }.to_owned(),
            }))
        })
    }
}

/// What a key must be, for errors.
fn wanted(key: &str) -> &'static str {
    match key {
        "members" | "takes" => "a list of names",
        "links" => "a list of pairs of names",
        "period" | "host_latency" | "host_jitter" | "latency" | "jitter" => "a duration, as in \"10us\"",
        "grouped_percent" | "failure_percent" => "a number from 0 to 100 (percent)",
        _ => "a whole number",
    }
}

fn is_line(text: &str) -> bool {
    !text.is_empty() && text.chars().count() <= 200 && !text.chars().any(char::is_control)
}
