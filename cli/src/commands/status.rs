//! `obol status`: one look at a cluster, for people and for scripts.

use clap::Args;
use obol_chaos::drills::agent::halt;
use obol_chaos::drills::agent::undo_record::left_by_drills;
use obol_deaths::Detection;
use obol_fabric::{Name, Nanos};
use obol_fabric_ip::{PulsePath, PulsePeer, PulseReport};
use obol_membership::metrics::Counter;
use obol_node::fate;
use obol_node::network::Fabric;
use obol_observe::advice::{self, Advice};
use obol_observe::annotations::Marks;
use obol_observe::calendar::{self, age, iso, unix_now};
use obol_observe::figures::total;
use obol_observe::incidents::incident::Incident;
use obol_observe::incidents::incident_json;
use obol_observe::process_json::ProcessJson;
use obol_observe::pulse_json;
use obol_observe::replacement::Replacement;
use obol_observe::sampling::data::Data;
use obol_observe::sampling::sample::{Cost, MarkRow, Sample};
use obol_observe::table;
use obol_observe::{
    Gateway, Health, ObservedEvent, Observer, Snapshot, certificate_days, certificate_warning, examine_keys,
    judge, least_duties, warnings,
};
use obol_term::output::{self, Failure};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Show a cluster's health; exit code 0 healthy, 1 degraded, 2 unreachable, 3 unavailable, 4 unknown
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes:\n  0  healthy\n  1  degraded: something is missing, and programs may act\n  \
    2  unreachable: no process of it lives, as far as can be read, or there is no such cluster\n  \
    3  unavailable: processes live and no program may act; no majority of the coordinators can decide, every lease has ended or begins later, or no program is a member\n  \
    4  unknown: no program is seen that may act, and hosts where some may run cannot be read\n\
    \nBelow a reason stands since when it is so, where that is known, and what to do.\n\
    \nExpected are the processes that the cluster was started with, the coordinators that decide, and every program that was \
    a member (obol run, libobol): it is missed until it is back, or gone by an operator's word, which is `obol stop`, a \
    leave of its own, or `obol forget`. A program without its agent, and a replicated store that does not serve or lacks copies, \
    make the cluster degraded."
)]
pub(crate) struct Status {
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
    /// Print all counters of the gateway, also those that are zero
    #[arg(long, short)]
    verbose: bool,
}

/// A process in JSON.
#[derive(Serialize)]
struct LoggedJson<'a> {
    #[serde(flatten)]
    process: ProcessJson<'a>,
    /// Its log, if it writes one on this host.
    log: Option<LogJson>,
}

/// What a process says of its log.
#[derive(Serialize)]
struct LogJson {
    levels: String,
    to: String,
    /// Lines that were dropped because too many waited.
    dropped: u64,
    /// Lines that could not be written.
    unwritten: u64,
}

/// What is said beside a reason, in JSON.
#[derive(Serialize)]
struct AdviceJson<'a> {
    reason: &'a str,
    /// In UTC; none if it is not known.
    since: Option<String>,
    /// What to do; none if the reason says it.
    remedy: Option<String>,
}

impl<'a> AdviceJson<'a> {
    fn of(reason: &'a String, advice: Advice) -> Self {
        Self { reason, since: advice.since.map(iso), remedy: advice.remedy }
    }
}

/// What consoles derive from the same.
fn derived(
    dir: &Path,
    snapshot: &Snapshot,
    events: &[ObservedEvent],
    advice: &[Advice],
) -> (Data, Arc<Sample>) {
    let mut sample = Sample::new(snapshot.clone(), events, unix_now(), Cost::default());
    sample.advice = advice.to_vec();
    // Notes are not needed for the health.
    sample.marks = Marks::new(dir).news().unwrap_or_default().into_iter().map(MarkRow::from).collect();
    let (mut data, sample) = (Data::default(), Arc::new(sample));
    data.take(Arc::clone(&sample));
    (data, sample)
}

