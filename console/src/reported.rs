//! What is shown and reported of recordings that anyone may have made.

use crate::samples::{self, Recording};
use crate::state::Event;
use crate::svg;
use crate::view::tests::{console, press};
use clap::ValueEnum as _;
use obol_fabric::{Instant, Nanos};
use obol_observe::annotations::DrillMark;
use obol_observe::sampling::Update;
use obol_observe::sampling::sample::{MarkRow, Sample};
use obol_report::Report;
use obol_report::options::ReportFormat;
use obol_term::plain;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

#[test]
fn a_picture_of_the_screen_has_every_character_in_its_cell() {
    let model = crate::view::tests::broken(100, 30);
    let svg = svg::text(&crate::view::buffer(&model));
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for line in svg.lines().filter(|line| line.starts_with("<text")) {
        let wide: usize = line
            .split("textLength=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .and_then(|n| n.parse().ok())
            .expect("a length");
        let shown = line.split_once('>').and_then(|(_, rest)| rest.strip_suffix("</text>")).expect("text");
        let shown = shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        assert_eq!(wide, shown.chars().count() * 9, "{line}");
    }
}

/// The keys of all numbers in a value.
fn numbered(value: &Value, key: &str, keys: &mut BTreeSet<String>) {
    match value {
        Value::Number(_) => drop(keys.insert(key.to_owned())),
        Value::Array(items) => items.iter().for_each(|item| numbered(item, key, keys)),
        Value::Object(fields) => fields.iter().for_each(|(key, field)| numbered(field, key, keys)),
        _ => {}
    }
}

/// Sets all numbers with this key.
fn put_number(value: &mut Value, here: &str, key: &str, number: u64) {
    match value {
        Value::Number(_) if here == key => *value = number.into(),
        Value::Array(items) => items.iter_mut().for_each(|item| put_number(item, here, key, number)),
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(here, field)| put_number(field, here, key, number));
        }
        _ => {}
    }
}

#[test]
fn a_recording_with_any_numbers_is_shown_and_reported() {
    let at = |ms: u64| Instant(3_600_000_000_000 + ms * 1_000_000);
    let mut odd = samples::degraded(at(250));
    let drill = Some(DrillMark { name: "app".to_owned(), verdict: None });
    odd.marks.push(MarkRow {
        at: at(240),
        text: "deploy".to_owned(),
        drill: None,
        rollout: None,
        acknowledged: None,
    });
    odd.marks.push(MarkRow {
        at: at(245),
        text: "drill".to_owned(),
        drill,
        rollout: None,
        acknowledged: None,
    });
    odd.events[0].doubt = Nanos(1);
    let odd = serde_json::to_value(odd).expect("JSON");
    let mut keys = BTreeSet::new();
    numbered(&odd, "", &mut keys);
    assert!(keys.len() > 30, "{keys:?}");
    for key in keys {
        for number in [0, 1, u64::from(u16::MAX), u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut odd = odd.clone();
            put_number(&mut odd, "", &key, number);
            // A number beyond its type's range is rejected when read.
            let Ok(odd) = serde_json::from_value::<Sample>(odd) else { continue };
            let all = [samples::healthy(at(0)), odd.clone(), samples::healthy(at(500)), odd];
            let mut model = console(140, 50);
            model.replay(samples::tape(&all));
            for keys in ["}", "]", "]", "["] {
                press(&mut model, keys);
                for screen in '1'..='9' {
                    press(&mut model, &screen.to_string());
                    crate::view::text(&model);
                }
            }
            let mut live = console(140, 50);
            for sample in all.clone() {
                live.reduce(Event::Update(Update::Sample(Box::new(sample))), &mut Vec::new());
                crate::view::text(&live);
            }
            press(&mut live, " [[]");
            let samples: Vec<_> = all.into_iter().map(Arc::new).collect();
            let report = Report::new(samples::name("default"), samples).expect("there are samples");
            for &format in ReportFormat::value_variants() {
                // A format may reject a number, such as a count beyond its range.
                drop(report.text(format));
            }
        }
    }
}

/// Hostile text: all control characters, and terminal escape sequences.
fn hostile() -> String {
    let each: String =
        ('\0'..='\u{ff}').chain(['\u{2028}', '\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}']).collect();
    format!("\x1b]0;owned\x07\x1b[2J\x1b[31m\u{9b}1A\r\n| # {each}\x1bP1$r\x1b\\\\")
}

