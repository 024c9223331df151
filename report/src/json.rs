//! The report as one JSON object.

use crate::{Part, Report};
use obol_observe::calendar::iso;
use obol_observe::failovers::{Failover, PHASES};
use obol_observe::incidents::incident_json;
use obol_observe::sampling::windows::PERCENTILES;
use obol_term::output::Failure;
use serde_json::{Map, Value, json};

/// Changes if readers of an older version would misread it.
const SCHEMA: u32 = 1;

fn failover(report: &Report, (part, failover): (&Part, &Failover)) -> Value {
    let phases: Map<String, Value> = PHASES
        .iter()
        .zip(failover.phases())
        .map(|(name, span)| ((*name).to_owned(), json!(span.map(|span| span.0))))
        .collect();
    let dead: Vec<Value> = failover
        .dead
        .iter()
        .map(|dead| {
            json!({
                "who": part.data.who(dead.who),
                "accuser": part.data.accuser(dead),
                "level": dead.reason.map(|reason| reason.name()),
            })
        })
        .collect();
    json!({
        "view": failover.view.0,
        "began": iso(report.unix(failover.began)),
        "before_first_sample": report.is_before(failover.began),
        "decider": failover.decider.as_str(),
        "dead": dead,
        "phases_ns": phases,
        "unstamped_ns": failover.unstamped().map(|span| span.0),
        "total_ns": failover.total().map(|total| total.0),
        "active_last": failover.last_active().map(|(name, _)| name.to_string()),
    })
}

/// The whole text.
pub(super) fn text(report: &Report) -> Result<String, Failure> {
    let sample = &report.last;
    let latencies: Vec<Value> = report
        .latencies()
        .map(|latency| {
            let mut value = Map::new();
            value.insert("of".to_owned(), json!(latency.of.name()));
            value.insert("n".to_owned(), json!(latency.n));
            for ((name, ..), found) in PERCENTILES.iter().zip(latency.percentiles) {
                value.insert(format!("{}_ns", name.replace('.', "")), json!(found.map(|span| span.0)));
            }
            value.insert("worst_ns".to_owned(), json!(latency.worst.map(|span| span.0)));
            Value::Object(value)
        })
        .collect();
    let processes: Vec<Value> = sample
        .processes
        .iter()
        .map(|row| {
            json!({
                "name": row.name.as_str(),
                "kind": row.kind.name(),
                "state": report.data().status(row).words().1,
                "incarnation": row.incarnation.0,
                "view": row.view.map(|view| view.0),
            })
        })
        .collect();
    let outages: Vec<Value> = report
        .outages
        .iter()
        .map(|outage| {
            json!({
                "health": outage.name(),
                "from": iso(report.unix(outage.from)),
                "to": iso(report.unix(outage.to)),
                "lasts": outage.lasts,
                "span_ns": outage.span().0,
                "serves": outage.serves(),
                "reasons": outage.reasons,
            })
        })
        .collect();
    let marks: Vec<Value> = report
        .marks()
        .map(|mark| json!({ "at": iso(report.unix(mark.at)), "before_first_sample": report.is_before(mark.at), "text": mark.text, "drill": mark.drill, "rollout": mark.rollout }))
        .collect();
    let incidents: Vec<Value> = report.incidents().map(|one| incident_json(&one, sample)).collect();
    let value = json!({
        "schema": SCHEMA,
        "cluster": report.cluster.as_str(),
        "from": iso(report.first.1),
        "to": iso(sample.unix),
        "samples": report.samples,
        "health": report.health(),
        "reasons": sample.reasons,
        "incidents": incidents,
        "outages": outages,
        "no_service_ns": report.outages.without_service().0.0,
        "alerts": report.data().alerts.iter().map(|(name, clause)| json!({ "alert": name, "what": clause })).collect::<Vec<_>>(),
        "view": sample.view.as_ref().map(|view| view.id.0),
        "leader": sample.leader.map(|leader| leader.to_string()),
        "processes": processes,
        "failovers": report.failovers().map(|one| failover(report, one)).collect::<Vec<_>>(),
        "latencies": latencies,
        "marks": marks,
        "renewals": report.renewals,
        "gap": report.gap,
        "lacks": report.lacks(),
    });
    let mut text = serde_json::to_string_pretty(&value).map_err(Failure::failed)?;
    text.push('\n');
    Ok(text)
}