/// The line below a reason, if there is anything to say.
fn advice_line(Advice { since, remedy, .. }: &Advice, now: u64) -> Option<String> {
    let since = since.map(|since| {
        format!("since {} UTC ({} ago)", calendar::utc(since, "%F %T"), age(Nanos(now.saturating_sub(since))))
    });
    let parts: Vec<String> = since.into_iter().chain(remedy.clone()).collect();
    (!parts.is_empty()).then(|| parts.join(": "))
}

/// A cluster in JSON. Times in microseconds.
#[derive(Serialize)]
struct StatusJson<'a> {
    cluster: &'a str,
    health: Health,
    reasons: &'a [String],
    /// What is said beside each reason, in their order.
    advice: Vec<AdviceJson<'a>>,
    /// What belongs together of it, each in a sentence, with what the cluster did about it.
    incidents: Vec<Value>,
    /// What may go wrong later; the health does not count it.
    warnings: Vec<String>,
    view: Option<u64>,
    base: Option<u64>,
    /// The release whose formats and behaviour all members understand: that of the oldest.
    release: Option<String>,
    leader: Option<String>,
    profile: &'a str,
    /// What reports first that a process died: `module`, `ebpf`, or `futex+pidfd`.
    deadbeat: Option<&'static str>,
    /// How coordinators are replaced without an operator; where one looks at flight recorders, too.
    replacement: Option<Replacement>,
    /// The gateway of this host, in a cluster of several.
    gateway: Option<GatewayJson>,
    /// By what the hosts know each other, in a cluster over RDMA.
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma: Option<RdmaJson>,
    processes: Vec<LoggedJson<'a>>,
}

/// The gateway of this host.
#[derive(Serialize)]
struct GatewayJson {
    alive: bool,
    /// Its name, or that of the one that ran last.
    name: Option<String>,
    /// Its pid and version; none if it does not run.
    pid: Option<u32>,
    version: Option<String>,
    /// Whether it is stopped, so that no other host reaches this one.
    frozen: bool,
    /// For how many more days the host's certificate is valid; none if it is not.
    certificate_days: Option<u32>,
    /// Why this host cannot use its keys, such as those of another host; none if it can.
    certificate_fault: Option<String>,
    /// What it has let in and refused since it was started.
    counters: BTreeMap<&'static str, u64>,
    /// What the pulses of other hosts show, if the profile has any.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "pulse_json::with_units")]
    pulses: Option<PulseReport>,
}

impl GatewayJson {
    fn of(observer: &Observer) -> Option<Self> {
        let gateway = Gateway::read(observer)?;
        Some(Self {
            alive: gateway.counters.is_some(),
            name: gateway.name.map(|name| name.to_string()),
            pid: gateway.running.map(|running| running.process.pid),
            version: gateway.running.map(|running| running.version.to_string()),
            frozen: matches!(
                judge::Gateway::of(observer.deployment(), observer.cluster()),
                judge::Gateway::Frozen(_)
            ),
            certificate_days: gateway.certificate_days(),
            certificate_fault: gateway.fault.clone(),
            counters: gateway.named().collect(),
            pulses: observer.pulses().cloned(),
        })
    }

    /// One line; counters that are zero only if it is to be `verbose`.
    fn line(&self, verbose: bool) -> String {
        let counters = counted(&self.counters, verbose, "nothing admitted");
        let days = certificate_state(self.certificate_days, self.certificate_fault.as_deref());
        let state = match (self.alive, self.frozen) {
            (false, _) => "down".to_owned(),
            (true, true) => format!("frozen (stopped); {counters}"),
            (true, false) => counters,
        };
        let name = self.name.as_deref().unwrap_or("gateway");
        let process = self.pid.zip(self.version.as_ref());
        let process = process.map_or(String::new(), |(pid, version)| format!(" (pid {pid}, {version})"));
        format!("{name}{process}: {state}; certificate {days}")
    }

