//! Parses a text into a drill, or into a list of all problems.

use super::external;
use super::limits::COUNT_MAX;
use super::{
    AT_MOST, Abort, AbortMetric, Allowed, CRASHED_ONCE, Drill, Expect, Guards, Keep, Metric, On, Probe,
    Repeat, ReportFiles, Rollback, SCHEMA, Select, Steady, Step, StepFault, Strategy, Target, TargetKind,
};
use crate::faults::order::INJECTIONS_MAX;
use crate::faults::{COMMON_KEYS, Effect, KINDS, SPAN_MIN, Scope};
use obol_config::{At, FileError, Problem, Problems, Section, chosen, duration, index_of, shortened};
use obol_fabric::layout::PROPOSERS_MAX;
use obol_fabric::{Name, Nanos};
use obol_observe::Percentile;
use std::cell::Cell;

/// Characters of a drill's name.
pub(super) const ID_CHARS_MAX: usize = 64;
/// Longest fault, pause or timeout.
const SPAN_MAX: Nanos = Nanos::from_secs(600);
const TIMEOUT_MAX: Nanos = Nanos::from_secs(24 * 3600);
/// A shorter dead man's switch would undo a drill whenever the runner is not scheduled for a
/// moment.
const DEAD_MAN: (Nanos, Nanos) = (Nanos::from_millis(200), Nanos::from_secs(60));
pub(super) const TARGETS_MAX: u32 = 64;
pub(super) const KEEP_ACCEPTORS_MAX: u32 = PROPOSERS_MAX as u32;
pub(super) const KEEP_CACHES_MAX: u32 = 64;

pub(super) const SELECTS: [(&str, Select); 5] = [
    ("one", Select::One),
    ("all", Select::All),
    ("minority", Select::Minority),
    ("majority", Select::Majority),
    ("leader", Select::Leader),
];
type AllowedField = fn(&mut Allowed) -> &mut bool;
/// What a drill may do to all programs of a host: a key, what it allows, and its field.
pub(super) const ALLOWED: [(&str, &str, AllowedField); 3] = [
    ("allow_clock_step", "CLOCK_REALTIME may jump", |allowed| &mut allowed.clock_step),
    ("allow_nic_down", "interfaces may be set down", |allowed| &mut allowed.nic_down),
    ("allow_kernel_stall", "a core may be kept from them", |allowed| &mut allowed.kernel_stall),
];
/// Whether a phase is after the repetitions.
pub(super) const PHASES: [(&str, bool); 2] = [("before", false), ("after", true)];
/// Whether a fault must not have its targets removed.
pub(super) const EXPECTATIONS: [(&str, bool); 2] = [("removed", false), ("tolerated", true)];
pub(super) const CUES: [(&str, On); 2] = [("cue", On::Cue), ("settled", On::Settled)];
pub(super) const STRATEGIES: [(&str, Strategy); 3] =
    [("always", Strategy::Always), ("deviated", Strategy::Deviated), ("never", Strategy::Never)];

/// Reads and checks a drill. `origin` names the text in errors.
pub fn parse(text: &str, origin: &str) -> Result<Drill, FileError> {
    obol_config::recover(text, origin, top)
}

