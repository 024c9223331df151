//! The banner of a rollout, on every screen:
//!
//! ```text
//! > rollout ./deploy 1.4: running for 1m 12s  failover p99 512us (before 480us, limit +20 % = 576us)
//! ```

use crate::theme::Tone;
use obol_fabric::Nanos;
use obol_observe::annotations::RolloutStep;
use obol_observe::calendar::age;
use obol_observe::sampling::data::Data;

/// How long the end of a rollout is shown.
const SHOWN: Nanos = Nanos::from_secs(60);
/// The gate writes more often than this; without news it has probably been killed.
const SILENT: Nanos = Nanos::from_secs(15);

/// The rollout that goes on, or ended just now: sign, text and tone.
pub(super) fn banner(data: &Data) -> Option<(&'static str, String, Tone)> {
    let (began, mark) = data.rollout.as_ref()?;
    let rollout = mark.rollout.as_ref()?;
    let now = data.sample.as_ref()?.at;
    let old = now.since(mark.at);
    let (what, tone) = match rollout.step {
        RolloutStep::Over if old > SHOWN => return None,
        RolloutStep::Over => {
            let tone = if rollout.phase == "passed" { Tone::Good } else { Tone::Bad };
            (format!("{} {} ago", rollout.phase, age(old)), tone)
        }
        _ if old > SILENT => (format!("{}, and no news of it for {}", rollout.phase, age(old)), Tone::Stale),
        _ if rollout.wrong.is_empty() => {
            (format!("{} for {}", rollout.phase, age(now.since(*began))), Tone::Title)
        }
        _ => (format!("{} for {}", rollout.phase, age(now.since(*began))), Tone::Bad),
    };
    let shown = if rollout.wrong.is_empty() { &rollout.compared } else { &rollout.wrong };
    let mut text = format!("rollout {}: {what}", rollout.name);
    for one in shown {
        text.push_str("  ");
        text.push_str(one);
    }
    Some((">", text, tone))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use obol_fabric::Instant;
    use obol_observe::annotations::{Mark, RolloutMark};
    use obol_observe::sampling::sample::{MarkRow, Sample};
    use std::sync::Arc;

    const START: u64 = 3_600_000_000_000;

    fn at(seconds: u64) -> Instant {
        Instant(START + seconds * 1_000_000_000)
    }

    fn mark(seconds: u64, step: RolloutStep, phase: &str, wrong: &[&str]) -> MarkRow {
        let rollout = RolloutMark {
            name: "./deploy 1.4".to_owned(),
            phase: phase.to_owned(),
            compared: vec!["late renewals 0 % (before 0 %, limit 0.01 %)".to_owned()],
            wrong: wrong.iter().map(|&text| text.to_owned()).collect(),
            step,
        };
        Mark::rollout(at(seconds), rollout).into()
    }

    fn take(data: &mut Data, seconds: u64, marks: Vec<MarkRow>) -> Option<(String, Tone)> {
        data.take(Arc::new(Sample { marks, ..samples::healthy(at(seconds)) }));
        banner(data).map(|(_, text, tone)| (text, tone))
    }

    #[test]
    fn of_rollouts_that_ended_only_one_that_passed_is_green() {
        let tone = |phase| {
            let ended = vec![mark(1, RolloutStep::Over, phase, &[])];
            take(&mut Data::default(), 2, ended).expect("shown").1
        };
        assert_eq!(tone("passed"), Tone::Good);
        for phase in ["failed", "command-failed", "aborted", "interrupted", "void", "a later word"] {
            assert_eq!(tone(phase), Tone::Bad, "{phase}");
        }
        let goes = vec![mark(1, RolloutStep::Goes, "passed", &[])];
        assert_ne!(take(&mut Data::default(), 2, goes).expect("shown").1, Tone::Good, "it has not ended");
    }

    #[test]
    fn a_rollout_is_shown_from_its_begin_until_a_minute_after_its_end() {
        let mut data = Data::default();
        assert_eq!(take(&mut data, 0, Vec::new()), None);
        let begins = mark(1, RolloutStep::Begins, "running", &[]);
        let (text, tone) = take(&mut data, 3, vec![begins]).expect("shown");
        assert_eq!(tone, Tone::Title);
        assert!(
            text.starts_with("rollout ./deploy 1.4: running for 2") && text.contains("limit 0.01 %"),
            "{text}"
        );
        assert_eq!(data.note().map(|mark| mark.text.as_str()), Some("rollout ./deploy 1.4"));
        let goes = mark(30, RolloutStep::Goes, "settling", &["members failed 1"]);
        let (text, tone) = take(&mut data, 31, vec![goes]).expect("shown");
        assert_eq!(tone, Tone::Bad);
        assert!(
            text.starts_with("rollout ./deploy 1.4: settling for 30") && text.ends_with("members failed 1"),
            "{text}"
        );
        let (text, tone) = take(&mut data, 50, Vec::new()).expect("shown");
        assert!(tone == Tone::Stale && text.contains("no news of it for 20"), "{text}");
        let (text, tone) =
            take(&mut data, 60, vec![mark(60, RolloutStep::Over, "aborted", &[])]).expect("shown");
        assert!(tone == Tone::Bad && text.contains("aborted"), "{text}");
        assert_eq!(take(&mut data, 121, Vec::new()), None);
        assert_eq!(data.marks.len(), 2, "progress is not an annotation");
        assert_eq!(
            data.note().map(|mark| mark.at),
            Some(at(1)),
            "figures are compared with those before the begin"
        );
    }
}