    /// One line for each host whose pulses are judged.
    fn pulse_lines(&self) -> Vec<String> {
        let Some(report) = &self.pulses else { return Vec::new() };
        let line = |peer: &PulsePeer| {
            let host = peer.host;
            if !peer.heard {
                return format!("pulses of host {host}: none yet");
            }
            let path = |path: &PulsePath| {
                let state: &str = path.state.into();
                format!("{} {state}", path.address)
            };
            let paths: Vec<_> = peer.paths.iter().map(path).collect();
            let silent = if peer.silent { "silent; " } else { "" };
            let gap = peer.block.as_ref().filter(|block| block.gap_max > 0 && !peer.silent).map(|block| {
                format!(
                    "; longest gap {} in the last second, timeout {}",
                    Nanos(block.gap_max),
                    Nanos(report.timeout)
                )
            });
            format!("pulses of host {host}: {silent}{}{}", paths.join(", "), gap.unwrap_or_default())
        };
        report.peers.iter().map(line).collect()
    }
}

/// What is refused over RDMA.
const REFUSED: [Counter; 5] = [
    Counter::Strangers,
    Counter::ConnectionsRefused,
    Counter::Unintroduced,
    Counter::DatagramsRefused,
    Counter::DatagramsUnknown,
];

/// By what the hosts of a cluster over RDMA know each other.
#[derive(Serialize)]
struct RdmaJson {
    /// Whether connections and datagrams are authenticated. Otherwise the network is trusted.
    authenticated: bool,
    certificate_days: Option<u32>,
    certificate_fault: Option<String>,
    /// What the processes of this host have refused, all together.
    counters: BTreeMap<&'static str, u64>,
}

impl RdmaJson {
    /// `None` in a cluster that does not use RDMA.
    fn of(observer: &Observer, snapshot: &Snapshot) -> Option<Self> {
        let network = observer.deployment().network.as_ref()?;
        if network.fabric != Fabric::Rdma {
            return None;
        }
        let examined = network.keys().map(|keys| examine_keys(keys, network, &least_duties(network)));
        let authenticated = examined.is_some();
        let (valid_for, certificate_fault) = examined.unwrap_or_default();
        let certificate_days = valid_for.and_then(certificate_days);
        let sum = |counter: &Counter| {
            (counter.name(), total(snapshot.processes.iter().map(|process| process.counter(*counter))))
        };
        let counters = REFUSED.iter().map(sum).collect();
        Some(Self { authenticated, certificate_days, certificate_fault, counters })
    }

    /// One line; counters that are zero only if it is to be `verbose`.
    fn line(&self, verbose: bool) -> String {
        if !self.authenticated {
            return "RDMA: the network is trusted: connections and datagrams are not authenticated (keys = \"none\")".to_owned();
        }
        let certificate = certificate_state(self.certificate_days, self.certificate_fault.as_deref());
        format!("RDMA: {}; certificate {certificate}", counted(&self.counters, verbose, "nothing refused"))
    }
}

/// Counters on a line; those that are zero only if it is to be `verbose`.
fn counted(counters: &BTreeMap<&'static str, u64>, verbose: bool, none: &str) -> String {
    let shown = counters.iter().filter(|(_, n)| verbose || **n > 0);
    let counters: Vec<String> = shown.map(|(name, n)| format!("{n} {}", name.replace('_', " "))).collect();
    if counters.is_empty() { none.to_owned() } else { counters.join(", ") }
}

fn certificate_state(days: Option<u32>, fault: Option<&str>) -> String {
    match days {
        _ if fault.is_some() => "not usable by this host".to_owned(),
        None => "not valid".to_owned(),
        Some(n) => format!("valid for {n} days"),
    }
}

/// What is known without a snapshot.
fn blank<'a>(cluster: &'a Name, health: Health, reasons: &'a [String]) -> StatusJson<'a> {
    StatusJson {
        cluster: cluster.as_str(),
        health,
        reasons,
        advice: Vec::new(),
        incidents: Vec::new(),
        warnings: Vec::new(),
        view: None,
        base: None,
        release: None,
        leader: None,
        profile: "",
        deadbeat: None,
        replacement: None,
        gateway: None,
        rdma: None,
        processes: Vec::new(),
    }
}