/// A drill's id: 1 to 64 of `A-Z a-z 0-9 . _ + -`, the first a letter or digit.
pub(super) fn id(section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<String> {
    let wanted = format!("1 to {ID_CHARS_MAX} of A-Z a-z 0-9 . _ + -, the first a letter or digit");
    let read = section.take("id", &wanted, problems, |_, value| {
        let text = value.as_str()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
        let fits = text.len() <= ID_CHARS_MAX && text.chars().all(plain);
        (fits && text.starts_with(|c: char| c.is_ascii_alphanumeric())).then(|| Ok(text.to_owned()))
    });
    read.map(|at| at.value)
}

/// The tables of a drill.
const TABLES: [&str; 8] = ["drill", "guards", "targets", "steady", "step", "expect", "rollback", "report"];

/// What later tables refer to. What could not be read is not known, and what refers to it is not judged: the
/// mistake that kept it from being read is reported, and its consequences are not.
struct Context {
    targets: Vec<Target>,
    /// The names of all targets, including those with errors.
    names: Option<Vec<String>>,
    /// Their byte offsets.
    places: Vec<usize>,
    /// Repetitions.
    count: Option<u32>,
    /// Whether a table may be there under another name.
    misspelt: bool,
    /// Whether a step could not be read, so that others have moved up.
    shifted: bool,
    /// Whether it was said that there are no targets.
    said_empty: Cell<bool>,
}

fn top(top: &mut Section<'_, '_>, problems: &mut Problems) -> Option<Drill> {
    top.accept(TABLES);
    let misspelt = top.has_unknown();
    let head = top.needed_section("drill", problems);
    let head = head.map(|section| section.read(problems, drill));
    let guards = match top.section("guards", problems) {
        Some(section) => section.read(problems, guards),
        None => Guards::default(),
    };
    let (targets, names, places) = match top.section("targets", problems) {
        Some(section) => {
            let (targets, names, places) = section.read(problems, targets);
            (targets, Some(names), places)
        }
        None => (Vec::new(), (!misspelt && !top.has("targets")).then(Vec::new), Vec::new()),
    };
    let count = head.as_ref().and_then(|head| head.count);
    let before = problems.count();
    let tables = top.some_sections("step", problems);
    let shifted = problems.count() > before;
    let said_empty = Cell::new(false);
    let context = Context { targets, names, places, count, misspelt, shifted, said_empty };
    let steady = top
        .sections("steady", problems)
        .into_iter()
        .filter_map(|section| section.read(problems, self::steady))
        .collect();
    let mut steps: Vec<Step> = Vec::new();
    for (at, section) in tables.into_iter().enumerate() {
        steps.extend(section.read(problems, |section, problems| step(section, at, &context, problems)));
    }
    top.need("step", "at least one step, [[step]]", (!steps.is_empty()).then_some(()));
    let expect = top
        .sections("expect", problems)
        .into_iter()
        .filter_map(|section| {
            section.read(problems, |section, problems| self::expect(section, &context, &steps, problems))
        })
        .collect();
    let rollback = match top.section("rollback", problems) {
        Some(section) => {
            section.read(problems, |section, problems| rollback(section, &context, &steps, problems))
        }
        // Processes that a step kills are restarted by default, or the second repetition would lack
        // them.
        None => Rollback {
            strategy: Strategy::Always,
            restart: context.targets.iter().map(|target| target.name.clone()).collect(),
        },
    };
    let report = match top.section("report", problems) {
        Some(section) => section.read(problems, report),
        None => ReportFiles::default(),
    };
    // With other problems, an unused target may just be misspelt elsewhere.
    if problems.is_empty() && !misspelt {
        unused(&context, &steps, problems);
    }
    let head = head?;
    Some(Drill {
        id: head.id?,
        title: head.title?,
        environment: head.environment?,
        seed: head.seed,
        repeat: head.repeat,
        timeout: head.timeout,
        guards,
        targets: context.targets,
        steady,
        steps,
        expect,
        rollback,
        report,
    })
}

/// Rejects targets that no step hits, and a cache selected by a target of another step.
fn unused(context: &Context, steps: &[Step], problems: &mut Problems) {
    let hits = |step: &Step, name: &str| step.faults.iter().any(|f| f.targets.iter().any(|t| t == name));
    for (target, at) in context.targets.iter().zip(&context.places) {
        let name = &target.name;
        if !steps.iter().any(|step| hits(step, name)) {
            let found = format!("no fault hits {name}");
            problems
                .add(*at, Problem::Conflict { rule: "every target is hit by a fault of some step", found });
        }
        let Some(served) = &target.serving else { continue };
        if steps.iter().any(|step| hits(step, name) && !hits(step, served)) {
            let found = format!("{name} is hit in a step in which {served} is not");
            let rule =
                "the cache that serves a target can only be selected in a step that hits that target, too";
            problems.add(*at, Problem::Conflict { rule, found });
        }
    }
}

struct Head {
    id: Option<String>,
    title: Option<String>,
    environment: Option<Name>,
    seed: u32,
    repeat: Repeat,
    /// Repetitions, if they are known.
    count: Option<u32>,
    timeout: Nanos,
}

fn drill(section: &mut Section<'_, '_>, problems: &mut Problems) -> Head {
    section.schema(SCHEMA, problems);
    let id = id(section, problems);
    let id = section.need("id", "a name such as \"triple-loss\"", id);
    let title = section.line("title", problems).map(|at| at.value);
    let title = section.need("title", "what the drill does, in one line", title);
    let environment = section.parsed("environment", "a name", problems).map(|at| at.value);
    let environment = section.need(
        "environment",
        "the label that the cluster was started with (`obol up --environment`)",
        environment,
    );
    let seed = section.number("seed", (0, u32::MAX), problems).map_or(1, |at| at.value);
    let timeout = section.span("timeout", (Nanos::from_secs(1), TIMEOUT_MAX), problems);
    let (repeat, count) = match section.section("repeat", problems) {
        Some(section) => section.read(problems, self::repeat),
        None => {
            let is_once = !section.has("repeat") && !section.has_unknown();
            let repeat = Repeat { count: 1, warmup: 0, gap: Nanos::from_millis(20), stop_after_failures: 1 };
            (repeat, is_once.then_some(1))
        }
    };
    Head {
        id,
        title,
        environment,
        seed,
        repeat,
        count,
        timeout: timeout.map_or(Nanos::from_secs(1800), |at| at.value),
    }
}

/// Also returns the number of repetitions, if it is known.
fn repeat(section: &mut Section<'_, '_>, problems: &mut Problems) -> (Repeat, Option<u32>) {
    let known = section.number("count", (1, COUNT_MAX), problems).map(|at| at.value);
    let count = section.need("count", "how many repetitions, a whole number", known).unwrap_or(1);
    let warmup = section.number("warmup", (0, COUNT_MAX), problems).map_or(0, |at| at.value);
    let gap =
        section.span("gap", (Nanos::ZERO, SPAN_MAX), problems).map_or(Nanos::from_millis(20), |at| at.value);
    let failures = section.number("stop_after_failures", (1, COUNT_MAX), problems).map_or(1, |at| at.value);
    (Repeat { count, warmup, gap, stop_after_failures: failures }, known)
}

fn guards(section: &mut Section<'_, '_>, problems: &mut Problems) -> Guards {
    let mut guards = Guards::default();
    if let Some(most) = section.number("max_targets", (1, TARGETS_MAX), problems) {
        guards.max_targets = most.value;
    }
    if section.value("keep_acceptors").is_some_and(|value| value.get_ref().as_str().is_some()) {
        section.choice("keep_acceptors", &[("majority", Keep::Majority)], problems);
    } else if let Some(number) = section.number("keep_acceptors", (0, KEEP_ACCEPTORS_MAX), problems) {
        guards.keep_acceptors = Keep::Number(number.value);
    }
    if let Some(caches) = section.number("keep_lease_caches", (0, KEEP_CACHES_MAX), problems) {
        guards.keep_lease_caches = caches.value;
    }
    guards.deny_hosts =
        section.texts("deny_hosts", problems).unwrap_or_default().into_iter().map(|at| at.value).collect();
    guards.require_confirm = section.flag("require_confirm", problems).unwrap_or(false);
    guards.require_approval = section.flag("require_approval", problems).unwrap_or(false);
    for (key, _, allowed) in ALLOWED {
        *allowed(&mut guards.allowed) = section.flag(key, problems).unwrap_or(false);
    }
    guards.allow_undetected = section.flag("allow_undetected", problems).unwrap_or(false);
    if let Some(span) = section.span("dead_man", DEAD_MAN, problems) {
        guards.dead_man = span.value;
    }
    for condition in section.sections("abort", problems) {
        let is_watch = condition.has("probe")
            || !condition.has("when") && external::keys().iter().any(|(key, _)| condition.has(key.name));
        if is_watch {
            guards.watch.extend(condition.read(problems, external::watch));
        } else {
            guards.abort.extend(condition.read(problems, abort));
        }
    }
    guards
}

/// `{ when = "unavailable_us > 5000", samples = 2 }`
fn abort(section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<Abort> {
    let when = section.line("when", problems);
    let when = section.need("when", "a condition such as \"unavailable_us > 5000\"", when);
    let samples = section.number("samples", (1, COUNT_MAX), problems).map_or(1, |at| at.value);
    let path = section.key("when");
    let At { at, value } = when?;
    let (metric, above) = problems.take(at, condition(&path, &value))?;
    Some(Abort { metric, above, samples })
}

fn condition(path: &str, text: &str) -> Result<(AbortMetric, f64), Problem> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let wrong = || Problem::WrongType {
        key: path.to_owned().into(),
        found: format!("{:?}", shortened(text)),
        wanted: "METRIC > NUMBER, such as \"unavailable_us > 5000\"".to_owned(),
    };
    let [metric, ">", number] = words.as_slice() else { return Err(wrong()) };
    let metric = chosen(path, metric, AbortMetric::ALL)?;
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok((metric, number)),
        _ => Err(wrong()),
    }
}

