//! `docs/metrics.md` has all metrics and alerts of the tables.

use crate::rules::{RUNBOOKS, Severity, rules, yaml};
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
            // The page says once that `kind` accompanies `process`.
            let labels = metric.labels().iter().filter(|label| **label != "kind");
            let labels: Vec<String> = labels.map(|label| format!("`{label}`")).collect();
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
    let rules = rules(&laptop);
    let of = |severity: Severity| -> Vec<&str> {
        rules.iter().filter(|rule| rule.severity == severity).map(|rule| rule.name).collect()
    };
    let severities = [Severity::Critical, Severity::Warning, Severity::Info];
    let listed: usize = severities.iter().map(|severity| of(*severity).len()).sum::<usize>();
    assert_eq!(listed, rules.len(), "another severity has to be listed");
    let alerts: Vec<String> = severities
        .iter()
        .map(|severity| format!("- *{}*: {}.\n", severity.name(), of(*severity).join(", ")))
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
