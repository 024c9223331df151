//! `docs/metrics.md` has all metrics and alerts of the tables.

use crate::rules::{RUNBOOKS, rules, yaml};
use obol_observe::metrics::{Metric, Writer};
use obol_profiles::Profile;
use std::path::Path;

/// The text with new lines between a marker and the next end.
fn put(text: &str, marker: &str, lines: &[String]) -> String {
    let begin = format!("<!-- {marker} -->\n");
    let (before, rest) = text.split_once(&begin).expect("the marker is there");
    let (_, after) = rest.split_once("<!-- end -->").expect("it ends");
    format!("{before}{begin}{}<!-- end -->{after}", lines.concat())
}

#[test]
fn the_documentation_has_every_metric_and_alert() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let before = std::fs::read_to_string(&path).expect("it is there");
    let metrics: Vec<String> = Metric::all()
        .map(|metric| {
            let labels: Vec<String> = metric.labels().iter().map(|label| format!("`{label}`")).collect();
            let report = match metric.writer() {
                Writer::Export => "",
                Writer::Both => "too",
                Writer::Report => "only",
            };
            format!(
                "| `{}` | {} | {} | {} | {report} |\n",
                metric.name(),
                metric.kind().name(),
                labels.join(", "),
                metric.help().replace('|', "\\|")
            )
        })
        .collect();
    let laptop = Profile::builtin("laptop").expect("it ships");
    let alerts: Vec<String> = rules(&laptop)
        .iter()
        .map(|rule| {
            // The placeholders of Prometheus, in words.
            let summary = rule.summary.replace("{{ $labels.process }}", "A process");
            let summary = summary.replace("of A process", "of a process");
            let summary = summary.replace(" of cluster {{ $labels.cluster }}", "");
            let summary = summary.replace("cluster {{ $labels.cluster }}", "the cluster");
            let summary = summary.replace("the host of {{ $labels.instance }}, the cluster", "a host");
            let summary = summary.replace("the host of {{ $labels.instance }}", "its host");
            let words: Vec<&str> = summary.split("{{").collect();
            let mut plain = words[0].to_owned();
            for word in &words[1..] {
                plain += "N";
                plain += word.split_once("}}").map_or("", |(_, rest)| rest);
            }
            format!("| {} | {} | {plain} |\n", rule.name, rule.severity.name())
        })
        .collect();
    let after = put(&put(&before, "metrics", &metrics), "alerts", &alerts);
    if std::env::var_os("OBOL_BLESS").is_some() {
        std::fs::write(&path, &after).expect("written");
    }
    assert!(
        before == after || std::env::var_os("OBOL_BLESS").is_some(),
        "OBOL_BLESS=1 writes docs/metrics.md anew"
    );
}

#[test]
fn every_alert_has_a_section_and_every_section_an_alert() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/alerts.md");
    let text = std::fs::read_to_string(&path).expect("it is there");
    let sections: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let laptop = Profile::builtin("laptop").expect("it ships");
    let rules = rules(&laptop);
    let names: Vec<&str> = rules.iter().map(|rule| rule.name).collect();
    // Those of the console alone follow.
    assert_eq!(sections[..names.len()], names, "in the order of the rules");
    assert_eq!(sections[names.len()..], ["PulseMargin", "VoidDrill"]);
    for (name, section) in sections.iter().zip(text.split("\n## ").skip(1)) {
        for part in ["**Means:**", "**Do:**"] {
            assert!(section.contains(part), "{name} has no {part}");
        }
    }
    for name in names {
        let link = format!("runbook_url: \"{RUNBOOKS}#{}\"", name.to_lowercase());
        assert!(yaml(&laptop, RUNBOOKS).contains(&link), "{link}");
    }
}
