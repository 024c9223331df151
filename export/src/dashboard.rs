//! A dashboard for Grafana, from the table of metrics and a profile's thresholds.

use crate::queries::Queries;
use obol_fabric_ip::GatewayCounter;
use obol_membership::metrics::{Counter, Histogram};
use obol_observe::metrics::{Derived, Metric};
use obol_profiles::Profile;
use serde_json::{Value, json};

/// Grafana 10 and later read this version, and newer ones migrate it.
const SCHEMA_VERSION: u32 = 39;
/// Columns of Grafana's grid.
const COLUMNS: u32 = 24;

/// Of the clusters, and of the processes, that are chosen at the top.
const CLUSTERS: Queries = Queries { matchers: "cluster=~\"$cluster\"", range: "$__rate_interval" };
const PROCESSES: Queries =
    Queries { matchers: "cluster=~\"$cluster\",process=~\"$process\"", range: "$__rate_interval" };

/// How a panel shows its values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The newest value.
    Stat,
    /// Lines over time.
    Lines,
    /// The buckets of a histogram over time.
    Heatmap,
    /// States over time.
    States,
}

impl Form {
    const fn name(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::Lines => "timeseries",
            Self::Heatmap => "heatmap",
            Self::States => "state-timeline",
        }
    }
}

struct Panel {
    title: &'static str,
    form: Form,
    /// Its width in columns.
    width: u32,
    unit: &'static str,
    about: Vec<Metric>,
    /// Queries with their legends.
    targets: Vec<(String, &'static str)>,
    /// From where on values are bad: the limit and whether larger ones are.
    limit: Option<(f64, bool)>,
}

impl Panel {
    fn new(title: &'static str, form: Form, width: u32, unit: &'static str) -> Self {
        Self { title, form, width, unit, about: Vec::new(), targets: Vec::new(), limit: None }
    }

    fn of(mut self, metric: impl Into<Metric>) -> Self {
        self.about.push(metric.into());
        self
    }

    fn show(mut self, query: String, legend: &'static str) -> Self {
        self.targets.push((query, legend));
        self
    }

    fn bad(self, limit: f64, if_larger: bool) -> Self {
        Self { limit: Some((limit, if_larger)), ..self }
    }

