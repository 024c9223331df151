//! Workflow commands of GitHub's actions, which annotate lines of the drill file with what did not
//! hold: `::error file=drills/mine.toml,line=31,title=drill mine::failover.cue_to_active p90 ...`.

use crate::drillfile::{Drill, Places};
use crate::drills::engine::journal::{Journal, Outcome, Verdict, counted};
use obol_config::FileError;

/// Repetitions that are annotated one by one; GitHub shows ten annotations of a step.
const REPETITIONS_MAX: usize = 3;

/// A message of a workflow command.
fn message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a workflow command.
fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}

/// What the lines of one file are annotated with.
struct File<'a> {
    /// None for a drill that ships: no file of the repository is meant.
    path: Option<&'a str>,
    title: String,
    lines: Vec<String>,
}

impl File<'_> {
    fn add(&mut self, level: &str, line: usize, text: &str) {
        let place = self.path.map_or(String::new(), |path| format!("file={},line={line},", property(path)));
        self.lines.push(format!("::{level} {place}title={}::{}", property(&self.title), message(text)));
    }
}

/// The annotations of a run. `path` is the drill file, if it is one, and `text` what it holds.
pub fn annotations(journal: &Journal, drill: &Drill, path: Option<&str>, text: &str) -> Vec<String> {
    let places = Places::of(text);
    let title = format!("drill {}: {}", journal.drill, journal.verdict.name());
    let mut file = File { path, title, lines: Vec::new() };
    for one in journal.judged.iter().filter(|one| one.holds != Some(true)) {
        let at = drill.expect.iter().position(|expect| expect.metric == one.metric);
        let line = at.map_or(places.drill, |at| places.expect(at));
        match one.holds {
            Some(_) => file.add("error", line, &one.deviation()),
            None => {
                let few = format!("{}: {} samples are too few", one.figure(), one.samples);
                file.add("warning", line, &few);
            }
        }
    }
    let after = drill.steady.iter().enumerate().filter(|(_, steady)| steady.after);
    for ((at, _), one) in after.zip(&journal.after).filter(|(_, one)| !one.holds) {
        let text = format!("{} does not hold afterwards: {}", one.probe.name(), one.saw);
        file.add("error", places.steady(at), &text);
    }
    let failed = counted(&journal.trials).filter(|trial| trial.outcome == Outcome::Failed);
    for trial in failed.take(REPETITIONS_MAX) {
        let at = drill.steps.iter().position(|step| step.name == trial.step).unwrap_or(0);
        let why = trial.reason.as_deref().unwrap_or("it failed");
        file.add("error", places.step(at), &format!("repetition {}: {why}", trial.number));
    }
    let level = match journal.verdict {
        Verdict::Passed => "notice",
        Verdict::Void => "warning",
        _ => "error",
    };
    let remarks = journal.remarks.iter().map(|remark| format!("; {remark}")).collect::<String>();
    let summary = format!("{} after {} repetitions{remarks}", journal.verdict.name(), journal.count);
    file.add(level, places.drill, &summary);
    file.lines
}

/// The annotations of a file that was refused: each fault at its place.
pub fn annotated_faults(error: &FileError) -> Vec<String> {
    let FileError::Refused { origin, problems } = error else {
        return vec![annotated_refusal(&error.to_string())];
    };
    let of = |problem: &obol_config::PlacedProblem| {
        let (line, column) = (problem.line, problem.column);
        let text = message(&problem.problem.to_string());
        format!(
            "::error file={},line={line},col={column}::{text}",
            property(origin.strip_prefix("./").unwrap_or(origin))
        )
    };
    problems.iter().map(of).collect()
}

/// The annotation of a run that did not begin, without a place.
pub fn annotated_refusal(why: &str) -> String {
    format!("::error title=drill refused::{}", message(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drillfile::parse;

    #[test]
    fn every_fault_of_a_file_is_annotated_at_its_place() {
        let text = "[drill]\nschema = 1\nid = \"x\"\ntitel = \"a\"\nenvironment = \"local\"\n[[step]]\nname = \"s\"\n";
        let error = parse(text, "./drills/a,b.toml").expect_err("it is refused");
        let lines = annotated_faults(&error);
        assert!(
            lines.iter().any(|line| line.starts_with("::error file=drills/a%2Cb.toml,line=4,col=1::")),
            "{lines:?}"
        );
        assert!(lines.iter().any(|line| line.contains("line=6") && line.contains("fault")), "{lines:?}");
    }

    #[test]
    fn a_message_cannot_end_its_command() {
        let shown = annotated_refusal("100 %\n::error::x\r");
        assert_eq!(shown, "::error title=drill refused::100 %25%0A::error::x%0D");
    }
}
