//! Parses a text into a drill, or into a list of all problems.

use super::external;
use super::limits::COUNT_MAX;
use super::section::{At, SPAN_MIN, Section, chosen};
use super::{
    Abort, AbortMetric, Drill, Expect, Guards, Keep, Metric, On, Probe, Repeat, ReportFiles, Rollback,
    SCHEMA, Select, Steady, Step, StepFault, Strategy, Target, TargetKind,
};
use crate::faults::order::INJECTIONS_MAX;
use crate::faults::{COMMON_KEYS, Effect, KINDS, Scope};
use obol_fabric::layout::PROPOSERS_MAX;
use obol_fabric::{Name, Nanos};
use obol_observe::Percentile;
use obol_profiles::document::{Faults, nearest, shortened};
use obol_profiles::{Fault, FileError, duration};
use toml::de::DeTable;

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
/// Whether a phase is after the repetitions.
pub(super) const PHASES: [(&str, bool); 2] = [("before", false), ("after", true)];
/// Whether a fault must not have its targets removed.
pub(super) const EXPECTATIONS: [(&str, bool); 2] = [("removed", false), ("tolerated", true)];
pub(super) const CUES: [(&str, On); 2] = [("cue", On::Cue), ("settled", On::Settled)];
pub(super) const STRATEGIES: [(&str, Strategy); 3] =
    [("always", Strategy::Always), ("deviated", Strategy::Deviated), ("never", Strategy::Never)];

/// Reads and checks a drill. `origin` names the text in errors.
pub fn parse(text: &str, origin: &str) -> Result<Drill, FileError> {
    document(text, origin, top)
}

/// Reads a document of this schema, or finds all of its problems.
pub(super) fn document<T>(
    text: &str,
    origin: &str,
    top: impl FnOnce(&mut Section<'_, '_>, &mut Faults) -> Option<T>,
) -> Result<T, FileError> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let mut faults = Faults::default();
    let read = match schema_of(document.get_ref()) {
        Ok(()) => Section::new("", 0, document.get_ref()).read(&mut faults, top),
        Err((at, fault)) => {
            // Other problems may be none in that schema.
            faults.add(at, fault);
            None
        }
    };
    if !syntax.is_empty() {
        faults.with_syntax(text, &syntax);
    }
    faults.judge(read, text, origin)
}

/// Rejects an unknown schema before anything else is checked.
fn schema_of(document: &DeTable<'_>) -> Result<(), (usize, Fault)> {
    let table = document.iter().find(|(name, _)| name.get_ref() == "drill");
    let Some(keys) = table.and_then(|(_, value)| value.get_ref().as_table()) else { return Ok(()) };
    let Some((_, value)) = keys.iter().find(|(name, _)| name.get_ref() == "schema") else { return Ok(()) };
    let Some(number) = value.get_ref().as_integer() else { return Ok(()) };
    let number = number.to_string();
    if number == SCHEMA.to_string() {
        return Ok(());
    }
    Err((value.span().start, Fault::Schema { found: shortened(&number), known: SCHEMA }))
}

/// What later tables refer to.
struct Context {
    targets: Vec<Target>,
    /// The names of all targets, including those with errors.
    names: Vec<String>,
    /// Their byte offsets.
    places: Vec<usize>,
    count: u32,
}