/// A reference to another target.
struct Reference {
    /// Byte offset in the file.
    at: usize,
    key: String,
    name: String,
}

fn targets(section: &mut Section<'_, '_>, problems: &mut Problems) -> (Vec<Target>, Vec<String>, Vec<usize>) {
    let (mut targets, mut places) = (Vec::new(), Vec::new());
    let entries = section.entries();
    let names: Vec<String> = entries.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut references = Vec::new();
    for (name, value) in entries {
        let path = section.key(name);
        if let Some((target, serving)) = Section::of(&path, value, &format!("a table, [{path}]"), problems)
            .and_then(|table| table.read(problems, |section, problems| target(name, section, problems)))
        {
            references.extend(serving.map(|reference| (targets.len(), reference)));
            targets.push(target);
            places.push(value.span().start);
        }
    }
    for (of, Reference { at, key, name }) in references {
        if problems.take(at, known_target(&key, &name, &names)).is_some() {
            targets[of].serving = Some(name);
        }
    }
    (targets, names, places)
}

/// Rejects an unknown target name.
fn known_target(path: &str, name: &str, names: &[String]) -> Result<(), Problem> {
    if names.is_empty() {
        return Err(Problem::Other(format!("{path} is {:?}, but [targets] has none", shortened(name))));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    index_of(path, name, &names).map(|_| ())
}

fn target(
    name: &str,
    section: &mut Section<'_, '_>,
    problems: &mut Problems,
) -> Option<(Target, Option<Reference>)> {
    let kind = section.choice("kind", TargetKind::ALL, problems).map(|at| at.value);
    let kind = section.need("kind", "app, agent, node, coordinator or lease-cache", kind);
    let word = section.choice("select", &SELECTS, problems);
    let fixed = section
        .number("fixed", (1, TARGETS_MAX), problems)
        .map(|n| At { at: n.at, value: Select::Fixed(n.value) });
    let percent = section
        .number("percent", (1, 100), problems)
        .map(|n| At { at: n.at, value: Select::Percent(n.value) });
    let named = section
        .parsed("name", "a name", problems)
        .map(|name| At { at: section.at, value: Select::Named(name.value) });
    section.accept(["serving"]);
    let mut ways: Vec<At<Select>> = [word, fixed, percent, named].into_iter().flatten().collect();
    if ways.len() > 1 {
        let found = "several of them are set".to_owned();
        problems.add(
            ways[1].at,
            Problem::Conflict { rule: "a target has one of select, fixed, percent and name", found },
        );
    }
    let first = (!ways.is_empty()).then(|| ways.swap_remove(0));
    let way = match first {
        // Its bad value or name is reported.
        None if ["fixed", "percent", "name"]
            .iter()
            .any(|key| section.has(key) || section.is_misspelt(key)) =>
        {
            None
        }
        first => section.need(
            "select",
            "one, all, minority, majority or leader; or fixed, percent or name in its place",
            first,
        ),
    };
    let serving = section.line("serving", problems);
    let path = section.key("serving");
    let (kind, way) = (kind?, way?);
    if let Some(At { at, .. }) = &serving
        && (kind != TargetKind::LeaseCache || way.value != Select::One)
    {
        let found = format!("kind is {:?}", kind.name());
        problems.add(
            *at,
            Problem::Conflict {
                rule: "serving selects one lease cache (kind = \"lease-cache\", select = \"one\")",
                found,
            },
        );
    }
    let serving = serving.map(|At { at, value }| Reference { at, key: path, name: value });
    if way.value == Select::Leader && kind != TargetKind::Coordinator {
        let found = format!("kind is {:?}", kind.name());
        problems.add(way.at, Problem::Conflict { rule: "only a coordinator can lead", found });
    }
    let target = Target { name: name.to_owned(), kind, select: way.value, serving: None };
    Some((target, serving))
}

fn steady(section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<Steady> {
    let probe = section.choice("probe", Probe::ALL, problems).map(|at| at.value);
    let probe = section.need("probe", "the probe, such as \"view.converged\"", probe);
    let tolerance = section.flag("tolerance", problems).unwrap_or(true);
    let path = section.key("phase");
    let phases = section.some_texts("phase", problems);
    let (mut before, mut after) = (phases.is_none(), phases.is_none());
    for At { at, value } in phases.unwrap_or_default() {
        match problems.take(at, chosen(&path, &value, &PHASES)) {
            Some(false) => before = true,
            Some(true) => after = true,
            None => {}
        }
    }
    let external = match probe {
        Some(probe) => external::parse(probe, section, problems),
        None => {
            section.accept(external::keys().iter().map(|(key, _)| key.name));
            None
        }
    };
    Some(Steady { probe: probe?, external, tolerance, before, after })
}

fn step(
    section: &mut Section<'_, '_>,
    at: usize,
    context: &Context,
    problems: &mut Problems,
) -> Option<Step> {
    let name = section.line("name", problems).map(|at| at.value);
    let name = section.need("name", "the name of the step", name);
    let own = if at == 0 { On::Cue } else { On::Settled };
    let on = section.choice("on", &CUES, problems);
    if let Some(on) = on.as_ref().filter(|on| on.value != own && !context.shifted) {
        let (rule, found) = match own {
            On::Cue => ("the first step of a repetition happens on its cue", "on is \"settled\""),
            On::Settled => (
                "a later step happens when the one before has settled; put faults of one cue into one step",
                "on is \"cue\"",
            ),
        };
        problems.add(on.at, Problem::Conflict { rule, found: found.to_owned() });
    }
    let skew = section.span("max_cue_skew", (SPAN_MIN, Nanos::from_secs(1)), problems).map(|at| at.value);
    let tables = section.some_sections("fault", problems);
    let several = tables.len();
    if let Some(beyond) = tables.get(INJECTIONS_MAX) {
        let (found, key) = (format!("{several} tables"), section.key("fault").into());
        let (low, high) = ("1".to_owned(), INJECTIONS_MAX.to_string());
        problems.add(beyond.at, Problem::Bounds { key, found, low, high });
    }
    let mut list: Vec<StepFault> = Vec::new();
    for table in tables {
        list.extend(table.read(problems, |section, problems| fault(section, context, problems)));
    }
    section.need(
        "fault",
        "a fault such as { kind = \"kill\", target = \"app\" }",
        (several > 0).then_some(()),
    );
    Some(Step { name: name?, on: own, max_cue_skew: skew, faults: list })
}

/// The targets of this key, all of which must be in `[targets]`.
fn target_names(
    section: &mut Section<'_, '_>,
    context: &Context,
    problems: &mut Problems,
) -> Option<Vec<String>> {
    let path = section.key("target");
    let names = section.some_texts("target", problems)?;
    let known = context.names.as_ref();
    for (At { at, value }, known) in names.iter().filter_map(|name| Some((name, known?))) {
        if !known.is_empty() || !context.said_empty.replace(true) {
            problems.take(*at, known_target(&path, value, known));
        }
    }
    Some(names.into_iter().map(|at| at.value).collect())
}

fn fault(section: &mut Section<'_, '_>, context: &Context, problems: &mut Problems) -> Option<StepFault> {
    let kinds: Vec<_> = KINDS.iter().map(|kind| (kind.name(), *kind)).collect();
    let kind = section.choice("kind", &kinds, problems).map(|at| at.value);
    let kind = section.need("kind", "the fault, such as \"kill\"", kind);
    let Some(kind) = kind else {
        section.accept(COMMON_KEYS);
        section.accept(KINDS.iter().flat_map(|kind| kind.keys()).map(|key| key.name));
        return None;
    };
    let kind = kind.parse(section, problems);
    let mut targets = Vec::new();
    if kind.scope() != Scope::Host {
        let named = target_names(section, context, problems);
        targets = section
            .need("target", "its targets: one or several names of [targets]", named)
            .unwrap_or_default();
    }
    let mut lasts = None;
    if !kind.effect().ends() {
        lasts = section.span("for", (Nanos::from_millis(1), SPAN_MAX), problems).map(|at| at.value);
        let wanted = format!(
            "how long it lasts, a duration up to \"{}\"; then it is undone",
            duration::print(SPAN_MAX)
        );
        lasts = section.need("for", &wanted, lasts);
    }
    let expect = section.choice("expect", &EXPECTATIONS, problems);
    let may_expect = |tolerated: bool| match kind.effect() {
        Effect::Stops | Effect::Unreachable => true,
        Effect::Degraded => tolerated && kind.scope() != Scope::Host,
        Effect::Ends | Effect::Leaves => false,
    };
    if let Some(At { at, .. }) = expect.as_ref().filter(|at| !may_expect(at.value)) {
        let rule = "an expectation is of targets that a fault stops or cuts off (kind = \"freeze\"), or that are to tolerate it; \
                    what others must not exceed is in [[expect]]";
        problems.add(*at, Problem::Conflict { rule, found: format!("kind is {:?}", kind.name()) });
    }
    let fault = StepFault { kind, targets, lasts, tolerated: expect.is_some_and(|at| at.value) };
    if let Some(count) = context.count.filter(|count| fault.crashes_hosts() && *count > 1) {
        let found = format!("drill.repeat.count is {count}");
        problems.add(section.at, Problem::Conflict { rule: CRASHED_ONCE, found });
    }
    Some(fault)
}

fn expect(
    section: &mut Section<'_, '_>,
    context: &Context,
    steps: &[Step],
    problems: &mut Problems,
) -> Option<Expect> {
    let metric = section.choice("metric", Metric::ALL, problems);
    let metric = section.need("metric", "the figure, such as \"failover.cue_to_active\"", metric);
    let Some(At { at, value: metric }) = metric else {
        section.accept(Percentile::ALL.iter().map(|(name, _)| *name).chain([AT_MOST]));
        return None;
    };
    let silences = steps.iter().flat_map(|step| &step.faults).any(StepFault::silences);
    if metric.is_of_failover() && !silences && problems.is_empty() && !context.misspelt {
        let found = format!("{} is bounded", metric.name());
        let rule = "a failover is measured only if a fault silences a process (kill, freeze, partition or link-error) and is \
                    not expected to be tolerated";
        problems.add(at, Problem::Conflict { rule, found });
    }
    let mut expect = Expect { metric, bounds: Vec::new(), at_most: None };
    if metric.is_count() {
        let most = section.number(AT_MOST, (0, u32::MAX), problems).map(|at| at.value);
        expect.at_most = section.need(AT_MOST, "the largest count that passes", most);
    } else {
        for &(name, percentile) in Percentile::ALL {
            let Some(bound) = section.span(name, (SPAN_MIN, SPAN_MAX), problems) else { continue };
            let needed = percentile.samples_min();
            if let Some(count) = context.count.filter(|count| *count < needed) {
                let found = format!("{} needs {needed}, drill.repeat.count is {count}", section.key(name));
                let rule =
                    "a percentile needs enough repetitions for 95 % confidence that one of them reached it";
                problems.add(bound.at, Problem::Conflict { rule, found });
            }
            expect.bounds.push((percentile, bound.value));
        }
        let is_there = |name: &str| section.has(name) || section.is_misspelt(name);
        let any = Percentile::ALL.iter().any(|(name, _)| is_there(name)).then_some(());
        section.need("p50", "a bound: p50, p90, p99, p999 or max", any);
    }
    Some(expect)
}

fn rollback(
    section: &mut Section<'_, '_>,
    context: &Context,
    steps: &[Step],
    problems: &mut Problems,
) -> Rollback {
    let mut rollback = Rollback { strategy: Strategy::Always, restart: Vec::new() };
    let strategy = section.choice("strategy", &STRATEGIES, problems);
    for action in section.sections("actions", problems) {
        let at = action.at;
        let names = action.read(problems, |action, problems| {
            let kind = action.choice("kind", &[("restart", ())], problems);
            action.need("kind", "\"restart\"; reversible faults are always undone", kind);
            let names = target_names(action, context, problems);
            action.need("target", "one or several names of [targets]", names).unwrap_or_default()
        });
        let kills = |name: &String| steps.iter().flat_map(|step| &step.faults).any(|fault| fault.ends(name));
        let is_judged = problems.is_empty() && !context.misspelt;
        if let Some(name) = names.iter().find(|name| is_judged && !kills(name)) {
            let (rule, found) =
                ("only targets that a step kills can be restarted", format!("nothing kills {name}"));
            problems.add(at, Problem::Conflict { rule, found });
        }
        rollback.restart.extend(names);
    }
    if let Some(At { at, value }) = strategy {
        if value == Strategy::Never && !rollback.restart.is_empty() {
            let found = "there are actions".to_owned();
            problems.add(at, Problem::Conflict { rule: "strategy = \"never\" takes no action", found });
        }
        rollback.strategy = value;
    }
    rollback
}

fn report(section: &mut Section<'_, '_>, problems: &mut Problems) -> ReportFiles {
    let mut files = ReportFiles::default();
    let mut taken: Vec<String> = Vec::new();
    for (key, usual) in ReportFiles::DEFAULTS {
        let Some(At { at, value }) = section.line(key, problems) else { continue };
        // The files always stay in the output directory.
        if value.contains('/') || value.starts_with('.') {
            let wanted = format!("a plain file name such as {usual:?}; --out sets the directory");
            problems.wrong(at, &section.key(key), format!("{:?}", shortened(&value)), wanted);
        } else if taken.contains(&value) {
            let found = format!("{} is {:?}, like another file", section.key(key), shortened(&value));
            problems
                .add(at, Problem::Conflict { rule: "every file of a report needs a name of its own", found });
        } else if let Some(place) = files.place(key) {
            taken.push(value.clone());
            *place = Some(value);
        }
    }
    files
}
