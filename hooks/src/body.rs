//! Bodies of webhooks: the event as it is, those that Slack and Grafana take, and templates.

use obol_config::nearest;
use obol_observe::incidents::event::{Event, Severity, State};
use serde_json::{Value, json};

/// What a template can name: `{{title}}` is the text as in a JSON string, without its quotes;
/// `{{details}}` and `{{event}}` are JSON values.
pub(crate) const PLACEHOLDERS: [&str; 14] = [
    "id",
    "kind",
    "time",
    "unix_ms",
    "cluster",
    "identity",
    "host",
    "severity",
    "state",
    "subject",
    "title",
    "suppressed",
    "details",
    "event",
];

/// For an incoming webhook of Slack, or anything that takes the same.
pub(crate) fn slack(event: &Event, suppressed: u64) -> Value {
    let sign = match (event.state, event.severity) {
        (State::Resolved, _) => ":white_check_mark:",
        (_, Severity::Info) => ":information_source:",
        (_, Severity::Warning) => ":warning:",
        (_, Severity::Critical) => ":rotating_light:",
    };
    let more =
        if suppressed > 0 { format!(" ({suppressed} earlier events suppressed)") } else { String::new() };
    let state =
        if event.state == State::Event { String::new() } else { format!(" [{}]", event.state.name()) };
    let Event { cluster, host, .. } = event;
    let (kind, title) = (event.kind.name(), escaped(&event.title));
    let text = format!("{sign} *{cluster}* {kind}{state}: {title} (seen by {}){more}", escaped(host));
    json!({ "text": text })
}

/// Slack's own three control characters.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// For `POST /api/annotations` of Grafana.
pub(crate) fn grafana(event: &Event) -> Value {
    let tags = ["obol", &event.cluster, event.kind.name(), event.severity.name(), &event.subject];
    let tags: Vec<&str> = tags.into_iter().filter(|tag| !tag.is_empty()).collect();
    let mut body = json!({ "time": event.unix / 1_000_000, "tags": tags, "text": event.title });
    // What lasted is a region and not a line.
    if let Some(total) = event.details.get("total_ns").and_then(Value::as_u64) {
        body["timeEnd"] = json!(event.unix.saturating_add(total).div_ceil(1_000_000));
    }
    body
}

pub(crate) fn fill(template: &str, event: &Event, suppressed: u64) -> String {
    let whole = event.to_json(suppressed);
    let mut out = String::with_capacity(template.len() * 2);
    for part in parts(template) {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Name("event") => out.push_str(&whole.to_string()),
            Part::Name(name) => match &whole[name] {
                Value::String(text) => {
                    let quoted = Value::from(text.as_str()).to_string();
                    out.push_str(&quoted[1..quoted.len() - 1]);
                }
                other => out.push_str(&other.to_string()),
            },
        }
    }
    out
}

enum Part<'a> {
    Text(&'a str),
    Name(&'a str),
}

fn parts(template: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, after)) = after.split_once("}}") else { break };
        parts.push(Part::Text(before));
        parts.push(Part::Name(name.trim()));
        rest = after;
    }
    parts.push(Part::Text(rest));
    parts
}

/// Why a template cannot be used: an unknown placeholder, or a result that is not JSON.
pub(crate) fn check(template: &str, sample: &Event) -> Result<(), String> {
    for part in parts(template) {
        if let Part::Name(name) = part
            && !PLACEHOLDERS.contains(&name)
        {
            let near = nearest(name, PLACEHOLDERS)
                .map_or(String::new(), |near| format!("; did you mean {{{{{near}}}}}?"));
            let name: String = name.chars().take(40).collect();
            return Err(format!("there is no {{{{{name}}}}}, but {}{near}", PLACEHOLDERS.join(", ")));
        }
    }
    let filled = fill(template, sample, 0);
    match serde_json::from_str::<Value>(&filled) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("filled in, it is not JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::event;
    use obol_observe::incidents::event::Kind;

    #[test]
    fn slack_gets_a_text_with_its_control_characters_escaped() {
        let mut event = event(Kind::Alert, "a <b> & c");
        event.state = State::Firing;
        assert_eq!(
            slack(&event, 2)["text"],
            ":warning: *default* alert [firing]: a &lt;b&gt; &amp; c (seen by web-1) (2 earlier events suppressed)"
        );
    }

    #[test]
    fn grafana_gets_a_region_for_what_lasted() {
        let mut event = event(Kind::Failover, "app-2 failed");
        let body = grafana(&event);
        assert_eq!((&body["time"], &body["timeEnd"]), (&json!(1_795_572_847_120u64), &Value::Null));
        event.details.insert("total_ns".to_owned(), 1_700_000.into());
        let body = grafana(&event);
        assert_eq!(body["timeEnd"], json!(1_795_572_847_123u64));
        assert_eq!(body["tags"], json!(["obol", "default", "failover", "warning", "node-2"]));
    }

    #[test]
    fn a_template_is_filled_in_as_json() {
        let event = event(Kind::View, "quote \" and \\ and\nline");
        let filled = fill(
            r#"{"msg": "{{title}}", "n": {{suppressed}}, "d": {{details}}, "all": {{ event }}}"#,
            &event,
            3,
        );
        let value: Value = serde_json::from_str(&filled).expect("JSON");
        assert_eq!((&value["msg"], &value["n"]), (&json!(event.title), &json!(3)));
        assert_eq!((&value["d"]["view"], &value["all"]["kind"]), (&json!(8), &json!("view")));
        assert_eq!(value["all"]["host"], "web-1");
    }

    #[test]
    fn a_wrong_template_is_refused() {
        let sample = event(Kind::Test, "x");
        assert_eq!(check(r#"{"text": "{{title}}"}"#, &sample), Ok(()));
        let wrong = check(r#"{"text": "{{titel}}"}"#, &sample).expect_err("refused");
        assert!(wrong.ends_with("did you mean {{title}}?"), "{wrong}");
        assert!(check(r#"{"text": {{title}}}"#, &sample).expect_err("refused").contains("not JSON"));
    }
}