/// The snapshot as scripts get it.
fn json<'a>(cluster: &'a Name, profile: &'a str, snapshot: &'a Snapshot) -> StatusJson<'a> {
    let view = snapshot.view.as_ref();
    let all = [(&snapshot.processes, false), (&snapshot.remote, true)].into_iter();
    let one = |p, distant| LoggedJson { process: ProcessJson::of(p, distant, snapshot), log: None };
    StatusJson {
        view: view.map(|view| view.id.0),
        base: view.map(|view| view.base.0),
        release: view.and_then(|view| view.release()).map(|release| release.to_string()),
        leader: snapshot.leader_name().map(|name| name.to_string()),
        profile,
        deadbeat: snapshot.detection().map(Detection::name),
        processes: all.flat_map(|(all, distant)| all.iter().map(move |p| one(p, distant))).collect(),
        ..blank(cluster, snapshot.health, &snapshot.reasons)
    }
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Status) -> Result<ExitCode, Failure> {
    let mut observer = match Observer::open(root, cluster) {
        Ok(observer) => observer,
        Err(error) => return unreachable(cluster, &error, args.json),
    };
    let snapshot = observer.snapshot();
    let events = observer.events();
    let replacement = Replacement::of(&observer, &snapshot, &events);
    let advice = advice::of(&observer, &snapshot, &events);
    let (data, sample) = derived(observer.cluster().dir(), &snapshot, &events, &advice);
    let advice = snapshot.reasons.iter().zip(advice).map(|(reason, said)| said.beside(reason));
    let advice: Vec<Advice> = advice.collect();
    let incidents = data.incidents();
    if args.json {
        let profile = observer.deployment().profile.name.to_string();
        let warnings = warnings(&observer, &snapshot);
        let replacement = Some(replacement);
        let (gateway, rdma) = (GatewayJson::of(&observer), RdmaJson::of(&observer, &snapshot));
        let advice = snapshot.reasons.iter().zip(advice).map(|(reason, said)| AdviceJson::of(reason, said));
        let advice = advice.collect();
        let incidents = incidents.iter().map(|one| incident_json(one, &sample)).collect();
        let status = json(&cluster, &profile, &snapshot);
        let mut status = StatusJson { advice, incidents, warnings, replacement, gateway, rdma, ..status };
        for LoggedJson { process, log } in status.processes.iter_mut().filter(|one| !one.process.distant) {
            *log = logged(&observer, process);
            process.ended = ended(&observer, process);
        }
        output::json(&status)?;
    } else {
        output::line(table::headline(cluster, &snapshot))?;
        let now = unix_now();
        for (reason, said) in snapshot.reasons.iter().zip(&advice) {
            output::line(format_args!("  ! {reason}"))?;
            if let Some(line) = advice_line(said, now) {
                output::line(format_args!("      {line}"))?;
            }
            let incident = incidents.iter().find(|one| one.fact == *reason);
            if let Some(story) = incident.and_then(Incident::story) {
                output::line(format_args!("      {story}"))?;
            }
        }
        for warning in warnings(&observer, &snapshot) {
            output::line(format_args!("  ~ {warning}"))?;
        }
        if let Some(gateway) = GatewayJson::of(&observer) {
            output::line(format_args!("  {}", gateway.line(args.verbose)))?;
            for line in gateway.pulse_lines() {
                output::line(format_args!("  {line}"))?;
            }
        }
        if let Some(rdma) = RdmaJson::of(&observer, &snapshot) {
            output::line(format_args!("  {}", rdma.line(args.verbose)))?;
        }
        if let Some(line) = replacement.line() {
            output::line(format_args!("  {line}"))?;
        }
        for line in table::lines(&snapshot, None) {
            output::line(line)?;
        }
        if snapshot.health == Health::Unreachable {
            output::line(to_begin(observer.deployment().is_prepared()))?;
        }
    }
    Ok(ExitCode::from(snapshot.health.exit_code()))
}

/// What a process says of its log. One that has no log has that of an earlier process of its name.
fn logged(observer: &Observer, process: &ProcessJson<'_>) -> Option<LogJson> {
    let state = obol_logs::state(observer.cluster().dir(), process.name).ok().flatten()?;
    let obol_logs::State { pid, levels, to, dropped, unwritten, .. } = state;
    (pid == process.pid).then_some(LogJson { levels, to, dropped, unwritten })
}

