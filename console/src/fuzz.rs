//! Any recording or configuration is rejected, or shown on every screen and reported in every
//! format.

use super::config::fuzz as settings;
use super::scrambled::scrambled;
use super::state::Event;
use super::view::tests::{broken, console, press};
use super::{samples, screens, view::text};
use crate::samples::Recording;
use clap::ValueEnum;
use obol_fuzz::{Shape, Target, outcome};
use obol_observe::Observer;
use obol_observe::sampling::Update;
use obol_observe::sampling::record::{Frame, Header};
use obol_observe::sampling::tape::Tape;
use obol_report::Report;
use obol_report::options::ReportFormat;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

/// Separates samples in one input, as text for mutations.
const BETWEEN: &[u8] = b"\n\n----\n\n";

/// Frames with valid lengths and checksums around any contents.
fn recording(payloads: &[u8]) -> Vec<u8> {
    let header = serde_json::to_vec(&Header::new(samples::name("default"))).expect("JSON");
    let mut bytes = obol_observe::sampling::record::MAGIC.to_vec();
    let mut frame = |payload: &[u8]| {
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(payload).to_le_bytes());
        bytes.extend(payload);
    };
    frame(&header);
    let mut rest = payloads;
    while let Some(at) = rest.windows(BETWEEN.len()).position(|window| window == BETWEEN) {
        frame(&rest[..at]);
        rest = &rest[at + BETWEEN.len()..];
    }
    frame(rest);
    bytes
}

#[test]
fn recordings() {
    let model = broken(80, 24);
    let all: Vec<Vec<u8>> = model
        .store
        .iter()
        .map(|sample| serde_json::to_vec_pretty(&Frame::Sample(Box::new((*sample).clone()))).expect("JSON"))
        .collect();
    let last = all.len().saturating_sub(3);
    let with_replicas = obol_observe::sampling::sample::Sample {
        replicas: Some(samples::replicas()),
        ..samples::healthy(obol_fabric::Instant(1))
    };
    let with_replicas = serde_json::to_vec_pretty(&Frame::Sample(Box::new(with_replicas))).expect("JSON");
    Target::new("recordings", Shape::Text, 3_000)
        .with(all[last..].join(BETWEEN))
        .with(all[0].clone())
        .with(with_replicas)
        .run(|input| {
            let read = Recording::read(&recording(input)[..], Path::new("any.obolrec"));
            let read = match read {
                Ok(read) => read,
                Err(error) => return outcome(error.to_string().len()),
            };
            let mut model = console(100, 30);
            model.replay(samples::tape(&read.samples));
            let mut seen = 0_u64;
            for screen in 1..=screens::all().len() {
                press(&mut model, &screen.to_string());
                press(&mut model, "]");
                seen = seen.wrapping_add(outcome(text(&model).len()));
            }
            let samples: Vec<_> = read.samples.into_iter().map(Arc::new).collect();
            if let Some(report) = Report::new(samples::name("default"), samples) {
                for format in ReportFormat::value_variants() {
                    // A report that cannot be written is an error.
                    seen = seen.wrapping_add(report.text(*format).map_or(1, |text| outcome(text.len())));
                }
            }
            seen
        });
}

/// The frames themselves: lengths, checksums and the header.
#[test]
fn frames() {
    let sample = serde_json::to_vec(&Frame::Sample(Box::new(samples::healthy(obol_fabric::Instant(1)))))
        .expect("JSON");
    Target::new("frames", Shape::Bytes, 4_000).with(recording(&sample)).run(|input| {
        let path = Path::new("any.obolrec");
        let mut file = tempfile::tempfile().expect("made");
        file.write_all(input).expect("written");
        let tape = Tape::of(file, path);
        match (Recording::read(input, path), tape) {
            (Ok(read), Ok(tape)) => {
                let shown: Vec<_> = tape.samples(0..tape.found()).map_while(Result::ok).collect();
                assert_eq!(shown, read.samples, "a replay has the samples of a report");
                outcome((read.samples.len(), read.torn))
            }
            (Err(error), _) => outcome(error.to_string()),
            (Ok(_), Err(error)) => panic!("read, and not shown: {error}"),
        }
    });
}

#[test]
fn console_settings() {
    let seed = "theme = \"16\"\n[keys]\nquit = [\"X\", \"Ctrl-C\"]\n[members]\ncolumns = [\"STATE\", \"NAME\"]\nsort = \"60s\"\nreverse = true\n";
    Target::new("console-settings", Shape::Text, 6_000)
        .with(settings::default_text())
        .with(seed)
        .run(|input| settings::read(&String::from_utf8_lossy(input)));
}

/// What is read of processes that have anything in their memory is shown on every screen, recorded and
/// reported.
#[test]
fn regions() {
    const ROUNDS: u64 = 60;
    const SAMPLES: usize = 3;
    let mut read = 0;
    scrambled(ROUNDS, |root, cluster, scramble| {
        // One of another release is refused.
        let Ok(mut observer) = Observer::open(root, cluster) else { return };
        let samples: Vec<_> = (0..SAMPLES)
            .map(|_| {
                let sample = obol_observe::sampling::live::read(&mut observer, true);
                scramble();
                sample
            })
            .collect();
        let mut model = console(100, 30);
        for sample in &samples {
            model.reduce(Event::Update(Update::Sample(Box::new(sample.clone()))), &mut Vec::new());
        }
        press(&mut model, " [");
        for screen in 1..=screens::all().len() {
            press(&mut model, &screen.to_string());
            press(&mut model, "]");
            read += usize::from(text(&model).contains("app-1"));
        }
        for sample in &samples {
            serde_json::to_vec(&Frame::Sample(Box::new(sample.clone()))).expect("it can be recorded");
        }
        let samples: Vec<_> = samples.into_iter().map(Arc::new).collect();
        if let Some(report) = Report::new(cluster, samples) {
            for format in ReportFormat::value_variants() {
                // A report that cannot be written is an error.
                read += report.text(*format).map_or(0, |text| usize::from(text.contains("app-1")));
            }
        }
    });
    assert!(read > 0, "no region was read");
}