    /// Lines of rates of counters, by process, that are usually zero.
    fn rare(title: &'static str, counters: &[Counter]) -> Self {
        let panel = Self::new(title, Form::Lines, 12, "short");
        counters.iter().fold(panel, |panel, counter| {
            let legend: &'static str = counter.name();
            let rate = PROCESSES.rate(*counter);
            panel.of(*counter).show(format!("sum by (process) ({rate}) > 0"), legend)
        })
    }
}

/// The rows of the dashboard, with their panels.
fn rows(profile: &Profile) -> Vec<(&'static str, Vec<Panel>)> {
    vec![
        ("Cluster", cluster()),
        ("Failovers", failovers(profile)),
        ("Leases", leases(profile)),
        ("Processes", processes()),
        ("Gateways", gateways()),
        ("Exporters", exporters()),
    ]
}

fn cluster() -> Vec<Panel> {
    let stat = |title, metric: Derived, unit| {
        let query = format!("max by (cluster) ({})", CLUSTERS.series(metric));
        Panel::new(title, Form::Stat, 4, unit).of(metric).show(query, "{{cluster}}")
    };
    let health = format!("max by (cluster, state) ({}) == 1", CLUSTERS.series(Derived::Health));
    vec![
        Panel::new("Health", Form::Stat, 4, "none").of(Derived::Health).show(health, "{{state}}"),
        stat("Programs may act", Derived::Serves, "bool_yes_no").bad(1.0, false),
        stat("View", Derived::View, "none"),
        stat("Members", Derived::ViewMembers, "none"),
        stat("Coordinators that may still fail", Derived::DecidersSpare, "none").bad(1.0, false),
        stat("Lease", Derived::LeaseDuration, "s"),
        Panel::new("Health over time", Form::States, 24, "none").of(Derived::Health).show(
            format!("max by (cluster, state) ({})", CLUSTERS.series(Derived::Health)),
            "{{cluster}} {{state}}",
        ),
    ]
}

fn failovers(profile: &Profile) -> Vec<Panel> {
    let lease = profile.timing.lease.0 as f64 / 1e9;
    let quantile = |q| CLUSTERS.quantile(q, Derived::Failover, "cluster");
    vec![
        Panel::new("Failovers", Form::Lines, 8, "short")
            .of(Derived::Failovers)
            .show(format!("max by (cluster) ({})", CLUSTERS.increase(Derived::Failovers)), "{{cluster}}"),
        Panel::new("Duration of failovers", Form::Lines, 8, "s")
            .of(Derived::Failover)
            .show(quantile(0.5), "{{cluster}} p50")
            .show(quantile(0.99), "{{cluster}} p99")
            .bad(lease, true),
        Panel::new("Phases of failovers, median", Form::Lines, 8, "s")
            .of(Derived::FailoverPhase)
            .show(CLUSTERS.quantile(0.5, Derived::FailoverPhase, "phase"), "{{phase}}"),
        Panel::new("Distribution of failovers", Form::Heatmap, 24, "s")
            .of(Derived::Failover)
            .show(CLUSTERS.buckets(Derived::Failover, ""), "{{le}}"),
    ]
}

fn leases(profile: &Profile) -> Vec<Panel> {
    let percent = f64::from(profile.alert.margin_percent) / 100.0;
    let quantile = |q, of: Histogram| PROCESSES.quantile(q, of, "cluster");
    let late = |counter| format!("sum by (process) ({})", PROCESSES.rate(counter));
    vec![
        Panel::new("Least margin in the last minute", Form::Lines, 12, "s")
            .of(Derived::MarginLeast)
            .show(PROCESSES.series(Derived::MarginLeast), "{{process}}")
            .show(format!("{} * {percent}", best_lease()), "limit {{cluster}}"),
        Panel::new("Renewals late or failed", Form::Lines, 12, "ops")
            .of(Counter::RenewalsLate)
            .of(Counter::RenewalsFailed)
            .show(format!("{} > 0", late(Counter::RenewalsLate)), "{{process}} late")
            .show(format!("{} > 0", late(Counter::RenewalsFailed)), "{{process}} failed"),
        Panel::new("Duration of renewals", Form::Lines, 12, "s")
            .of(Histogram::Renewal)
            .show(quantile(0.5, Histogram::Renewal), "{{cluster}} p50")
            .show(quantile(0.99, Histogram::Renewal), "{{cluster}} p99"),
        Panel::new("Duration of decisions, and from a decision to CLEAR", Form::Lines, 12, "s")
            .of(Histogram::Decide)
            .of(Histogram::Clear)
            .show(quantile(0.5, Histogram::Decide), "{{cluster}} decide p50")
            .show(quantile(0.99, Histogram::Decide), "{{cluster}} decide p99")
            .show(quantile(0.5, Histogram::Clear), "{{cluster}} CLEAR p50"),
        Panel::new("Distribution of margins", Form::Heatmap, 24, "s")
            .of(Histogram::Margin)
            .show(PROCESSES.buckets(Histogram::Margin, ""), "{{le}}"),
    ]
}

fn best_lease() -> String {
    format!("max by (cluster) ({})", CLUSTERS.series(Derived::LeaseDuration))
}

fn processes() -> Vec<Panel> {
    vec![
        Panel::new("Active", Form::States, 12, "none")
            .of(Derived::Active)
            .show(PROCESSES.series(Derived::Active), "{{process}}"),
        Panel::new("Runs", Form::States, 12, "none")
            .of(Derived::Runs)
            .show(PROCESSES.series(Derived::Runs), "{{process}}"),
        Panel::rare(
            "Suspicions",
            &[Counter::HeartbeatSuspicions, Counter::ProgressSuspicions, Counter::FalseSuspicions],
        ),
        Panel::rare(
            "Datagrams lost or refused",
            &[Counter::DatagramsLost, Counter::DatagramsRefused, Counter::KernelNoticesRefused],
        ),
        Panel::rare("Links and clocks", &[Counter::LinkErrors, Counter::LinksLost, Counter::DriftAlarms]),
        Panel::rare("Leaders", &[Counter::Takeovers, Counter::Aborts, Counter::Adoptions]),
    ]
}

fn gateways() -> Vec<Panel> {
    let panel = Panel::new("Connections by result", Form::Lines, 12, "ops");
    let counters = GatewayCounter::ALL
        .iter()
        .fold(panel, |panel, counter| panel.of(*counter).show(CLUSTERS.rate(*counter), counter.name()));
    let left = format!("{} - time()", CLUSTERS.series(Derived::CertificateExpiry));
    let limit = f64::from(obol_observe::CERTIFICATE_DAYS_FEW) * 86400.0;
    vec![
        counters,
        Panel::new("Certificates expire in", Form::Lines, 12, "s")
            .of(Derived::CertificateExpiry)
            .show(left, "{{instance}}")
            .bad(limit, false),
    ]
}

fn exporters() -> Vec<Panel> {
    vec![
        Panel::new("READs", Form::Lines, 8, "ops")
            .of(Derived::Reads)
            .show(CLUSTERS.rate(Derived::Reads), "{{instance}}"),
        Panel::new("Bytes READ", Form::Lines, 8, "Bps")
            .of(Derived::ReadBytes)
            .show(CLUSTERS.rate(Derived::ReadBytes), "{{instance}}"),
        Panel::new("Duration of a poll", Form::Lines, 8, "s")
            .of(Derived::PollDuration)
            .show(CLUSTERS.series(Derived::PollDuration), "{{instance}}"),
    ]
}

/// All queries, with Grafana's variables.
pub fn queries(profile: &Profile) -> Vec<String> {
    let panels = rows(profile).into_iter().flat_map(|(_, panels)| panels);
    panels.flat_map(|panel| panel.targets).map(|(query, _)| query).collect()
}

const DATASOURCE: &str = "${datasource}";

fn datasource() -> Value {
    json!({ "type": "prometheus", "uid": DATASOURCE })
}

fn thresholds(limit: Option<(f64, bool)>) -> Value {
    let step = |color: &str, value: Value| json!({ "color": color, "value": value });
    let steps = match limit {
        None => json!([step("green", Value::Null)]),
        Some((limit, true)) => json!([step("green", Value::Null), step("red", json!(limit))]),
        Some((limit, false)) => json!([step("red", Value::Null), step("green", json!(limit))]),
    };
    json!({ "mode": "absolute", "steps": steps })
}

fn options(form: Form) -> Value {
    let legend = json!({ "displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": [] });
    match form {
        Form::Stat => json!({
            "reduceOptions": { "values": false, "calcs": ["lastNotNull"], "fields": "" },
            "colorMode": "value", "graphMode": "none", "textMode": "value_and_name"
        }),
        Form::Lines => json!({ "legend": legend, "tooltip": { "mode": "multi", "sort": "desc" } }),
        Form::Heatmap => json!({
            "calculate": false, "yAxis": { "unit": "s" }, "cellGap": 1,
            "color": {
                "mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5, "fill": "dark-orange",
                "reverse": false
            }
        }),
        Form::States => {
            json!({ "legend": legend, "mergeValues": true, "showValue": "never", "rowHeight": 0.8 })
        }
    }
}

fn panel(panel: &Panel, id: u32, at: (u32, u32)) -> Value {
    let Panel { title, form, width, unit, about, targets, limit } = panel;
    let about: Vec<String> =
        about.iter().map(|metric| format!("{}: {}", metric.name(), metric.help())).collect();
    let target = |(n, (query, legend)): (usize, &(String, &str))| {
        json!({
            "refId": char::from(b'A' + (n % 26) as u8).to_string(),
            "datasource": datasource(),
            "expr": query,
            "legendFormat": legend,
            "range": true,
            "format": if *form == Form::Heatmap { "heatmap" } else { "time_series" }
        })
    };
    let custom = match form {
        // Lines that end, because a process is gone, are not joined.
        Form::Lines => json!({ "drawStyle": "line", "lineInterpolation": "stepAfter", "spanNulls": false,
            "thresholdsStyle": { "mode": if limit.is_some() { "line" } else { "off" } } }),
        Form::States => json!({ "fillOpacity": 70 }),
        Form::Stat | Form::Heatmap => json!({}),
    };
    json!({
        "id": id,
        "type": form.name(),
        "title": title,
        "description": about.join("\n\n"),
        "datasource": datasource(),
        "gridPos": { "x": at.0, "y": at.1, "w": width, "h": if *form == Form::Stat { 4 } else { 8 } },
        "targets": targets.iter().enumerate().map(target).collect::<Vec<_>>(),
        "fieldConfig": {
            "defaults": { "unit": unit, "thresholds": thresholds(*limit), "custom": custom },
            "overrides": []
        },
        "options": options(*form)
    })
}

/// The panels of all rows, below and beside each other.
fn placed(profile: &Profile) -> Vec<Value> {
    let mut all = Vec::new();
    let (mut id, mut y) = (0, 0);
    let mut next = || {
        id += 1;
        id
    };
    for (title, panels) in rows(profile) {
        all.push(json!({
            "id": next(), "type": "row", "title": title, "collapsed": false, "panels": [],
            "gridPos": { "x": 0, "y": y, "w": COLUMNS, "h": 1 }
        }));
        y += 1;
        let (mut x, mut height) = (0, 0);
        for one in &panels {
            if x + one.width > COLUMNS {
                (x, y, height) = (0, y + height, 0);
            }
            let made = panel(one, next(), (x, y));
            height = height.max(if one.form == Form::Stat { 4 } else { 8 });
            x += one.width;
            all.push(made);
        }
        y += height;
    }
    all
}

fn variable(name: &str, metric: Derived) -> Value {
    let series = metric_of(metric);
    let matchers = if name == "process" { "{cluster=~\"$cluster\"}" } else { "" };
    let query = format!("label_values({series}{matchers}, {name})");
    json!({
        "name": name, "label": name, "type": "query", "datasource": datasource(),
        "query": { "query": query, "refId": "A" },
        "multi": true, "includeAll": true, "allValue": ".*", "refresh": 2, "sort": 1,
        "current": { "selected": true, "text": ["All"], "value": ["$__all"] }
    })
}

fn metric_of(derived: Derived) -> String {
    Metric::from(derived).series()
}

/// The dashboard, as a file to import.
pub fn json(profile: &Profile) -> Value {
    json!({
        "title": "obol",
        "uid": "obol",
        "description": format!(
            "Made by `obol export dashboard` from the profile {}; make it again when that changes.", profile.name
        ),
        "tags": ["obol"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": true,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "15s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [
            { "name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus" },
            variable("cluster", Derived::Up),
            variable("process", Derived::Runs)
        ] },
        "panels": placed(profile)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::{exported, named};
    use std::collections::BTreeSet;

    fn laptop() -> Profile {
        Profile::builtin("laptop").expect("it ships")
    }

    #[test]
    fn every_query_is_on_metrics_that_are_exported() {
        let exported = exported();
        let mut queries = queries(&laptop());
        queries.push(json(&laptop())["templating"].to_string());
        for query in queries {
            let used = named(&query);
            assert!(!used.is_empty() && used.is_subset(&exported), "{query}: {used:?}");
        }
    }

    #[test]
    fn panels_are_distinct_and_side_by_side_within_the_grid() {
        let dashboard = json(&laptop());
        let panels = dashboard["panels"].as_array().expect("a list");
        let mut ids = BTreeSet::new();
        let mut cells = BTreeSet::new();
        for panel in panels {
            assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{panel}");
            let at = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
            assert!(at("x") + at("w") <= u64::from(COLUMNS), "{panel}");
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(cells.insert((x, y)), "overlaps: {panel}");
                }
            }
            if panel["type"] == "row" {
                continue;
            }
            let targets = panel["targets"].as_array().expect("a list");
            let names: BTreeSet<&str> = targets.iter().map(|t| t["refId"].as_str().expect("text")).collect();
            assert!(!targets.is_empty() && names.len() == targets.len(), "{panel}");
            assert!(panel["description"].as_str().is_some_and(|text| text.contains("obol_")), "{panel}");
            assert!(targets.iter().all(|t| t["datasource"]["uid"] == DATASOURCE), "{panel}");
        }
    }

    #[test]
    fn every_metric_of_a_panel_s_queries_is_explained() {
        for (_, panels) in rows(&laptop()) {
            for panel in panels {
                let named: BTreeSet<String> =
                    panel.targets.iter().flat_map(|(query, _)| named(query)).collect();
                for metric in &panel.about {
                    let name = metric.name();
                    assert!(named.iter().any(|series| series.starts_with(&name)), "{}: {name}", panel.title);
                }
            }
        }
    }

    #[test]
    fn the_limits_are_those_of_the_profile() {
        let mut profile = laptop();
        profile.alert.margin_percent = 37;
        profile.timing.lease = obol_fabric::Nanos::from_millis(123);
        let text = json(&profile).to_string();
        assert!(text.contains("* 0.37") && text.contains("0.123"), "{text}");
    }
}
