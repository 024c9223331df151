//! Metrics over HTTP: against what the cluster has counted itself, and with a real Prometheus.

use crate::support::{Ran, Root, freeze, has_ended, obol, signal, until, until_or};
use flate2::read::GzDecoder;
use obol_checks::skipped;
use obol_fabric::Name;
use obol_fabric::host::{Cluster, Observed};
use obol_fabric::metrics::bucket;
use obol_membership::metrics::{Counter, Histogram};
use obol_observe::histograms::Counts;
use obol_observe::metrics::text::{bounds, seconds};
use obol_observe::metrics::{Metric, Writer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const OPEN: &str = "application/openmetrics-text;version=1.0.0";

/// An answer over HTTP.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// Sends a request, and reads the answer to its end; `None` if nobody listens or the connection is
/// closed without an answer.
fn request(at: SocketAddr, method: &str, path: &str, headers: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(at).ok()?;
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = Vec::new();
    if lower.contains("transfer-encoding: chunked") {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else if method != "HEAD" {
        reader.take(length.unwrap_or(u64::MAX)).read_to_end(&mut body).ok()?;
    }
    Some(Answer { status, head: lower, body })
}

fn get(at: SocketAddr, path: &str, headers: &str) -> Answer {
    request(at, "GET", path, headers).expect("it answers")
}

/// A running exporter, killed at the end.
pub(crate) struct Exporter {
    child: Child,
    at: SocketAddr,
}

impl Exporter {
    pub(crate) fn start(root: &Root, arguments: &[&str]) -> Self {
        let mut command =
            root.command(&[&["export", "--listen", "127.0.0.1:0", "--every", "100ms"], arguments].concat());
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let said = child.stderr.take().expect("piped");
        BufReader::new(said).read_line(&mut line).expect("text");
        let at = line.split_once("http://").and_then(|(_, rest)| rest.split_once("/metrics"));
        let at = at.and_then(|(at, _)| at.parse().ok()).unwrap_or_else(|| panic!("{line}"));
        Self { child, at }
    }

    /// All samples of the newest poll, by name and labels.
    fn scrape(&self) -> BTreeMap<String, f64> {
        samples(get(self.at, "/metrics", "").text())
    }

    /// The samples of a poll that began after this call.
    pub(crate) fn fresh(&self) -> BTreeMap<String, f64> {
        let polls = |samples: &BTreeMap<String, f64>| samples["obol_export_polls_total{cluster=\"default\"}"];
        let known = polls(&self.scrape());
        let found = || Some(self.scrape()).filter(|samples| polls(samples) >= known + 2.0);
        until_or("it polls", found, String::new)
    }

    pub(crate) fn end(mut self) {
        signal("TERM", &[i64::from(self.child.id())]);
        assert!(self.child.wait().expect("a child").success());
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let line = line.split(" # ").next().expect("a sample");
        let (name, value) = line.rsplit_once(' ').expect("a value");
        let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(all.insert(name.to_owned(), value).is_none(), "twice: {line}");
    }
    all
}

fn of(samples: &BTreeMap<String, f64>, name: &str, labels: &str) -> f64 {
    let comma = if labels.is_empty() { "" } else { "," };
    let key = format!("{name}{{cluster=\"default\"{comma}{labels}}}");
    *samples.get(&key).unwrap_or_else(|| panic!("{key} is not among {} samples", samples.len()))
}

/// Holds that counters and histograms are those in the memory of the processes, which are frozen.
fn holds(root: &Root, found: &BTreeMap<String, f64>) -> usize {
    let cluster = Cluster::open(root.path(), Name::new("default").expect("a name")).expect("it runs");
    let seats = cluster.layout().limits().seats as u16;
    let mut compared = 0;
    let kinds = root
        .status()
        .processes()
        .iter()
        .map(|(name, p)| ((*name).to_owned(), p["kind"].clone()))
        .collect::<BTreeMap<_, _>>();
    for region in cluster.regions().into_iter().filter(|region| region.alive && !region.is_gateway()) {
        let observed = Observed::open(&cluster, region.number).expect("mapped");
        let reader = observed.reader();
        let owner = [(region.name, 0)];
        let apps = (1..seats).filter_map(|seat| reader.seat(seat)).filter(|seat| !seat.dead);
        for (name, seat) in owner.into_iter().chain(apps.map(|seat| (seat.name, seat.seat))) {
            let labels = format!("process=\"{name}\",kind={}", kinds[name.as_str()]);
            for (counter, n) in Counter::ALL.iter().zip(reader.counters(seat)) {
                let series = Metric::from(*counter).series();
                assert_eq!(of(found, &series, &labels), n as f64, "{series} {labels}");
                compared += 1;
            }
        }
        let labels = format!("process=\"{}\",kind={}", region.name, kinds[region.name.as_str()]);
        for which in Histogram::ALL {
            let counts = Counts::from_pairs(reader.buckets((*which).into()));
            let name = Metric::from(*which).name();
            if counts.is_empty()
                && !found.contains_key(&format!("{name}_count{{cluster=\"default\",{labels}}}"))
            {
                continue;
            }
            assert_eq!(of(found, &format!("{name}_count"), &labels), counts.len() as f64, "{name} {labels}");
            for bound in bounds() {
                let up_to = counts.below(bucket(bound.0 + 1) as u16);
                let labels = format!("{labels},le=\"{}\"", seconds(bound));
                assert_eq!(of(found, &format!("{name}_bucket"), &labels), up_to as f64, "{name} {labels}");
                compared += 1;
            }
        }
    }
    compared
}

fn freeze_all(root: &Root) -> Vec<i64> {
    let alive: Vec<i64> = root.status().pids().into_values().filter(|pid| !has_ended(*pid)).collect();
    alive.iter().for_each(|pid| freeze(*pid));
    alive
}

#[test]
fn what_is_exported_is_what_the_cluster_counted_also_of_frozen_processes() {
    let (root, _up) = Root::with_cluster(&["--apps", "2", "--caches", "1"]);
    let exporter = Exporter::start(&root, &[]);
    let began = of(&exporter.scrape(), "obol_export_last_poll_timestamp_seconds", "");
    for name in ["app-1", "coord-3"] {
        root.run(&["kill", name]).ends(0);
        root.run(&["start", name]).ends(0);
        root.healthy();
    }
    // Not the leader: with it, the report would lose what it has stamped.
    let failovers = || {
        let samples = exporter.fresh();
        (of(&samples, "obol_failovers_total", "") >= 2.0).then_some(samples)
    };
    until_or("failovers are counted", failovers, || root.run(&["events"]).out);
    let frozen = freeze_all(&root);
    let found = exporter.fresh();
    let compared = holds(&root, &found);
    assert!(compared > 9 * Counter::ALL.len(), "{compared}");

    let status = root.status();
    assert_eq!(of(&found, "obol_view", ""), status.view() as f64);
    assert_eq!(of(&found, "obol_up", ""), 1.0);
    assert_eq!(of(&found, "obol_deciders", ""), 3.0);
    assert_eq!(of(&found, "obol_deciders_spare", ""), 1.0);
    for (name, process) in status.processes() {
        let labels = format!("process=\"{name}\",kind={}", process["kind"]);
        assert_eq!(of(&found, "obol_frozen", &labels), 1.0, "{name}");
        assert_eq!(of(&found, "obol_runs", &labels), 0.0, "{name}");
    }
    failovers_are_those_of_the_report(&root, &exporter, began);
    signal("CONT", &frozen);
    root.healthy();
    exporter.fresh();
    both_formats_are_valid_and_say_the_same(exporter.at);
    exporter.end();
}

/// Holds that the exporter has counted the failovers since then that the report has, from the same
/// stamps. All processes are frozen.
fn failovers_are_those_of_the_report(root: &Root, exporter: &Exporter, since: f64) {
    let report = root.run(&["report", "--for", "500ms", "--format", "json"]).json();
    let all = report["failovers"].as_array().expect("a list").iter();
    let unix = |failover: &Value| {
        let text = failover["began"].as_str().expect("a time");
        text.parse::<jiff::Timestamp>().expect("a time").as_microsecond() as f64 / 1e6
    };
    let all: Vec<&Value> = all.filter(|failover| unix(failover) > since).collect();
    let totals: Vec<f64> = all.iter().filter_map(|failover| failover["total_ns"].as_f64()).collect();
    // One that happened while they were being frozen settles only now.
    let counted = || {
        let found = exporter.fresh();
        (of(&found, "obol_failovers_total", "") >= all.len() as f64).then_some(found)
    };
    let found = until_or("all are counted", counted, || format!("{all:#?}"));
    assert_eq!(of(&found, "obol_failovers_total", ""), all.len() as f64);
    assert_eq!(of(&found, "obol_failovers_incomplete_total", ""), (all.len() - totals.len()) as f64);
    assert_eq!(of(&found, "obol_failover_seconds_count", ""), totals.len() as f64);
    let sum = totals.iter().sum::<f64>() / 1e9;
    assert!((of(&found, "obol_failover_seconds_sum", "") - sum).abs() < 1e-9, "{sum}");
}

fn both_formats_are_valid_and_say_the_same(at: SocketAddr) {
    let open = get(at, "/metrics", &format!("Accept: {OPEN}\r\n"));
    assert!(open.head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{}", open.head);
    let parsed = openmetrics_parser::openmetrics::parse_openmetrics(open.text()).expect("OpenMetrics");
    let plain = get(at, "/metrics", "Accept: text/plain\r\n");
    assert!(plain.head.contains("content-type: text/plain; version=0.0.4"), "{}", plain.head);
    let parse = openmetrics_parser::prometheus::parse_prometheus;
    let _ = parse(plain.text()).unwrap_or_else(|error| panic!("{error}"));
    let keys = |headers: &str| samples(get(at, "/metrics", headers).text()).into_keys().collect::<Vec<_>>();
    // Unless a process comes or goes in between.
    until("both have the same samples", || {
        keys(&format!("Accept: {OPEN}\r\n")) == keys("Accept: text/plain\r\n")
    });
    assert!(open.text().contains(" # {view=\"") && !plain.text().contains(" # {"), "exemplars");
    let zipped = get(at, "/metrics", "Accept-Encoding: gzip\r\n");
    assert!(zipped.head.contains("content-encoding: gzip"), "{}", zipped.head);
    let mut text = String::new();
    GzDecoder::new(zipped.body.as_slice()).read_to_string(&mut text).expect("gzip");
    assert!(samples(&text).len() > 500, "{text}");
    // All that the table has is there, except of gateways, which a cluster on one host has not.
    for metric in Metric::all().filter(|metric| metric.writer() != Writer::Report) {
        let name = metric.name();
        let is_there = parsed.families.contains_key(&name);
        assert_eq!(is_there, !name.starts_with("obol_gateway"), "{name}");
    }
    let Some(mut check) = promtool(&["check", "metrics"]) else { return };
    let mut child = check.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(plain.body.as_slice()).expect("it reads");
    let said = child.wait_with_output().expect("it ends");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

/// Promtool, where it is installed.
fn promtool(arguments: &[&str]) -> Option<Command> {
    let mut command = Command::new("promtool");
    if Command::new("promtool").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    {
        skipped("prometheus", "promtool is not installed");
        return None;
    }
    command.args(arguments);
    Some(command)
}

#[test]
fn gateways_are_exported_and_so_are_processes_of_other_hosts_if_wanted() {
    let (root, up) = Root::with_cluster(&["--hosts", "2"]);
    let here = Exporter::start(&root, &[]);
    let all = Exporter::start(&root, &["--scope", "cluster"]);
    let labels = |name: &str, kind: &str| format!("process=\"{name}\",kind=\"{kind}\"");
    let there = labels("node-2", "agent");
    let counted = || {
        Some(all.fresh()).filter(|samples| {
            samples.contains_key(&format!("obol_renewal_seconds_count{{cluster=\"default\",{there}}}"))
        })
    };
    let found = until_or("the other host is read", counted, || format!("{:#?}", root.status()));
    assert!(of(&found, "obol_renewals_on_time_total", &there) > 0.0);
    assert!(of(&found, "obol_renewal_seconds_count", &there) > 0.0);
    assert_eq!(of(&found, "obol_runs", &there), 1.0);
    let found = here.fresh();
    assert_eq!(of(&found, "obol_runs", &labels("node-1", "agent")), 1.0);
    assert!(!found.keys().any(|key| key.contains("node-2")), "of this host only");

    let gateway = &root.status().json["gateway"];
    let found = here.fresh();
    assert_eq!(of(&found, "obol_gateway_runs", ""), 1.0);
    assert_eq!(of(&found, "obol_gateway_certificate_valid", ""), 1.0);
    // Observers come and go; what is never reached is equal.
    for name in ["refused", "invalid", "denied"] {
        let counted = gateway["counters"][name].as_f64().expect("a number");
        assert_eq!(of(&found, &format!("obol_gateway_{name}_total"), ""), counted, "{name}");
    }
    let admitted = gateway["counters"]["admitted"].as_f64().expect("a number");
    assert!(of(&found, "obol_gateway_admitted_total", "") >= admitted);
    let days = (of(&found, "obol_gateway_certificate_expiry_timestamp_seconds", "")
        - of(&found, "obol_export_last_poll_timestamp_seconds", ""))
        / 86400.0;
    assert!(
        (days - gateway["certificate_days"].as_f64().expect("a number")).abs() < 1.01,
        "{days} {gateway}"
    );
    // One that is not of the cluster is counted.
    let gateway = root.status();
    let strangers = of(&found, "obol_gateway_strangers_total", "");
    assert_eq!(gateway.json["gateway"]["counters"]["strangers"].as_f64(), Some(strangers));
    // One that is missed is exported where it was, and by exporters of the whole cluster.
    root.run(&["kill", "node-2"]).ends(0);
    let runs = format!("obol_runs{{cluster=\"default\",{there}}}");
    until("it is missed", || all.fresh().get(&runs) == Some(&0.0));
    let found = here.fresh();
    assert!(!found.keys().any(|key| key.contains("node-2")), "of this host only: {found:#?}");
    root.run(&["kill", "gateway-1"]).ends(0);
    until("it is down", || of(&here.fresh(), "obol_gateway_runs", "") == 0.0);
    root.run(&["down"]).ends(0);
    up.end().well();
    until("the cluster is gone", || of(&here.fresh(), "obol_up", "") == 0.0);
    assert!(!here.fresh().keys().any(|key| key.starts_with("obol_runs")), "nothing stale is exported");
    here.end();
    all.end();
}

#[test]
fn an_exporter_outlives_its_cluster_and_answers_what_it_can() {
    let root = Root::new();
    let exporter = Exporter::start(&root, &[]);
    let at = exporter.at;
    let ready = get(at, "/readyz", "");
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("cluster default"), "{}", ready.text());
    assert_eq!((get(at, "/healthz", "").status, of(&exporter.scrape(), "obol_up", "")), (200, 0.0));
    let up = root.up(&["--apps", "1"]);
    until("it is ready", || get(at, "/readyz", "").status == 200);
    assert_eq!(of(&exporter.fresh(), "obol_serves", ""), 1.0);
    assert!(of(&exporter.fresh(), "obol_export_reads_total", "") > 0.0);
    root.run(&["down"]).ends(0);
    up.end().well();
    until("it is not", || get(at, "/readyz", "").status == 503);
    let up = root.up(&["--apps", "1"]);
    until("it finds the next cluster of the name", || get(at, "/readyz", "").status == 200);

    let wrong = get(at, "/metric", "");
    assert!(wrong.status == 404 && wrong.text().contains("/metrics"), "{}", wrong.text());
    let put = request(at, "PUT", "/metrics", "Content-Length: 0\r\n").expect("an answer");
    assert!(put.status == 405 && put.head.contains("allow: get, head"), "{}", put.head);
    let head = request(at, "HEAD", "/metrics", "").expect("an answer");
    assert!(head.status == 200 && head.body.is_empty());
    root.run(&["export", "--listen", &at.to_string()]).refused(&["is in use", "--listen"]);
    root.run(&["export", "--listen", "192.0.2.1"]).refused(&["cannot listen on 192.0.2.1:17471"]);
    root.run(&["export", "--listen", "localhost"]).refused(&["an address looks like"]);
    root.run(&["export", "rules", "--cluster", "other"]).refused(&["--profile"]);

    // Clients that send nothing, or half a request, take all connections, and keep nobody out.
    let idle: Vec<TcpStream> = (0..200).filter_map(|_| TcpStream::connect(at).ok()).collect();
    for half in idle.iter().skip(100) {
        // The exporter may have closed it.
        let _ = (&*half).write_all(b"GET /metrics HTTP/1.1\r\nHost:");
    }
    for _ in 0..3 {
        let answer = request(at, "GET", "/healthz", "").expect("an answer");
        assert_eq!(answer.status, 200);
    }
    assert!(of(&exporter.fresh(), "obol_export_connections_refused_total", "") > 0.0);
    drop(idle);
    root.run(&["down"]).ends(0);
    up.end().well();
    exporter.end();
}

/// Names and expressions of the alerts in a file of rules.
fn alerts(rules: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut name = None;
    for line in rules.lines().map(str::trim) {
        if let Some(found) = line.strip_prefix("- alert: ") {
            name = Some(found.to_owned());
        } else if let (Some(expr), Some(name)) =
            (line.strip_prefix("expr: "), name.take_if(|_| line.starts_with("expr: ")))
        {
            all.push((name, serde_json::from_str(expr).expect("a string")));
        }
    }
    all
}

/// A series and its values.
type Series = (&'static str, &'static str);

/// The series of a healthy host.
fn healthy() -> Vec<Series> {
    vec![
        ("obol_up{H}", "1x40"),
        ("obol_serves{H}", "1x40"),
        ("obol_health{H,state=\"degraded\"}", "0x40"),
        ("obol_health{H,state=\"unknown\"}", "0x40"),
        ("obol_deciders{H}", "3x40"),
        ("obol_deciders_running{H}", "3x40"),
        ("obol_deciders_spare{H}", "1x40"),
        ("obol_lease_duration_seconds{H}", "0.02x40"),
        ("obol_frozen{P}", "0x40"),
        ("obol_read_age_seconds{P}", "0x40"),
        ("obol_join_hold_seconds{P}", "0x40"),
        ("obol_margin_least_seconds{P}", "0.013x40"),
        ("obol_map_failures_total{P}", "0x40"),
        ("obol_drift_alarms_total{P}", "0x40"),
        ("obol_renewals_late_total{P}", "7x40"),
        ("obol_renewals_failed_total{P}", "0x40"),
        ("obol_false_suspicions_total{P}", "0x40"),
        ("obol_failovers_total{H}", "4x40"),
        ("obol_failover_seconds_count{H}", "4x40"),
        ("obol_failover_seconds_bucket{H,le=\"0.033554431\"}", "4x40"),
        ("obol_gateway_runs{H}", "1x40"),
        ("obol_gateway_certificate_valid{H}", "1x40"),
        ("obol_gateway_certificate_expiry_timestamp_seconds{H}", "31536000x40"),
        ("obol_gateway_refused_total{H}", "0x40"),
        ("obol_gateway_invalid_total{H}", "0x40"),
        ("obol_gateway_denied_total{H}", "0x40"),
        ("obol_gateway_watches_refused_total{H}", "0x40"),
        ("obol_gateway_stalled_total{H}", "0x40"),
        ("obol_gateway_pulse_paths_lost_total{H}", "0x40"),
        ("obol_export_last_poll_timestamp_seconds{H}", "0+15x40"),
        ("obol_events_lost_total{H}", "0x40"),
    ]
}

/// Each alert, with the series that are its cause.
fn causes() -> Vec<(&'static str, Vec<Series>)> {
    vec![
        ("ObolUnavailable", vec![("obol_serves{H}", "0x40")]),
        ("ObolDegraded", vec![("obol_health{H,state=\"degraded\"}", "1x40")]),
        ("ObolUnknown", vec![("obol_health{H,state=\"unknown\"}", "1x40"), ("obol_serves{H}", "_x40")]),
        (
            "ObolMajorityAtRisk",
            vec![("obol_deciders_running{H}", "2x40"), ("obol_deciders_spare{H}", "0x40")],
        ),
        ("ObolProcessFrozen", vec![("obol_frozen{P}", "1x40")]),
        ("ObolProcessStale", vec![("obol_read_age_seconds{P}", "5x40")]),
        ("ObolJoinOnHold", vec![("obol_join_hold_seconds{P}", "3x40")]),
        ("ObolMapFailures", vec![("obol_map_failures_total{P}", "0x39 1")]),
        ("ObolClockDrift", vec![("obol_drift_alarms_total{P}", "0x35 1x5")]),
        ("ObolLeaseMarginThin", vec![("obol_margin_least_seconds{P}", "0.0019x40")]),
        (
            "ObolRenewalsLate",
            vec![("obol_renewals_late_total{P}", "7x37 9x2"), ("obol_renewals_failed_total{P}", "0x37 2x2")],
        ),
        ("ObolFalseSuspicions", vec![("obol_false_suspicions_total{P}", "0x37 5x2")]),
        (
            "ObolFailover",
            vec![
                ("obol_failovers_total{H}", "4x36 5x3"),
                ("obol_failover_seconds_count{H}", "4x36 5x3"),
                ("obol_failover_seconds_bucket{H,le=\"0.033554431\"}", "4x36 5x3"),
            ],
        ),
        // Slow ones alone would also be failovers.
        ("ObolFailoverSlow", vec![("obol_failover_seconds_count{H}", "4x36 5x3")]),
        ("ObolGatewayDown", vec![("obol_gateway_runs{H}", "0x40")]),
        ("ObolGatewayRefuses", vec![("obol_gateway_denied_total{H}", "0x38 1")]),
        ("ObolPathLost", vec![("obol_gateway_pulse_paths_lost_total{H}", "0x38 1")]),
        ("ObolCertificateInvalid", vec![("obol_gateway_certificate_valid{H}", "0x40")]),
        (
            "ObolCertificateExpires",
            vec![("obol_gateway_certificate_expiry_timestamp_seconds{H}", "2500000x40")],
        ),
        ("ObolUnreadable", vec![("obol_up{H}", "0x40")]),
        ("ObolExporterMissing", vec![("obol_up{H}", "_x40")]),
        ("ObolExporterStale", vec![("obol_export_last_poll_timestamp_seconds{H}", "0+15x20 300x20")]),
        ("ObolEventsLost", vec![("obol_events_lost_total{H}", "0x38 12")]),
    ]
}

#[test]
fn every_alert_is_raised_by_its_cause_and_by_no_other() {
    let rules = Ran::of(obol().args(["export", "rules", "--profile", "laptop"])).ends(0).out;
    let alerts = alerts(&rules);
    let (healthy, mut causes) = (healthy(), causes());
    let named: Vec<&str> = alerts.iter().map(|(name, _)| name.as_str()).collect();
    let mut tried: Vec<&str> = causes.iter().map(|(name, _)| *name).collect();
    let sorted = |mut names: Vec<&str>| {
        names.sort_unstable();
        names.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(sorted(named), sorted(std::mem::take(&mut tried)), "each alert has a cause");
    causes.push(("", Vec::new()));
    let whole = |series: &str| {
        let host = "cluster=\"default\",instance=\"a:17471\",job=\"obol\"";
        series
            .replace("{H", &format!("{{{host}"))
            .replace("{P", &format!("{{{host},process=\"node-1\",kind=\"agent\""))
    };
    let tests: Vec<Value> = causes
        .iter()
        .map(|(cause, changes)| {
            let value = |series: &str, usual: &str| {
                changes.iter().find(|(changed, _)| *changed == series).map_or(usual, |(_, values)| *values).to_owned()
            };
            let input: Vec<Value> = healthy
                .iter()
                .map(|(series, usual)| json!({ "series": whole(series), "values": value(series, usual) }))
                .collect();
            let each = alerts.iter().map(|(name, expr)| {
                let raised = if name == cause { json!([{ "labels": "{}", "value": 1 }]) } else { json!([]) };
                json!({ "expr": format!("count({expr})"), "eval_time": "10m", "exp_samples": raised })
            });
            json!({ "name": cause, "interval": "15s", "input_series": input, "promql_expr_test": each.collect::<Vec<_>>() })
        })
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let (rules_at, tests_at) = (folder.path().join("obol.rules.yml"), folder.path().join("tests.yml"));
    std::fs::write(&rules_at, &rules).expect("written");
    let tests = json!({ "rule_files": [rules_at], "evaluation_interval": "15s", "tests": tests });
    std::fs::write(&tests_at, tests.to_string()).expect("written");
    for (what, file) in [("check", &rules_at), ("test", &tests_at)] {
        let Some(mut command) = promtool(&[what, "rules"]) else { return };
        let ran = Ran::of(command.arg(file));
        assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    }
}

/// A Prometheus of the test's own, killed at the end.
struct Prometheus {
    child: Child,
    at: SocketAddr,
}

impl Prometheus {
    /// Scrapes one exporter, and evaluates rules; `None` where it is not installed.
    fn start(folder: &Path, target: SocketAddr, rules: &str) -> Option<Self> {
        if Command::new("prometheus")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_err()
        {
            skipped("prometheus", "prometheus is not installed");
            return None;
        }
        std::fs::create_dir_all(folder).expect("made");
        std::fs::write(folder.join("obol.rules.yml"), rules).expect("written");
        let config = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": ["obol.rules.yml"],
            "scrape_configs": [{ "job_name": "obol", "static_configs": [{ "targets": [target.to_string()] }] }]
        });
        std::fs::write(folder.join("prometheus.yml"), config.to_string()).expect("written");
        let at = TcpListener::bind("127.0.0.1:0").and_then(|at| at.local_addr()).expect("a port");
        let child = Command::new("prometheus")
            .arg(format!("--web.listen-address={at}"))
            .args([
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                "--enable-feature=exemplar-storage",
            ])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("log")).expect("a file"))
            .spawn()
            .expect("it starts");
        let this = Self { child, at };
        let ready = || request(at, "GET", "/-/ready", "").filter(|answer| answer.status == 200);
        until_or("Prometheus is ready", ready, || {
            std::fs::read_to_string(folder.join("log")).unwrap_or_default()
        });
        Some(this)
    }

    fn ask(&self, what: &str, query: &str) -> Value {
        let escaped: String = query
            .bytes()
            .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
            .collect();
        let answer =
            get(self.at, &format!("/api/v1/{what}?query={escaped}&start=0&end=99999999999"), "").json();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"].clone()
    }

    fn query(&self, query: &str) -> Vec<Value> {
        self.ask("query", query)["result"].as_array().expect("a list").clone()
    }

    /// Holds that no alert has fired so far, and that no expression of one was true. Those about the pauses of
    /// a busy machine, and about an exporter that is not scraped yet, may be true for a moment: they wait for a
    /// minute or more before they fire.
    fn has_raised_nothing(&self) {
        const OF_PAUSES: [&str; 7] = [
            "ObolLeaseMarginThin",
            "ObolRenewalsLate",
            "ObolFalseSuspicions",
            "ObolDegraded",
            "ObolProcessStale",
            "ObolUnavailable",
            "ObolExporterMissing",
        ];
        let raised = self.query("count_over_time(ALERTS[10m])");
        let is_of_pause = |alert: &Value| {
            let labels = &alert["metric"];
            labels["alertstate"] == "pending" && OF_PAUSES.iter().any(|name| labels["alertname"] == *name)
        };
        assert!(raised.iter().all(is_of_pause), "a fresh cluster: {raised:#?}");
    }

    fn is_firing(&self, alert: &str) -> bool {
        !self.query(&format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}")).is_empty()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_prometheus_raises_the_alert_of_a_drill_and_answers_every_query_of_the_dashboard() {
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    let exporter = Exporter::start(&root, &[]);
    let rules = root.run(&["export", "rules"]).ends(0).out;
    let Some(prometheus) = Prometheus::start(&root.note("prometheus"), exporter.at, &rules) else { return };
    until("it scrapes", || prometheus.query("obol_up == 1").len() == 1);
    // An increase needs two samples.
    until("it has scraped again", || {
        !prometheus.query("count_over_time(obol_failovers_total[1m]) >= 3").is_empty()
    });
    prometheus.has_raised_nothing();
    root.run(&["drill", "app", "--count", "1"]).ends(0);
    until("the alert fires", || prometheus.is_firing("ObolFailover"));
    until("its exemplar is there", || {
        let found = prometheus.ask("query_exemplars", "obol_failover_seconds_bucket");
        found.to_string().contains("\"dead\":\"app-")
    });
    assert!(prometheus.query("ALERTS{severity=\"critical\"}").is_empty(), "a failover is not critical");
    let dashboard = root.run(&["export", "dashboard"]).ends(0).json();
    let mut queries = 0;
    for panel in dashboard["panels"].as_array().expect("a list") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().expect("text");
            let query =
                query.replace("$__rate_interval", "1m").replace("$cluster", ".*").replace("$process", ".*");
            let found = prometheus.query(&query);
            // What compares with zero is empty while nothing is wrong, and there is no gateway.
            let may_be_empty = query.contains("> 0") || query.contains("gateway");
            assert!(may_be_empty || !found.is_empty(), "{}: {query}", panel["title"]);
            queries += 1;
        }
    }
    assert!(queries > 30, "{queries}");
    exporter.end();
}

#[test]
fn the_unit_is_valid_and_exposes_little() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd/obol-export.service");
    let run = |arguments: &[&str]| {
        Command::new("systemd-analyze").args(arguments).arg(&unit).stdin(Stdio::null()).output()
    };
    let Ok(security) = run(&["security", "--offline=true", "--threshold=25", "--no-pager"]) else {
        skipped("systemd-analyze", "systemd is not installed");
        return;
    };
    // The threshold is in tenths: 2.5 of 10, where most services of a distribution are above 9.
    let said = String::from_utf8_lossy(&security.stdout);
    assert!(security.status.success(), "{said}");
    let text = std::fs::read_to_string(&unit).expect("it is there");
    let arguments =
        text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/obol ")).expect("a command");
    let help = Ran::of(obol().args(arguments.split(' ').filter(|word| !word.starts_with('$'))).arg("--help"));
    assert!(help.ends(0).out.contains("--listen"));
}