/// Sets all free texts; returns their number.
fn put_text(value: &mut Value, text: &str) -> usize {
    match value {
        Value::String(old) => {
            *old = text.to_owned();
            1
        }
        Value::Array(items) => items.iter_mut().map(|item| put_text(item, text)).sum::<usize>(),
        Value::Object(fields) => fields.values_mut().map(|field| put_text(field, text)).sum::<usize>(),
        _ => 0,
    }
}

/// A recording whose frame has hostile text in all possible places.
fn crafted() -> Vec<u8> {
    let mut sample = samples::degraded(Instant(3_600_000_000_000));
    let drill = Some(DrillMark { name: "app".to_owned(), verdict: Some("void".to_owned()) });
    sample.marks.push(MarkRow {
        at: sample.at,
        text: "deploy".to_owned(),
        drill: None,
        rollout: None,
        acknowledged: None,
    });
    sample.marks.push(MarkRow {
        at: sample.at,
        text: "drill app".to_owned(),
        drill,
        rollout: None,
        acknowledged: None,
    });
    let mut value = serde_json::to_value(&sample).expect("JSON");
    let mut free = 0;
    let Value::Object(fields) = &mut value else { panic!("an object") };
    let keys: Vec<String> = fields.keys().cloned().collect();
    for key in keys {
        // Names and enum values reject it, which is a defence of its own.
        let before = fields[&key].clone();
        put_text(fields.get_mut(&key).expect("there"), &hostile());
        let whole = serde_json::from_value::<Sample>(Value::Object(fields.clone()));
        if whole.is_err() {
            fields.insert(key, before);
        } else {
            free += usize::from(fields[&key] != before);
        }
    }
    assert!(free >= 2, "reasons and marks take any text");
    let mut hostile: Sample = serde_json::from_value(value).expect("a sample");
    // These lie between names, which reject it.
    let mut replicas = samples::replicas();
    replicas.texts().for_each(|text| *text = self::hostile());
    hostile.replicas = Some(replicas);
    let mut bytes = Vec::new();
    let header = obol_observe::sampling::record::Header::new(samples::name("default"));
    let header = obol_observe::sampling::record::Header { writer: self::hostile(), ..header };
    let at = Path::new("memory");
    let mut recorder =
        obol_observe::sampling::record::Recorder::begin(&mut bytes, at, &header).expect("written");
    recorder.sample(&hostile).expect("written");
    drop(recorder);
    bytes
}

#[track_caller]
fn is_plain(text: &str, what: &str) {
    let bad = text.char_indices().find(|(at, letter)| {
        let ends = *letter == '\n' || *letter == '\r' && text.as_bytes().get(at + 1) == Some(&b'\n');
        plain::is_hostile(*letter) && !ends
    });
    assert_eq!(bad, None, "{what}");
}

#[test]
fn text_of_a_recording_is_escaped_for_terminals() {
    let recording = Recording::read(crafted().as_slice(), Path::new("memory")).expect("read");
    let all: Vec<Arc<Sample>> = recording.samples.iter().cloned().map(Arc::new).collect();
    let report = Report::new(samples::name("default"), all).expect("there is a sample");
    for &format in ReportFormat::value_variants() {
        let text = report.text(format).expect("written");
        is_plain(&text, format.file());
        assert!(!text.lines().any(|line| line.starts_with("| # ")), "{}: a line of its own", format.file());
    }
    for (width, height) in [(200, 60), (80, 24), (20, 5)] {
        let mut model = console(width, height);
        model.replay(samples::tape(&recording.samples));
        for screen in '1'..='8' {
            press(&mut model, &screen.to_string());
            for keys in ["", "j", "?", "?", "?", "x:", "\x1b"] {
                press(&mut model, keys);
                is_plain(&crate::view::text(&model), "a screen");
            }
        }
        model.note = Some(hostile());
        model.lost = Some(hostile());
        model.recording = Some(hostile());
        is_plain(&crate::view::text(&model), "the error on the console");
        is_plain(&svg::text(&crate::view::buffer(&model)), "its picture");
        press(&mut model, "6");
        let found = Err(hostile());
        let news = crate::state::chaos::DrillUpdate::Ended { found };
        model.reduce(Event::Chaos(news), &mut Vec::new());
        is_plain(&crate::view::text(&model), "what a drill said");
    }
}
