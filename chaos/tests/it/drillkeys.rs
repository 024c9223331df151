//! Nothing in a drill file is ignored: a changed key is rejected, a changed value is rejected or
//! gives another drill.

use obol_chaos::drillfile::{Drill, parse, shipped};
use toml::{Table, Value};

/// A drill with every table and most keys, unlike the shipped ones.
const FULL: &str = r#"
steady = [
    { probe = "view.converged", tolerance = true, phase = ["after"] },
    { probe = "promql", url = "http://prom:9090/x", query = "sum(up)", comparison = ">= 2", timeout = "2s" },
    { probe = "http", url = "https://shop/health", status = 204, timeout = "2s" },
    { probe = "command", argv = ["true", "a"], timeout = "2s" },
]
report = { journal = "j.json", trace = "t.json", metrics = "m.txt", histogram = "h.hlog", junit = "x.xml", markdown = "p.md", html = "p.html" }

[drill]
schema = 1
id = "full"
title = "Everything"
environment = "lab"
seed = 7
repeat = { count = 30, warmup = 1, gap = "2ms", stop_after_failures = 2 }
timeout = "5m"

[guards]
max_targets = 9
keep_acceptors = 1
keep_lease_caches = 1
deny_hosts = ["prod-*"]
require_confirm = true
allow_clock_step = true
allow_nic_down = true
allow_kernel_stall = true
allow_undetected = true
dead_man = "2s"
require_approval = true
abort = [
    { when = "skew_us > 5", samples = 2 },
    { probe = "http", url = "http://shop/health", status = 500, tolerance = false, every = "2s", samples = 3, timeout = "9s" },
]

[targets]
app = { kind = "app", fixed = 2 }
node = { kind = "node", percent = 50 }
cache = { kind = "lease-cache", select = "one", serving = "app" }
one = { kind = "coordinator", name = "coord-2" }

[[step]]
name = "first"
on = "cue"
max_cue_skew = "150us"
fault = [{ kind = "kill", signal = "TERM", target = ["app", "cache"] }, { kind = "cpu-hog", threads = 2, for = "1s" }]

[[step]]
name = "second"
on = "settled"
fault = [
    { kind = "delay", by = "1ms", layer = "fabric", for = "1s", target = "one" },
    { kind = "loss", percent = 5, layer = "fabric", for = "1s", target = "node" },
    { kind = "memory-pressure", mebibytes = 5, for = "1s" },
    { kind = "clock-step", by = "1s", for = "1s" },
    { kind = "freeze", for = "1s", target = "node" },
    { kind = "partition", layer = "host", direction = "in", for = "1s", target = "node" },
    { kind = "burst", layer = "host", enter = 2, leave = 100, lost = 900, lost_between = 1, for = "1s", target = "node" },
    { kind = "nic-down", interface = "eth1", for = "1s", target = "node" },
    { kind = "kernel-stall", for = "10ms", expect = "tolerated", target = "one" },
]

[[expect]]
metric = "cue.skew"
p90 = "9us"

[[expect]]
metric = "members.failed"
at_most = 3

[rollback]
strategy = "deviated"
actions = [{ kind = "restart", target = "app" }]
"#;

/// A place in a document: keys and array indices.
type Path = Vec<Step>;

#[derive(Clone, Debug)]
enum Step {
    Key(String),
    At(usize),
}

fn places(value: &Value, here: &Path, out: &mut Vec<Path>) {
    out.push(here.clone());
    let mut go = |step: Step, value: &Value| {
        let mut path = here.clone();
        path.push(step);
        places(value, &path, out);
    };
    match value {
        Value::Table(table) => table.iter().for_each(|(key, value)| go(Step::Key(key.clone()), value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(at, value)| go(Step::At(at), value)),
        _ => {}
    }
}

fn at<'a>(value: &'a mut Value, path: &[Step]) -> &'a mut Value {
    path.iter().fold(value, |value, step| match step {
        Step::Key(key) => &mut value.as_table_mut().expect("a table")[key],
        Step::At(at) => &mut value.as_array_mut().expect("an array")[*at],
    })
}

/// The text with this place changed.
fn changed(text: &str, path: &[Step], change: impl Fn(&mut Value)) -> String {
    let mut document = Value::Table(text.parse::<Table>().expect("TOML"));
    change(at(&mut document, path));
    toml::to_string(&document).expect("it can be written")
}

/// Other values of the same type, and one of another type.
fn others(value: &Value) -> Vec<Value> {
    let text = |text: String| Value::String(text);
    match value {
        Value::String(old) => {
            vec![text(format!("{old}x")), text(format!("1{old}")), text(String::new()), Value::Integer(5)]
        }
        Value::Integer(old) => vec![
            Value::Integer(old + 1),
            Value::Integer(old - 1),
            Value::Integer(-1),
            Value::Integer(1 << 40),
            text("many".to_owned()),
        ],
        Value::Boolean(old) => vec![Value::Boolean(!old), text("yes".to_owned())],
        Value::Array(_) => vec![Value::Array(Vec::new()), Value::Array(vec![Value::Integer(3)])],
        Value::Table(_) => vec![Value::Table(Table::new()), Value::Integer(3)],
        Value::Float(_) | Value::Datetime(_) => Vec::new(),
    }
}