/// How a dead process of this host ended, if its supervisor has noted it.
fn ended(observer: &Observer, process: &ProcessJson<'_>) -> Option<String> {
    let fate = fate::of(observer.cluster().dir(), process.name).filter(|_| !process.alive)?;
    (process.pid == fate.pid).then_some(fate.how)
}

/// Logs that lack lines.
fn lost_lines(observer: &Observer) -> impl Iterator<Item = String> {
    let lacks = |(name, state): (String, obol_logs::State)| {
        let lost = total([state.dropped, state.unwritten]);
        let why = state.trouble.map_or(String::new(), |why| format!(": {why}"));
        (lost > 0).then(|| format!("{lost} lines are missing in the log of {name}{why}"))
    };
    obol_logs::states(observer.cluster().dir()).filter_map(lacks)
}

/// What to do if no process lives.
const fn to_begin(is_prepared: bool) -> &'static str {
    if is_prepared {
        "no process of it lives on this host; start its gateway, coordinator and agent (`obol host prepare` has made their memory)"
    } else {
        "no process of it lives; `obol down` removes what is left, `obol up` starts a new one"
    }
}

/// What may go wrong later, and what waits.
fn warnings(observer: &Observer, snapshot: &Snapshot) -> Vec<String> {
    let gateway = GatewayJson::of(observer).and_then(|gateway| {
        certificate_warning(gateway.certificate_days, gateway.certificate_fault.as_deref())
    });
    let rdma = RdmaJson::of(observer, snapshot)
        .filter(|rdma| rdma.authenticated)
        .and_then(|rdma| certificate_warning(rdma.certificate_days, rdma.certificate_fault.as_deref()))
        // Members and gateways have the same keys.
        .filter(|warning| gateway.as_ref() != Some(warning));
    let halted = halt::in_force(observer.cluster().dir());
    let left = left_by_drills(observer.cluster());
    warnings::not_real_time(&observer.deployment().profile, snapshot)
        .into_iter()
        .chain(warnings::two_releases(snapshot))
        .chain(gateway)
        .chain(rdma)
        .chain(warnings::held_joins(snapshot))
        .chain(halted)
        .chain(left)
        .chain(lost_lines(observer))
        .collect()
}

/// A cluster that cannot be read is an answer, too: scripts get an object with the same keys.
fn unreachable(cluster: Name, error: &obol_node::SiteError, as_json: bool) -> Result<ExitCode, Failure> {
    if !as_json {
        return Err(Failure::refused(error));
    }
    output::json(&blank(&cluster, Health::Unreachable, &[error.to_string()]))?;
    Ok(ExitCode::from(Health::Unreachable.exit_code()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrambled::scrambled;

    /// Whatever processes have in their memory: `status` says what can be said of it.
    #[test]
    fn regions_of_any_bytes_have_a_status() {
        const ROUNDS: u64 = 300;
        let mut read = 0;
        scrambled(ROUNDS, |root, cluster, scramble| {
            // One of another release is refused.
            let Ok(mut observer) = Observer::open(root, cluster) else { return };
            for _ in 0..2 {
                let snapshot = observer.snapshot();
                let events = observer.events();
                let replacement = Replacement::of(&observer, &snapshot, &events);
                let advice = advice::of(&observer, &snapshot, &events);
                assert_eq!(advice.len(), snapshot.reasons.len());
                let lines = table::lines(&snapshot, None);
                read += lines.iter().filter(|line| line.contains("app-1")).count();
                let texts = [table::headline(cluster, &snapshot), replacement.line().unwrap_or_default()];
                assert!(!texts[0].is_empty());
                let warnings = warnings(&observer, &snapshot);
                let replacement = Some(replacement);
                let status = StatusJson { warnings, replacement, ..json(&cluster, "laptop", &snapshot) };
                serde_json::to_string(&status).expect("it can be written");
                scramble();
            }
        });
        assert!(read > 0, "no region was read");
    }
}