fn top(top: &mut Section<'_, '_>, faults: &mut Faults) -> Option<Drill> {
    let head = top.section("drill", faults);
    let head = top.need("drill", "a table, [drill]", head);
    let head = head.map(|section| section.read(faults, drill));
    let guards = match top.section("guards", faults) {
        Some(section) => section.read(faults, guards),
        None => Guards::default(),
    };
    let (targets, names, places) = match top.section("targets", faults) {
        Some(section) => targets(&section, faults),
        None => Default::default(),
    };
    let context =
        Context { targets, names, places, count: head.as_ref().map_or(1, |head| head.repeat.count) };
    let steady = top
        .sections("steady", faults)
        .into_iter()
        .filter_map(|section| section.read(faults, self::steady))
        .collect();
    let mut steps: Vec<Step> = Vec::new();
    for (at, section) in top.some_sections("step", faults).into_iter().enumerate() {
        steps.extend(section.read(faults, |section, faults| step(section, at, &context, faults)));
    }
    top.need("step", "at least one step, [[step]]", (!steps.is_empty()).then_some(()));
    let expect = top
        .sections("expect", faults)
        .into_iter()
        .filter_map(|section| {
            section.read(faults, |section, faults| self::expect(section, &context, &steps, faults))
        })
        .collect();
    let rollback = match top.section("rollback", faults) {
        Some(section) => section.read(faults, |section, faults| rollback(section, &context, &steps, faults)),
        // Processes that a step kills are restarted by default, or the second repetition would lack
        // them.
        None => Rollback {
            strategy: Strategy::Always,
            restart: context.targets.iter().map(|target| target.name.clone()).collect(),
        },
    };
    let report = match top.section("report", faults) {
        Some(section) => section.read(faults, report),
        None => ReportFiles::default(),
    };
    // With other problems, an unused target may just be misspelt elsewhere.
    if faults.is_empty() {
        unused(&context, &steps, faults);
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
fn unused(context: &Context, steps: &[Step], faults: &mut Faults) {
    let hits = |step: &Step, name: &str| step.faults.iter().any(|f| f.targets.iter().any(|t| t == name));
    for (target, at) in context.targets.iter().zip(&context.places) {
        let name = &target.name;
        if !steps.iter().any(|step| hits(step, name)) {
            let found = format!("no fault hits {name}");
            faults.add(*at, Fault::Conflict { rule: "every target is hit by a fault of some step", found });
        }
        let Some(served) = &target.serving else { continue };
        if steps.iter().any(|step| hits(step, name) && !hits(step, served)) {
            let found = format!("{name} is hit in a step in which {served} is not");
            let rule =
                "the cache that serves a target can only be selected in a step that hits that target, too";
            faults.add(*at, Fault::Conflict { rule, found });
        }
    }
}

struct Head {
    id: Option<String>,
    title: Option<String>,
    environment: Option<Name>,
    seed: u32,
    repeat: Repeat,
    timeout: Nanos,
}

fn drill(section: &mut Section<'_, '_>, faults: &mut Faults) -> Head {
    let schema = section.number("schema", (SCHEMA, SCHEMA), faults);
    section.need("schema", &format!("the number {SCHEMA}"), schema);
    let id = section.id("id", faults);
    let id = section.need("id", "a name such as \"triple-loss\"", id);
    let title = section.line("title", faults).map(|at| at.value);
    let title = section.need("title", "what the drill does, in one line", title);
    let environment = section.name("environment", faults);
    let environment = section.need(
        "environment",
        "the label that the cluster was started with (`obol up --environment`)",
        environment,
    );
    let seed = section.number("seed", (0, u32::MAX), faults).map_or(1, |at| at.value);
    let timeout = section.span("timeout", (Nanos::from_secs(1), TIMEOUT_MAX), faults);
    let repeat = match section.section("repeat", faults) {
        Some(section) => section.read(faults, self::repeat),
        None => Repeat { count: 1, warmup: 0, gap: Nanos::from_millis(20), stop_after_failures: 1 },
    };
    Head {
        id,
        title,
        environment,
        seed,
        repeat,
        timeout: timeout.map_or(Nanos::from_secs(1800), |at| at.value),
    }
}

fn repeat(section: &mut Section<'_, '_>, faults: &mut Faults) -> Repeat {
    let count = section.number("count", (1, COUNT_MAX), faults).map(|at| at.value);
    let count = section.need("count", "how many repetitions, a whole number", count).unwrap_or(1);
    let warmup = section.number("warmup", (0, COUNT_MAX), faults).map_or(0, |at| at.value);
    let gap =
        section.span("gap", (Nanos::ZERO, SPAN_MAX), faults).map_or(Nanos::from_millis(20), |at| at.value);
    let failures = section.number("stop_after_failures", (1, COUNT_MAX), faults).map_or(1, |at| at.value);
    Repeat { count, warmup, gap, stop_after_failures: failures }
}

fn guards(section: &mut Section<'_, '_>, faults: &mut Faults) -> Guards {
    let mut guards = Guards::default();
    if let Some(most) = section.number("max_targets", (1, TARGETS_MAX), faults) {
        guards.max_targets = most.value;
    }
    if section.value("keep_acceptors").is_some_and(|value| value.get_ref().as_str().is_some()) {
        section.choice("keep_acceptors", &[("majority", Keep::Majority)], faults);
    } else if let Some(number) = section.number("keep_acceptors", (0, KEEP_ACCEPTORS_MAX), faults) {
        guards.keep_acceptors = Keep::Number(number.value);
    }
    if let Some(caches) = section.number("keep_lease_caches", (0, KEEP_CACHES_MAX), faults) {
        guards.keep_lease_caches = caches.value;
    }
    guards.deny_hosts =
        section.texts("deny_hosts", faults).unwrap_or_default().into_iter().map(|at| at.value).collect();
    guards.require_confirm = section.flag("require_confirm", faults).unwrap_or(false);
    guards.require_approval = section.flag("require_approval", faults).unwrap_or(false);
    guards.allow_clock_step = section.flag("allow_clock_step", faults).unwrap_or(false);
    guards.allow_undetected = section.flag("allow_undetected", faults).unwrap_or(false);
    if let Some(span) = section.span("dead_man", DEAD_MAN, faults) {
        guards.dead_man = span.value;
    }
    for condition in section.sections("abort", faults) {
        if condition.has("probe") {
            guards.watch.extend(condition.read(faults, external::watch));
        } else {
            guards.abort.extend(condition.read(faults, abort));
        }
    }
    guards
}

/// `{ when = "unavailable_us > 5000", samples = 2 }`
fn abort(section: &mut Section<'_, '_>, faults: &mut Faults) -> Option<Abort> {
    let when = section.line("when", faults);
    let when = section.need("when", "a condition such as \"unavailable_us > 5000\"", when);
    let samples = section.number("samples", (1, COUNT_MAX), faults).map_or(1, |at| at.value);
    let path = section.key("when");
    let At { at, value } = when?;
    match condition(&path, &value) {
        Ok((metric, above)) => Some(Abort { metric, above, samples }),
        Err(fault) => {
            faults.add(at, fault);
            None
        }
    }
}

fn condition(path: &str, text: &str) -> Result<(AbortMetric, f64), Fault> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let wrong = || Fault::WrongType {
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

fn targets(section: &Section<'_, '_>, faults: &mut Faults) -> (Vec<Target>, Vec<String>, Vec<usize>) {
    let (mut targets, mut places) = (Vec::new(), Vec::new());
    let names: Vec<String> = section.entries().map(|(name, _)| name.to_owned()).collect();
    let mut references = Vec::new();
    for (name, value) in section.entries() {
        let path = section.key(name);
        if let Some((target, serving)) = Section::of(&path, value, faults)
            .and_then(|table| table.read(faults, |section, faults| target(name, section, faults)))
        {
            references.extend(serving.map(|reference| (targets.len(), reference)));
            targets.push(target);
            places.push(value.span().start);
        }
    }
    for (of, Reference { at, key, name }) in references {
        match known_target(&key, &name, &names) {
            Ok(()) => targets[of].serving = Some(name),
            Err(fault) => faults.add(at, fault),
        }
    }
    (targets, names, places)
}

/// Rejects an unknown target name.
fn known_target(path: &str, name: &str, names: &[String]) -> Result<(), Fault> {
    let known = || names.iter().map(String::as_str);
    if known().any(|other| other == name) {
        return Ok(());
    }
    if names.is_empty() {
        return Err(Fault::Other(format!("{path} is {:?}, but [targets] has none", shortened(name))));
    }
    Err(Fault::Choice {
        key: path.to_owned().into(),
        found: shortened(name),
        options: known().map(|name| name.to_owned().into()).collect(),
        nearest: nearest(name, known()).map(|name| name.to_owned().into()),
    })
}

fn target(
    name: &str,
    section: &mut Section<'_, '_>,
    faults: &mut Faults,
) -> Option<(Target, Option<Reference>)> {
    let kind = section.choice("kind", TargetKind::ALL, faults).map(|at| at.value);
    let kind = section.need("kind", "app, agent, node, coordinator or lease-cache", kind);
    let word = section.choice("select", &SELECTS, faults);
    let fixed = section
        .number("fixed", (1, TARGETS_MAX), faults)
        .map(|n| At { at: n.at, value: Select::Fixed(n.value) });
    let percent =
        section.number("percent", (1, 100), faults).map(|n| At { at: n.at, value: Select::Percent(n.value) });
    let named = section.name("name", faults).map(|name| At { at: section.at, value: Select::Named(name) });
    let mut ways: Vec<At<Select>> = [word, fixed, percent, named].into_iter().flatten().collect();
    if ways.len() > 1 {
        let found = "several of them are set".to_owned();
        faults.add(
            ways[1].at,
            Fault::Conflict { rule: "a target has one of select, fixed, percent and name", found },
        );
    }
    let first = (!ways.is_empty()).then(|| ways.swap_remove(0));
    let way = match first {
        // Its bad value is reported.
        None if ["fixed", "percent", "name"].iter().any(|key| section.has(key)) => None,
        first => section.need(
            "select",
            "one, all, minority, majority or leader; or fixed, percent or name in its place",
            first,
        ),
    };
    let serving = section.line("serving", faults);
    let path = section.key("serving");
    let (kind, way) = (kind?, way?);
    if let Some(At { at, .. }) = &serving
        && (kind != TargetKind::LeaseCache || way.value != Select::One)
    {
        let found = format!("kind is {:?}", kind.name());
        faults.add(
            *at,
            Fault::Conflict {
                rule: "serving selects one lease cache (kind = \"lease-cache\", select = \"one\")",
                found,
            },
        );
    }
    let serving = serving.map(|At { at, value }| Reference { at, key: path, name: value });
    if way.value == Select::Leader && kind != TargetKind::Coordinator {
        let found = format!("kind is {:?}", kind.name());
        faults.add(way.at, Fault::Conflict { rule: "only a coordinator can lead", found });
    }
    let target = Target { name: name.to_owned(), kind, select: way.value, serving: None };
    Some((target, serving))
}

fn steady(section: &mut Section<'_, '_>, faults: &mut Faults) -> Option<Steady> {
    let probe = section.choice("probe", Probe::ALL, faults).map(|at| at.value);
    let probe = section.need("probe", "the probe, such as \"view.converged\"", probe);
    let tolerance = section.flag("tolerance", faults).unwrap_or(true);
    let path = section.key("phase");
    let phases = section.some_texts("phase", faults);
    let (mut before, mut after) = (phases.is_none(), phases.is_none());
    for At { at, value } in phases.unwrap_or_default() {
        match chosen(&path, &value, &PHASES) {
            Ok(false) => before = true,
            Ok(true) => after = true,
            Err(fault) => faults.add(at, fault),
        }
    }
    let external = match probe {
        Some(probe) => external::parse(probe, section, faults),
        None => {
            section.spare(external::keys().iter().map(|(key, _)| key.name));
            None
        }
    };
    Some(Steady { probe: probe?, external, tolerance, before, after })
}

fn step(section: &mut Section<'_, '_>, at: usize, context: &Context, faults: &mut Faults) -> Option<Step> {
    let name = section.line("name", faults).map(|at| at.value);
    let name = section.need("name", "the name of the step", name);
    let own = if at == 0 { On::Cue } else { On::Settled };
    let on = section.choice("on", &CUES, faults);
    if let Some(on) = on.as_ref().filter(|on| on.value != own) {
        let (rule, found) = match own {
            On::Cue => ("the first step of a repetition happens on its cue", "on is \"settled\""),
            On::Settled => (
                "a later step happens when the one before has settled; put faults of one cue into one step",
                "on is \"cue\"",
            ),
        };
        faults.add(on.at, Fault::Conflict { rule, found: found.to_owned() });
    }
    let skew = section.span("max_cue_skew", (SPAN_MIN, Nanos::from_secs(1)), faults).map(|at| at.value);
    let tables = section.some_sections("fault", faults);
    let several = tables.len();
    if let Some(beyond) = tables.get(INJECTIONS_MAX) {
        let (found, key) = (format!("{several} tables"), section.key("fault").into());
        let (low, high) = ("1".to_owned(), INJECTIONS_MAX.to_string());
        faults.add(beyond.at, Fault::Bounds { key, found, low, high });
    }
    let mut list: Vec<StepFault> = Vec::new();
    for table in tables {
        list.extend(table.read(faults, |section, faults| fault(section, context, faults)));
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
    faults: &mut Faults,
) -> Option<Vec<String>> {
    let path = section.key("target");
    let names = section.some_texts("target", faults)?;
    for At { at, value } in &names {
        if let Err(fault) = known_target(&path, value, &context.names) {
            faults.add(*at, fault);
        }
    }
    Some(names.into_iter().map(|at| at.value).collect())
}

fn fault(section: &mut Section<'_, '_>, context: &Context, faults: &mut Faults) -> Option<StepFault> {
    let kinds: Vec<_> = KINDS.iter().map(|kind| (kind.name(), *kind)).collect();
    let kind = section.choice("kind", &kinds, faults).map(|at| at.value);
    let kind = section.need("kind", "the fault, such as \"kill\"", kind);
    let Some(kind) = kind else {
        section.spare(COMMON_KEYS);
        section.spare(KINDS.iter().flat_map(|kind| kind.keys()).map(|key| key.name));
        return None;
    };
    let kind = kind.parse(section, faults);
    let mut targets = Vec::new();
    if kind.scope() != Scope::Host {
        let named = target_names(section, context, faults);
        targets = section
            .need("target", "its targets: one or several names of [targets]", named)
            .unwrap_or_default();
    }
    let mut lasts = None;
    if !kind.effect().ends() {
        lasts = section.span("for", (Nanos::from_millis(1), SPAN_MAX), faults).map(|at| at.value);
        let wanted = format!(
            "how long it lasts, a duration up to \"{}\"; then it is undone",
            duration::print(SPAN_MAX)
        );
        lasts = section.need("for", &wanted, lasts);
    }
    let expect = section.choice("expect", &EXPECTATIONS, faults);
    if let Some(At { at, .. }) = expect.as_ref().filter(|_| kind.effect() != Effect::Stops) {
        let rule = "only a pause (kind = \"freeze\") has an expectation; what others must not exceed is in [[expect]]";
        faults.add(*at, Fault::Conflict { rule, found: format!("kind is {:?}", kind.name()) });
    }
    Some(StepFault { kind, targets, lasts, tolerated: expect.is_some_and(|at| at.value) })
}

fn expect(
    section: &mut Section<'_, '_>,
    context: &Context,
    steps: &[Step],
    faults: &mut Faults,
) -> Option<Expect> {
    let metric = section.choice("metric", Metric::ALL, faults);
    let metric = section.need("metric", "the figure, such as \"failover.cue_to_active\"", metric);
    let Some(At { at, value: metric }) = metric else {
        section.spare(Percentile::ALL.iter().map(|(name, _)| *name).chain(["at_most"]));
        return None;
    };
    let silences = steps.iter().flat_map(|step| &step.faults).any(StepFault::silences);
    if metric.is_of_failover() && !silences && faults.is_empty() {
        let found = format!("{} is bounded", metric.name());
        let rule = "a failover is measured only if a fault silences a process (kill, freeze, partition or link-error) and is \
                    not expected to be tolerated";
        faults.add(at, Fault::Conflict { rule, found });
    }
    let mut expect = Expect { metric, bounds: Vec::new(), at_most: None };
    if metric.is_count() {
        let most = section.number("at_most", (0, u32::MAX), faults).map(|at| at.value);
        expect.at_most = section.need("at_most", "the largest count that passes", most);
    } else {
        for &(name, percentile) in Percentile::ALL {
            let Some(bound) = section.span(name, (SPAN_MIN, SPAN_MAX), faults) else { continue };
            let needed = percentile.samples_min();
            if context.count < needed {
                let found =
                    format!("{} needs {needed}, drill.repeat.count is {}", section.key(name), context.count);
                let rule =
                    "a percentile needs enough repetitions for 95 % confidence that one of them reached it";
                faults.add(bound.at, Fault::Conflict { rule, found });
            }
            expect.bounds.push((percentile, bound.value));
        }
        let any = (!expect.bounds.is_empty()).then_some(());
        section.need("p50", "a bound: p50, p90, p99, p999 or max", any);
    }
    Some(expect)
}

fn rollback(
    section: &mut Section<'_, '_>,
    context: &Context,
    steps: &[Step],
    faults: &mut Faults,
) -> Rollback {
    let mut rollback = Rollback { strategy: Strategy::Always, restart: Vec::new() };
    let strategy = section.choice("strategy", &STRATEGIES, faults);
    for action in section.sections("actions", faults) {
        let at = action.at;
        let names = action.read(faults, |action, faults| {
            let kind = action.choice("kind", &[("restart", ())], faults);
            action.need("kind", "\"restart\"; reversible faults are always undone", kind);
            let names = target_names(action, context, faults);
            action.need("target", "one or several names of [targets]", names).unwrap_or_default()
        });
        let kills = |name: &String| steps.iter().flat_map(|step| &step.faults).any(|fault| fault.ends(name));
        if let Some(name) = names.iter().find(|name| faults.is_empty() && !kills(name)) {
            let (rule, found) =
                ("only targets that a step kills can be restarted", format!("nothing kills {name}"));
            faults.add(at, Fault::Conflict { rule, found });
        }
        rollback.restart.extend(names);
    }
    if let Some(At { at, value }) = strategy {
        if value == Strategy::Never && !rollback.restart.is_empty() {
            let found = "there are actions".to_owned();
            faults.add(at, Fault::Conflict { rule: "strategy = \"never\" takes no action", found });
        }
        rollback.strategy = value;
    }
    rollback
}

fn report(section: &mut Section<'_, '_>, faults: &mut Faults) -> ReportFiles {
    let mut files = ReportFiles::default();
    let mut taken: Vec<String> = Vec::new();
    for (key, usual) in ReportFiles::DEFAULTS {
        let Some(At { at, value }) = section.line(key, faults) else { continue };
        // The files always stay in the output directory.
        if value.contains('/') || value.starts_with('.') {
            let wanted = format!("a plain file name such as {usual:?}; --out sets the directory");
            let found = format!("{:?}", shortened(&value));
            faults.add(at, Fault::WrongType { key: section.key(key).into(), found, wanted });
        } else if taken.contains(&value) {
            let found = format!("{} is {:?}, like another file", section.key(key), shortened(&value));
            faults.add(at, Fault::Conflict { rule: "every file of a report needs a name of its own", found });
        } else if let Some(place) = files.place(key) {
            taken.push(value.clone());
            *place = Some(value);
        }
    }
    files
}
