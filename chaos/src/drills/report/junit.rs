//! JUnit XML for build servers, in the form that Jenkins, GitLab and GitHub's actions read: a suite
//! per drill, and a case for each step of each repetition, each bound, each steady state
//! afterwards, and the run itself. What is void is skipped, never failed.
//!
//! ```xml
//! <testsuites name="obol drills" tests="3" failures="1" errors="0" skipped="1" time="2">
//!   <testsuite name="app" ...>
//!     <testcase classname="app.repetition" name="1 kill" time="0.000591"/>
//! ```

use crate::drills::engine::journal::{Journal, Judged, Outcome, Trial, Verdict, counted};
use obol_fabric::Nanos;
use obol_observe::calendar;
use std::fmt::Write as _;

/// The name of all suites together.
const ALL: &str = "obol drills";

/// The result of a case. Texts are one line.
enum Result {
    Passed,
    /// The cluster, a bound or a state is not as required.
    Failed(String),
    /// It was not carried out: refused, aborted, interrupted.
    Error(String),
    /// Nothing can be said.
    Skipped(String),
}

struct Case {
    class: String,
    name: String,
    seconds: f64,
    result: Result,
}

/// A suite, and the whole document around it.
struct Suite<'a> {
    name: &'a str,
    /// Nanoseconds since 1970 when it began.
    began: u64,
    seconds: f64,
    properties: Vec<(&'static str, String)>,
    cases: Vec<Case>,
}

/// The text of an attribute or element. Control characters are not part of XML 1.0, not even
/// escaped, and newlines in attributes would be read as blanks.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

impl Suite<'_> {
    fn count(&self, wanted: fn(&Result) -> bool) -> usize {
        self.cases.iter().filter(|case| wanted(&case.result)).count()
    }

    fn text(&self) -> String {
        let (tests, time) = (self.cases.len(), self.seconds);
        let failures = self.count(|result| matches!(result, Result::Failed(_)));
        let errors = self.count(|result| matches!(result, Result::Error(_)));
        let skipped = self.count(|result| matches!(result, Result::Skipped(_)));
        let counts = format!(
            "tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{time}\""
        );
        let began = calendar::utc(self.began, "%FT%T");
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "<testsuites name=\"{ALL}\" {counts}>");
        let name = escaped(self.name);
        let _ = writeln!(text, "  <testsuite name=\"{name}\" {counts} timestamp=\"{began}\">");
        text.push_str("    <properties>\n");
        for (key, value) in &self.properties {
            let _ = writeln!(text, "      <property name=\"{key}\" value=\"{}\"/>", escaped(value));
        }
        text.push_str("    </properties>\n");
        for Case { class, name, seconds, result } in &self.cases {
            let (class, name) = (escaped(class), escaped(name));
            let _ = write!(text, "    <testcase classname=\"{class}\" name=\"{name}\" time=\"{seconds}\"");
            let (tag, why) = match result {
                Result::Passed => {
                    text.push_str("/>\n");
                    continue;
                }
                Result::Failed(why) => ("failure", why),
                Result::Error(why) => ("error", why),
                Result::Skipped(why) => ("skipped", why),
            };
            let kind = if tag == "skipped" { "" } else { " type=\"obol\"" };
            let _ = writeln!(text, ">\n      <{tag} message=\"{}\"{kind}/>\n    </testcase>", escaped(why));
        }
        text.push_str("  </testsuite>\n</testsuites>\n");
        text
    }
}

fn repetition(drill: &str, trial: &Trial) -> Case {
    let why = || trial.reason.clone().unwrap_or_else(|| trial.outcome.name().to_owned());
    Case {
        class: format!("{drill}.repetition"),
        name: format!("{} {}", trial.number, trial.step),
        seconds: trial.failover_ns.or(trial.unavailable_ns).map_or(0.0, |ns| ns as f64 / 1e9),
        result: match trial.outcome {
            Outcome::Measured => Result::Passed,
            Outcome::Void => Result::Skipped(why()),
            Outcome::Failed => Result::Failed(why()),
        },
    }
}

fn bound(drill: &str, one: &Judged) -> Case {
    let result = match one.holds {
        Some(true) => Result::Passed,
        Some(false) => Result::Failed(one.deviation()),
        None => Result::Skipped(format!("{}: {} samples are too few", one.figure(), one.samples)),
    };
    Case { class: format!("{drill}.expect"), name: one.expectation(), seconds: 0.0, result }
}

/// The run as a whole, so that a drill without a repetition has a case, too.
fn verdict(journal: &Journal) -> Case {
    let why = || match journal.remarks.is_empty() {
        true => journal.verdict.name().to_owned(),
        false => format!("{}: {}", journal.verdict.name(), journal.remarks.join("; ")),
    };
    let result = match journal.verdict {
        Verdict::Passed => Result::Passed,
        Verdict::Failed | Verdict::Deviated => Result::Failed(why()),
        Verdict::Aborted | Verdict::Interrupted => Result::Error(why()),
        Verdict::Void => Result::Skipped(why()),
    };
    Case { class: journal.drill.clone(), name: "verdict".to_owned(), seconds: journal.took, result }
}

/// The results of a run.
pub fn junit(journal: &Journal) -> String {
    let drill = journal.drill.as_str();
    let mut cases: Vec<Case> = counted(&journal.trials).map(|trial| repetition(drill, trial)).collect();
    cases.extend(journal.judged.iter().map(|one| bound(drill, one)));
    cases.extend(journal.after.iter().map(|one| Case {
        class: format!("{drill}.steady"),
        name: one.probe.name().to_owned(),
        seconds: 0.0,
        result: if one.holds { Result::Passed } else { Result::Failed(one.saw.clone()) },
    }));
    cases.push(verdict(journal));
    let properties = vec![
        ("title", journal.title.clone()),
        ("verdict", journal.verdict.name().to_owned()),
        ("profile", journal.profile.clone()),
        ("environment", journal.environment.clone()),
        ("kernel", journal.host.kernel.clone()),
        ("cores", journal.host.cores.to_string()),
    ];
    let began = Nanos::from_secs(journal.began).0;
    Suite { name: drill, began, seconds: journal.took, properties, cases }.text()
}

/// A run that did not begin, for this reason. `began` is in seconds since 1970.
pub fn junit_refused(drill: &str, began: u64, why: &str) -> String {
    let case = Case {
        class: drill.to_owned(),
        name: "verdict".to_owned(),
        seconds: 0.0,
        result: Result::Error(format!("refused: {why}")),
    };
    let properties = vec![("verdict", "refused".to_owned())];
    Suite { name: drill, began: Nanos::from_secs(began).0, seconds: 0.0, properties, cases: vec![case] }
        .text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_no_markup_and_control_characters_are_replaced() {
        let hostile = "</failure><x a=\"1\" b='2'>&amp;\n\u{1b}[31m\u{0}\u{ffff}";
        let text = junit_refused(hostile, 0, hostile);
        let once = "&lt;/failure&gt;&lt;x a=&quot;1&quot; b=&apos;2&apos;&gt;&amp;amp;&#10;\u{fffd}[31m\u{fffd}\u{fffd}";
        assert!(text.contains(&format!("<testsuite name=\"{once}\"")), "{text}");
        assert!(text.contains(&format!("<error message=\"refused: {once}\" type=\"obol\"/>")), "{text}");
        assert!(text.contains("tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\""), "{text}");
        assert!(text.contains("timestamp=\"1970-01-01T00:00:00\""), "{text}");
    }
}