fn documents() -> impl Iterator<Item = (&'static str, &'static str, Drill)> {
    let all = shipped().map(|one| (one.name, one.text)).chain([("full", FULL)]);
    all.map(|(name, text)| (name, text, parse(text, "d").unwrap_or_else(|error| panic!("{error}"))))
}

/// Checks that a text is rejected with a place in it, or parsed as another drill.
fn rejected_or_different(name: &str, path: &Path, text: &str, drill: &Drill) {
    match parse(text, "d.toml") {
        Ok(read) => assert!(read != *drill, "{name}: {path:?} is ignored:\n{text}"),
        Err(error) => {
            let error = error.to_string();
            let placed = |line: &str| {
                let mut parts = line.strip_prefix("d.toml:").unwrap_or_default().splitn(3, ':');
                let mut number = || parts.next().and_then(|n| n.parse::<usize>().ok());
                number().is_some() && number().is_some()
            };
            assert!(!error.is_empty() && error.lines().all(placed), "{name}: {path:?}: {error}");
        }
    }
}

#[test]
fn every_changed_value_is_rejected_or_gives_another_drill() {
    let mut many = 0;
    for (name, text, drill) in documents() {
        let mut document = Value::Table(text.parse::<Table>().expect("TOML"));
        let mut paths = Vec::new();
        places(&document, &Vec::new(), &mut paths);
        for path in paths.into_iter().filter(|path| !path.is_empty()) {
            for other in others(&at(&mut document, &path).clone()) {
                // Optional tables may also be empty, with the same meaning.
                let says_nothing = other.as_table().is_some_and(Table::is_empty) && path.len() == 1;
                if at(&mut document, &path) == &other || says_nothing {
                    continue;
                }
                rejected_or_different(
                    name,
                    &path,
                    &changed(text, &path, |value| *value = other.clone()),
                    &drill,
                );
                many += 1;
            }
        }
    }
    assert!(many > 2_000, "{many} changes were tried");
}

#[test]
fn every_misspelt_key_is_rejected() {
    for (name, text, drill) in documents() {
        let document = Value::Table(text.parse::<Table>().expect("TOML"));
        let mut paths = Vec::new();
        places(&document, &Vec::new(), &mut paths);
        for path in paths {
            let Some((Step::Key(key), parent)) = path.split_last() else { continue };
            for other in [format!("{key}x"), key[1..].to_owned(), "zzz".to_owned()] {
                let text = changed(text, parent, |value| {
                    let table = value.as_table_mut().expect("a table");
                    let moved = table.remove(key).expect("it is there");
                    table.insert(other.clone(), moved);
                });
                let error = parse(&text, "d.toml").expect_err(&format!("{name}: {path:?} as {other:?}"));
                assert!(!error.to_string().is_empty());
                rejected_or_different(name, &path, &text, &drill);
            }
        }
    }
}

/// Whether the path leads to a table with names that the drill chooses: what refers to them is wrong as well
/// if one is changed.
fn is_a_name(path: &Path) -> bool {
    matches!(path.as_slice(), [Step::Key(table), Step::Key(_)] if table == "targets")
}

/// The mistakes that are reported of a text.
fn problems(text: &str) -> Vec<String> {
    let Err(error) = parse(text, "d.toml") else { return Vec::new() };
    error.problems().iter().map(|one| one.problem.to_string()).collect()
}

#[test]
fn one_mistake_is_one_problem_and_what_follows_from_it_is_not_reported() {
    let mut follow_on = Vec::new();
    for (name, text, _) in documents() {
        let document = Value::Table(text.parse::<Table>().expect("TOML"));
        let mut paths = Vec::new();
        places(&document, &Vec::new(), &mut paths);
        for path in paths.into_iter().filter(|path| !path.is_empty()) {
            let mut mistakes = Vec::new();
            if let Some((Step::Key(key), parent)) = path.split_last()
                && !is_a_name(&path)
            {
                mistakes.push(changed(text, parent, |value| {
                    let table = value.as_table_mut().expect("a table");
                    let moved = table.remove(key).expect("it is there");
                    table.insert(format!("{key}x"), moved);
                }));
            }
            // Of another type, so that nothing else can be meant.
            mistakes.push(changed(text, &path, |value| *value = Value::Float(0.5)));
            for mistake in mistakes {
                let found = problems(&mistake);
                if found.len() != 1 {
                    follow_on.push(format!("{name}: {path:?}: {found:#?}"));
                }
            }
        }
    }
    assert!(follow_on.is_empty(), "{}\n{}", follow_on.len(), follow_on.join("\n"));
}
