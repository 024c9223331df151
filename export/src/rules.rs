//! Alert rules for Prometheus, from a profile's thresholds.

use crate::queries::Queries;
use obol_fabric::Nanos;
use obol_fabric_ip::GatewayCounter;
use obol_membership::metrics::Counter;
use obol_observe::CERTIFICATE_DAYS_FEW;
use obol_observe::metrics::text::{bounds, seconds};
use obol_observe::metrics::{Derived, Metric, Part};
use obol_profiles::Profile;
use std::fmt::Write as _;

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub name: &'static str,
    /// Its expression, which has a value while there is cause for alarm.
    pub expr: String,
    /// For how long that has to hold.
    pub hold: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What it is, in a line.
    pub summary: String,
    /// What it means, and what to do.
    pub description: String,
}

/// Where the package installs the page with a section for each alert.
pub const RUNBOOKS: &str = "file:///usr/share/doc/obol/docs/alerts.md";

/// How bad an alert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Programs cannot act, or safety is at stake.
    Critical,
    /// It will become critical if nothing is done.
    Warning,
    /// Worth knowing.
    Info,
}

impl Severity {
    /// The value of the label `severity`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

const OF_CLUSTER: &str = "cluster {{ $labels.cluster }}";
const OF_PROCESS: &str = "{{ $labels.process }} of cluster {{ $labels.cluster }}";
const OF_HOST: &str = "the host of {{ $labels.instance }}, cluster {{ $labels.cluster }}";

/// The thresholds of the profile are numbers in a minute.
const MINUTE: Queries = Queries { matchers: "", range: "1m" };
/// For what must not happen at all: long enough that a rare scrape misses nothing.
const RECENT: Queries = Queries { matchers: "", range: "5m" };

/// Of several exporters of one cluster, one suffices for good news.
fn best(metric: impl Into<Metric>) -> String {
    format!("max by (cluster) ({})", MINUTE.series(metric))
}

fn worst(metric: impl Into<Metric>) -> String {
    format!("min by (cluster) ({})", MINUTE.series(metric))
}

fn rule(
    name: &'static str,
    severity: Severity,
    (expr, hold): (String, &'static str),
    summary: String,
    description: String,
) -> Rule {
    Rule { name, expr, hold, severity, summary, description }
}

/// All alerts, by what they are about: the cluster, its leases and detectors, its failovers,
/// gateways, the exporter.
pub fn rules(profile: &Profile) -> Vec<Rule> {
    let mut all = of_cluster(profile);
    all.extend(of_leases(profile));
    all.extend(of_failovers(profile));
    all.extend(of_gateways());
    all.extend(of_exporters());
    all
}

fn of_cluster(profile: &Profile) -> Vec<Rule> {
    let least = profile.alert.spare_coordinators;
    let health = MINUTE.matching(Derived::Health, "state=\"degraded\"");
    let unknown = MINUTE.matching(Derived::Health, "state=\"unknown\"");
    let stale = seconds(profile.alert.stale_after);
    vec![
        rule(
            "ObolUnavailable",
            Severity::Critical,
            (format!("{} == 0", best(Derived::Serves)), "5s"),
            format!("No program of {OF_CLUSTER} may act"),
            "No majority of the coordinators can decide, every lease has ended, or no program is a member. \
             `obol status` has the reasons; if coordinators lost their memory, see `obol coordinator recover`."
                .to_owned(),
        ),
        rule(
            "ObolDegraded",
            Severity::Warning,
            (format!("max by (cluster) ({health}) == 1"), "1m"),
            format!("Something is missing in {OF_CLUSTER}"),
            "Programs may act, and a member that is expected does not run or is not active, or a replicated store does \
             not serve or lacks copies. `obol status` says which; `obol forget` says that one has gone for good."
                .to_owned(),
        ),
        rule(
            "ObolUnknown",
            Severity::Warning,
            (format!("min by (cluster) ({unknown}) == 1"), "30s"),
            format!("Whether any program of {OF_CLUSTER} may act is not known"),
            "No exporter sees a program that may act, and each cannot read other hosts, where some may run. \
             `obol status` on each host has the reasons; see whether the gateways run."
                .to_owned(),
        ),
        rule(
            "ObolMajorityAtRisk",
            Severity::Warning,
            (
                format!(
                    "({} >= 0) < {least} and {} < {}",
                    worst(Derived::DecidersSpare),
                    worst(Derived::DecidersRunning),
                    best(Derived::Deciders)
                ),
                "15s",
            ),
            format!("Only {{{{ $value }}}} more coordinators of {OF_CLUSTER} may fail"),
            format!(
                "A coordinator is missing, and fewer than {least} others may fail before every lease ends \
                 (alert.spare_coordinators). Start it again, or replace it: `obol coordinator replace`."
            ),
        ),
        rule(
            "ObolProcessFrozen",
            Severity::Warning,
            (format!("{} == 1", MINUTE.series(Derived::Frozen)), "30s"),
            // An exporter knows it of its own host alone.
            format!("{OF_PROCESS} is stopped on the host of {{{{ $labels.instance }}}}"),
            "A signal (SIGSTOP) or a debugger stopped {{ $labels.process }}. On the host of {{ $labels.instance }}, \
             `obol status` has its pid and the command that continues it (`kill -CONT PID`)."
                .to_owned(),
        ),
        rule(
            "ObolProcessStale",
            Severity::Warning,
            (format!("{} > {stale}", MINUTE.series(Derived::ReadAge)), "15s"),
            format!("{OF_PROCESS} was last read consistently {{{{ $value | humanizeDuration }}}} ago"),
            format!(
                "It runs, and its lease page cannot be read whole for more than {stale} s (alert.stale_after): it \
                 may have stopped while it published. `obol events` has its last steps."
            ),
        ),
        rule(
            "ObolJoinOnHold",
            Severity::Warning,
            (format!("{} > 0", MINUTE.series(Derived::JoinHold)), "0s"),
            format!("The join of {OF_PROCESS} is on hold for {{{{ $value | humanizeDuration }}}} more"),
            "Members of its name died, left or were suspected repeatedly. Find out why: `obol events`.".to_owned(),
        ),
        rule(
            "ObolMapFailures",
            Severity::Warning,
            (format!("{} > 0", RECENT.increase(Counter::MapFailures)), "0s"),
            format!("{OF_PROCESS} could not map the region of a peer"),
            "It is out of descriptors or memory: raise `ulimit -n` (LimitNOFILE) or enlarge /dev/shm; `obol doctor` \
             checks both."
                .to_owned(),
        ),
    ]
}

fn of_leases(profile: &Profile) -> Vec<Rule> {
    let alert = &profile.alert;
    let (percent, late, wrong) = (alert.margin_percent, alert.late_renewals, alert.false_suspicions);
    let lease = format!("min_over_time({}[1m])", MINUTE.series(Derived::LeaseDuration));
    vec![
        rule(
            "ObolClockDrift",
            Severity::Critical,
            (format!("{} > 0", RECENT.increase(Counter::DriftAlarms)), "0s"),
            format!("{OF_PROCESS} has proved that a clock exceeds the drift bound"),
            format!(
                "Leases are not safe: the profile {} assumes at most {} ppm (lease.drift_ppm). Repair or replace the \
                 clock of the member that `obol events` names.",
                profile.name, profile.timing.drift_ppm
            ),
        ),
        rule(
            "ObolLeaseMarginThin",
            Severity::Warning,
            (
                format!(
                    "{} < on (cluster, instance) group_left () {} * {}",
                    MINUTE.series(Derived::MarginLeast),
                    lease,
                    f64::from(percent) / 100.0
                ),
                "2m",
            ),
            format!("{OF_PROCESS} had {{{{ $value | humanizeDuration }}}} of its lease left at a renewal"),
            format!(
                "Less than {percent} % of a lease was left in each of the last minutes (alert.margin_percent), so a short delay \
                 ends leases. `obol tune` finds the lease that this machine sustains."
            ),
        ),
        rule(
            "ObolRenewalsLate",
            Severity::Warning,
            (
                format!(
                    "{} + {} >= {late}",
                    MINUTE.increase(Counter::RenewalsLate),
                    MINUTE.increase(Counter::RenewalsFailed)
                ),
                "1m",
            ),
            format!(
                "{OF_PROCESS} renewed late or not at all {{{{ $value | printf \"%.0f\" }}}} times in a minute"
            ),
            format!(
                "From {late} on (alert.late_renewals). Programs could not act in between. `obol doctor` measures the \
                 pauses of the host, `obol tune` finds the lease that outlasts them."
            ),
        ),
        rule(
            "ObolFalseSuspicions",
            Severity::Warning,
            (format!("{} >= {wrong}", MINUTE.increase(Counter::FalseSuspicions)), "1m"),
            format!(
                "{OF_PROCESS} suspected living processes {{{{ $value | printf \"%.0f\" }}}} times in a minute"
            ),
            format!(
                "From {wrong} on (alert.false_suspicions): the detector is faster than the scheduler. Lengthen \
                 heartbeat.period, or give the cluster cores and priority; `obol tune` finds the period."
            ),
        ),
    ]
}

fn of_failovers(profile: &Profile) -> Vec<Rule> {
    let lease = profile.timing.lease;
    // The first bound that is not shorter.
    let bound = bounds().find(|bound| *bound >= lease).unwrap_or(Nanos::MAX);
    let slower = format!(
        "increase({}[5m]) - ignoring (le) increase({}[5m])",
        RECENT.part(Derived::Failover, Part::Count, ""),
        RECENT.part(Derived::Failover, Part::Bucket, &format!("le=\"{}\"", seconds(bound)))
    );
    vec![
        rule(
            "ObolFailover",
            Severity::Info,
            (format!("max by (cluster) ({}) > 0", RECENT.increase(Derived::Failovers)), "0s"),
            format!("A member of {OF_CLUSTER} failed and was removed"),
            "In the last five minutes. `obol events` and the console's screen 3 have the time line."
                .to_owned(),
        ),
        rule(
            "ObolFailoverSlow",
            Severity::Warning,
            // Extrapolation may make a difference of two equal increases, but a small one.
            (format!("max by (cluster) ({slower}) > 0.5"), "0s"),
            format!("A failover of {OF_CLUSTER} took longer than a lease"),
            format!(
                "Longer than {bound}, the first bound of the histogram above lease.duration ({lease}): it waited for \
                 leases that could not be fenced, or for processes that were not scheduled. The console's screen 3 \
                 shows the phase."
            ),
        ),
    ]
}

fn of_gateways() -> Vec<Rule> {
    let refused = [
        GatewayCounter::Refused,
        GatewayCounter::Invalid,
        GatewayCounter::Denied,
        GatewayCounter::WatchesRefused,
        GatewayCounter::Stalled,
    ];
    // Not their sum, which would have no value where a gateway of an older release lacks one of them.
    let refused = refused.map(|counter| format!("{} > 0", RECENT.increase(counter))).join(" or ");
    let expiry = MINUTE.series(Derived::CertificateExpiry);
    vec![
        rule(
            "ObolGatewayDown",
            Severity::Critical,
            (format!("{} == 0", MINUTE.series(Derived::GatewayRuns)), "30s"),
            format!("No gateway runs on {OF_HOST}"),
            "Other hosts cannot reach this one, so its processes are removed from the view; over RDMA these stay, and \
             drills, halts and annotations of other hosts do not reach it: `systemctl status obol-gateway`."
                .to_owned(),
        ),
        rule(
            "ObolGatewayRefuses",
            Severity::Warning,
            (refused, "0s"),
            format!("The gateway refuses processes on {OF_HOST}"),
            "A process with a certificate of the cluster was refused, sent an invalid message, requested what its role \
             does not allow or more than it may have, or did not take its answers. Its keys or its version do not \
             fit, or it misbehaves. `obol status` has the counters."
                .to_owned(),
        ),
        rule(
            "ObolPathLost",
            Severity::Warning,
            (format!("{} > 0", RECENT.increase(GatewayCounter::PulsePathsLost)), "0s"),
            format!("A path to {OF_HOST} was lost"),
            "Pulses of another host did not arrive by this path while they did by another one: the next failure may \
             be a silence. `obol status` on the host names the path."
                .to_owned(),
        ),
        rule(
            "ObolCertificateInvalid",
            Severity::Critical,
            (format!("{} == 0", MINUTE.series(Derived::CertificateValid)), "1m"),
            format!("The certificate is not valid on {OF_HOST}"),
            "No new connection to it is made. `obol host keys` makes new ones; a host reads them at its next \
             connection."
                .to_owned(),
        ),
        rule(
            "ObolCertificateExpires",
            Severity::Warning,
            (format!("({expiry} - time()) / 86400 < {CERTIFICATE_DAYS_FEW}"), "0s"),
            format!("The certificate expires in {{{{ $value | humanize }}}} days on {OF_HOST}"),
            "`obol host keys` makes new ones; a host reads them at its next connection, nothing has to be restarted."
                .to_owned(),
        ),
    ]
}

fn of_exporters() -> Vec<Rule> {
    let age = format!("time() - {}", MINUTE.series(Derived::LastPoll));
    vec![
        rule(
            "ObolUnreadable",
            Severity::Critical,
            (format!("{} == 0", best(Derived::Up)), "30s"),
            format!("No exporter can read {OF_CLUSTER}"),
            "There is no such cluster, or no process of it has come up. The page /readyz of an exporter has the \
             reason."
                .to_owned(),
        ),
        rule(
            "ObolExporterMissing",
            Severity::Critical,
            (format!("absent({})", MINUTE.series(Derived::Up)), "1m"),
            "No exporter of obol is scraped".to_owned(),
            "Nothing is known of any cluster: `systemctl status obol-export`, and the page Targets of Prometheus."
                .to_owned(),
        ),
        rule(
            "ObolExporterStale",
            Severity::Warning,
            (format!("{age} > 60"), "0s"),
            format!("The exporter does not poll on {OF_HOST}"),
            "Its figures are {{ $value | humanizeDuration }} old. Its page /healthz says since when; restart it: \
             `systemctl restart obol-export`."
                .to_owned(),
        ),
        rule(
            "ObolEventsLost",
            Severity::Info,
            (format!("{} > 0", RECENT.increase(Derived::EventsLost)), "0s"),
            format!("The exporter missed events on {OF_HOST}"),
            "Flight recorders were overwritten between two polls, so failovers may be missing in its figures: poll \
             more often (`obol export --every`)."
                .to_owned(),
        ),
    ]
}

/// A text as a YAML scalar in double quotes, whose escapes are those of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The file of rules for Prometheus.
///
/// `runbooks` is the address of docs/alerts.md.
pub fn yaml(profile: &Profile, runbooks: &str) -> String {
    let mut text = format!(
        "# Made by `obol export rules` from the profile {}. Thresholds are in its table [alert]; change them there,\n\
         # and make this file again. Rates are over one minute: scrape every 15 s or more often.\n\
         groups:\n  - name: obol\n    rules:\n",
        profile.name
    );
    for Rule { name, expr, hold, severity, summary, description } in rules(profile) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "      - alert: {name}\n        expr: {}", quoted(&expr));
        let _ =
            writeln!(text, "        for: {hold}\n        labels:\n          severity: {}", severity.name());
        let _ = writeln!(text, "        annotations:\n          summary: {}", quoted(&summary));
        let _ = writeln!(text, "          description: {}", quoted(&description));
        let url = format!("{runbooks}#{}", name.to_lowercase());
        let _ = writeln!(text, "          runbook_url: {}", quoted(&url));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::{exported, named};
    use std::collections::BTreeSet;

    fn all() -> impl Iterator<Item = Profile> {
        obol_profiles::BUILTIN.iter().map(|name| Profile::builtin(name).expect("it ships"))
    }

    #[test]
    fn every_alert_is_on_metrics_that_are_exported() {
        let exported = exported();
        for profile in all() {
            let mut names = BTreeSet::new();
            for rule in rules(&profile) {
                assert!(names.insert(rule.name), "{} is there twice", rule.name);
                let used = named(&rule.expr);
                assert!(!used.is_empty() && used.is_subset(&exported), "{}: {used:?}", rule.name);
                if rule.name == "ObolProcessFrozen" {
                    let place = "the host of {{ $labels.instance }}";
                    assert!(rule.summary.contains(place) && rule.description.contains(place), "{rule:?}");
                }
                assert!(!rule.summary.ends_with('.') && rule.description.ends_with('.'), "{}", rule.name);
            }
        }
    }

    #[test]
    fn the_thresholds_are_those_of_the_profile() {
        let mut profile = Profile::builtin("laptop").expect("it ships");
        let before = yaml(&profile, RUNBOOKS);
        let alert = &mut profile.alert;
        (alert.margin_percent, alert.late_renewals, alert.false_suspicions) = (37, 41, 43);
        (alert.spare_coordinators, alert.stale_after) = (3, Nanos::from_secs(47));
        profile.timing.lease = Nanos::from_secs(2);
        profile.timing.drift_ppm = 1234;
        let expr =
            |name| rules(&profile).into_iter().find(|rule| rule.name == name).expect("it is there").expr;
        assert!(expr("ObolLeaseMarginThin").ends_with(" * 0.37"));
        assert!(expr("ObolRenewalsLate").ends_with(">= 41"));
        assert!(expr("ObolFalseSuspicions").ends_with(">= 43"));
        assert!(expr("ObolMajorityAtRisk").contains("< 3 and"));
        assert!(expr("ObolProcessStale").ends_with("> 47"));
        assert!(expr("ObolFailoverSlow").contains("le=\"2.147483647\""));
        let after = yaml(&profile, RUNBOOKS);
        assert!(after != before && after.contains("1234 ppm"));
    }
}
