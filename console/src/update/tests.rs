//! The effects of keys and updates on the console.

use crate::samples;
use crate::screens::{self, members};
use crate::state::{Effect, Event, Mode, Model, RowId, ScreenId};
use crate::theme::Theme;
use crate::view::tests::{broken, console, live, press};
use crate::view::text;
use obol_fabric::{Incarnation, Instant, Nanos};
use obol_membership::Kind;
use obol_membership::metrics::Counter;
use obol_observe::Health;
use obol_observe::sampling::Update;
use obol_observe::sampling::data::Data;
use obol_observe::sampling::sample::{DepartedRow, Life, Sample};
use std::sync::Arc;

fn news(model: &mut Model, sample: Sample) -> bool {
    model.reduce(Event::Update(Update::Sample(Box::new(sample))), &mut Vec::new())
}

/// The time of the newest sample.
fn newest(model: &Model) -> Instant {
    model.live.sample.as_ref().expect("there is one").at
}

#[test]
fn a_frozen_screen_stays_while_polling_continues() {
    let mut model = live(100, 30);
    press(&mut model, " ");
    let shown = text(&model);
    let later = Instant(newest(&model).0 + 250_000_000);
    assert!(!news(&mut model, samples::degraded(later)), "nothing to draw");
    let body = |text: &str| text.lines().take(20).collect::<Vec<_>>().join("\n");
    assert_eq!(body(&text(&model)), body(&shown));
    assert_eq!(newest(&model), later, "it was read all the same");
    press(&mut model, " ");
    assert!(text(&model).contains("app-2 down"));
    assert!(model.live.events.iter().any(|event| event.a == 7), "no event was lost");
}

#[test]
fn the_background_decides_a_theme_that_nobody_has_chosen() {
    let asks = |light, model: &mut Model| model.reduce(Event::Background(light), &mut Vec::new());
    let mut model = live(100, 30);
    model.theme = Theme::Dark;
    assert!(!asks(true, &mut model), "a theme that was asked for stays");
    model.theme_follows = true;
    assert!(asks(true, &mut model));
    assert_eq!(model.theme, Theme::Light);
    assert!(asks(false, &mut model) && model.theme == Theme::Dark);
    press(&mut model, "T");
    let chosen = model.theme;
    assert!(!asks(false, &mut model) && model.theme == chosen, "so does one that was chosen meanwhile");
}

#[test]
fn steps_lead_back_and_forth_to_the_same_screens() {
    let mut model = broken(100, 30);
    press(&mut model, "[");
    let one = text(&model);
    press(&mut model, "[");
    let two = text(&model);
    assert_ne!(one, two);
    press(&mut model, "]");
    assert_eq!(text(&model), one);
    press(&mut model, "{");
    assert_eq!(model.data().sample.as_ref().and_then(|s| s.view.as_ref()).map(|v| v.id.0), Some(7));
    press(&mut model, "[");
    assert_eq!(model.data().sample.as_ref().and_then(|s| s.view.as_ref()).map(|v| v.id.0), Some(6));
    press(&mut model, "}");
    assert_eq!(model.data().sample.as_ref().and_then(|s| s.view.as_ref()).map(|v| v.id.0), Some(7));
    press(&mut model, " ");
    assert!(model.frozen.is_none());
}

#[test]
fn a_new_life_counts_from_zero_without_a_rate_across() {
    let mut model = live(100, 30);
    let rate = |model: &Model| model.live.tracks[&samples::name("node-1")].rate(Counter::RenewalsOnTime);
    assert!(rate(&model).is_some_and(|rate| (rate - 125.0).abs() < 4.0), "{:?}", rate(&model));
    let mut at = newest(&model);
    let mut restarted = |model: &mut Model, renewals| {
        at.0 += 250_000_000;
        let mut sample = samples::healthy(at);
        let row = sample.processes.iter_mut().find(|p| p.name.as_str() == "node-1").expect("it is there");
        row.pid += 1000;
        row.counters[Counter::RenewalsOnTime as usize] = renewals;
        news(model, sample);
    };
    restarted(&mut model, 5);
    assert_eq!(rate(&model), None, "one sample of a new life gives no rate");
    restarted(&mut model, 30);
    assert_eq!(rate(&model), Some(100.0));
}

#[test]
fn missing_samples_are_reported_and_the_last_one_stays() {
    let mut model = live(100, 30);
    let at = newest(&model);
    assert!(!model.reduce(Event::Tick(Instant(at.0 + 900_000_000)), &mut Vec::new()), "not stale yet");
    assert!(model.reduce(Event::Tick(Instant(at.0 + 3_000_000_000)), &mut Vec::new()));
    assert!(text(&model).contains("STALE 3.0s"), "{}", text(&model));
    assert!(text(&model).contains("node-1"));
    assert!(news(&mut model, samples::healthy(Instant(at.0 + 3_100_000_000))));
    assert!(text(&model).contains("LIVE"));
}

#[test]
fn the_selection_follows_the_member() {
    let mut model = broken(100, 30);
    press(&mut model, "jjj");
    let selected = model.list(members::ID).selected.expect("a member");
    press(&mut model, "ssS");
    assert_eq!(model.list(members::ID).selected, Some(selected));
    press(&mut model, "w");
    let Some(RowId::Process(needs)) = model.list(members::ID).selected else { panic!("a member") };
    assert!(["app-2", "node-3", "app-3"].contains(&needs.as_str()), "{needs}");
}

#[test]
fn a_prepared_step_back_shows_the_same() {
    let mut prepared = live(100, 30);
    let at = prepared.live.sample.as_ref().expect("read").at;
    for quarter in 1..120 {
        let at = Instant(at.0 + quarter * 250_000_000);
        let sample = if quarter == 90 { samples::degraded(at) } else { samples::healthy(at) };
        news(&mut prepared, sample);
    }
    let mut other = prepared.clone();
    press(&mut prepared, " ");
    press(&mut other, " ");
    for key in "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]{[[}]".chars() {
        prepared.look_ahead();
        press(&mut prepared, &key.to_string());
        press(&mut other, &key.to_string());
        assert_eq!(text(&prepared), text(&other), "after {key}");
    }
    let before = prepared.frozen.as_ref().and_then(|frozen| frozen.before.as_ref()).expect("prepared").0;
    assert!(before < prepared.frozen.as_ref().expect("frozen").at);
}

#[test]
fn the_palette_knows_actions_and_screens() {
    let mut model = live(100, 30);
    press(&mut model, ":events\n");
    assert_eq!(model.screen, ScreenId("Events"));
    press(&mut model, ":mem\n");
    assert_eq!(model.screen, members::ID);
    press(&mut model, ":sor\n");
    assert_eq!(model.list(members::ID).sort, Some(0));
    press(&mut model, ":fly\n");
    assert!(model.note.as_ref().is_some_and(|note| note.contains("no command \"fly\"")));
}

#[test]
fn quitting_asks_if_it_ends_the_cluster() {
    let mut effects = Vec::new();
    let quit = |model: &mut Model, effects: &mut Vec<Effect>, letter| {
        let code = crossterm::event::KeyCode::Char(letter);
        let event = crossterm::event::KeyEvent::new(code, crossterm::event::KeyModifiers::NONE);
        let press = crate::input::Press::of(event).expect("pressed");
        model.reduce(Event::Key(press), effects);
    };
    let mut model = console(80, 24);
    quit(&mut model, &mut effects, 'q');
    assert_eq!(effects, [Effect::Quit(false)]);
    effects.clear();
    model.owner = true;
    quit(&mut model, &mut effects, 'q');
    assert_eq!((model.mode.clone(), effects.len()), (Mode::Leaving, 0));
    quit(&mut model, &mut effects, 'n');
    assert_eq!((model.mode.clone(), effects.len()), (Mode::Normal, 0));
    quit(&mut model, &mut effects, 'q');
    quit(&mut model, &mut effects, 'y');
    assert_eq!(effects, [Effect::Quit(false)]);
}

#[test]
fn a_process_that_is_listed_again_is_not_counted_again() {
    let at = |n: u64| Instant(10_000_000_000 + n * 250_000_000);
    let sample = |n: u64, listed: bool, failed: u64| {
        let mut sample = samples::healthy(at(n));
        for row in &mut sample.processes {
            if row.name.as_str() == "coord-3" {
                row.counters[Counter::Failures as usize] = failed;
            }
        }
        sample.processes.retain(|row| listed || row.name.as_str() != "coord-3");
        sample
    };
    let mut data = Data::default();
    for (n, (listed, failed)) in [(true, 100), (true, 101), (false, 101), (true, 103)].into_iter().enumerate()
    {
        data.take(Arc::new(sample(n as u64, listed, failed)));
    }
    let failed = data.since.each().find(|(name, _)| *name == "failed");
    assert_eq!(failed, Some(("failed", 3)));
}

#[test]
fn the_time_line_keeps_its_place_in_time_and_can_be_reset() {
    let mut model = broken(120, 36);
    press(&mut model, "3→→");
    let place = model.pan;
    assert!(place > Nanos::ZERO);
    press(&mut model, "+++-");
    assert_eq!(model.pan, place, "a finer scale shows the same moment at its edge");
    press(&mut model, &"→".repeat(10_000));
    let last = Nanos::from_micros(160);
    assert!(model.pan <= last, "{} is behind the last stamp", model.pan);
    press(&mut model, "zh");
    assert_eq!((model.zoom, model.pan, model.scroll), (0, Nanos::ZERO, 0));
}

#[test]
fn sorting_reports_its_direction_and_begins_with_what_matters() {
    let mut model = broken(120, 36);
    let mut after = |keys: &str| {
        press(&mut model, keys);
        (model.list(members::ID).sort, model.note.clone().unwrap_or_default())
    };
    let at = |head: &str| {
        screens::all().next().expect("there is one").columns().iter().position(|column| column.head == head)
    };
    let (sort, note) = after("omargin\n");
    assert_eq!(sort, at("MARGIN"));
    assert_eq!(note, "sorted by MARGIN, smallest first; saved for the next start");
    let (sort, note) = after("orenew\n");
    assert_eq!(sort, at("RENEW/s"));
    assert!(note.starts_with("sorted by RENEW/s, largest first"), "{note}");
    assert!(after("S").1.starts_with("sorted by RENEW/s, smallest first"));
    assert_eq!(
        after("ozzz\n"),
        (at("RENEW/s"), "no column \"zzz\": o lists them all, and Tab completes".into())
    );
    assert_eq!(after("onone\n").0, None);
    assert!(after(":zzz\n").1.starts_with("no command \"zzz\": : lists them all"));
    press(&mut model, "3o");
    assert!(model.mode == Mode::Normal && model.note.is_some());
}

#[test]
fn the_palette_lists_and_completes() {
    let mut model = broken(80, 24);
    press(&mut model, ":");
    let shown = text(&model);
    assert!(shown.contains("to choose from") && shown.contains("members"), "{shown}");
    press(&mut model, "even");
    assert!(text(&model).contains("4 to choose from"), "{}", text(&model));
    press(&mut model, "\t");
    let Mode::Typing { text: typed, .. } = &model.mode else { panic!("{:?}", model.mode) };
    assert_eq!(typed, "events");
    press(&mut model, "\n");
    assert_eq!((model.screen, &model.mode), (ScreenId("Events"), &Mode::Normal));
    // Without typing or marking, nothing is done.
    press(&mut model, ":\n");
    assert_eq!(model.mode, Mode::Normal);
}

#[test]
fn a_console_opened_later_names_departed_members() {
    let mut model = console(120, 30);
    let mut sample = samples::degraded(Instant(1_000_000_000));
    // No listed process has this number, and no recorder has its join.
    let (who, name) = (Incarnation(3), samples::name("app-9"));
    let view = sample.view.as_mut().expect("there is one");
    view.departed.push(DepartedRow { who, name, kind: Kind::App, at: view.id, left: false });
    sample.events.retain(|event| event.a != who.0);
    sample.processes.retain(|row| row.incarnation != who);
    assert_eq!(model.live.who(who), "incarnation 3");
    news(&mut model, sample);
    assert_eq!(model.live.who(who), "app-9 (3)");
}

#[test]
fn the_downtime_is_known_if_the_death_was_observed() {
    let (first, later) = (Instant(1_000_000_000), Instant(3_000_000_000));
    let mut found = Data::default();
    for at in [first, later] {
        found.take(Arc::new(samples::degraded(at)));
    }
    assert_eq!(found.tracks[&samples::name("app-2")].since(later), None, "it was dead before");
    let mut seen = Data::default();
    seen.take(Arc::new(samples::healthy(first)));
    seen.take(Arc::new(samples::degraded(later)));
    let now = Instant(later.0 + 7);
    assert_eq!(seen.tracks[&samples::name("app-2")].since(now), Some(Nanos(7)));
    let mut model = console(120, 30);
    news(&mut model, samples::degraded(first));
    news(&mut model, samples::degraded(later));
    assert!(text(&model).contains("down --"), "{}", text(&model));
}

#[test]
fn a_lost_lease_has_no_margin() {
    let at = Instant(100_000_000_000);
    let lost = |ago: Nanos| {
        let mut sample = samples::healthy(at);
        let mut event = samples::degraded(at).events[0];
        (event.process, event.event, event.at) =
            (samples::name("node-2"), obol_membership::recorder::EventKind::LeaseLost, at - ago);
        sample.events.push(event);
        let mut data = Data::default();
        data.take(Arc::new(sample));
        ["node-1", "node-2"].map(|name| data.tracks[&samples::name(name)].least())
    };
    let [other, least] = lost(Nanos::from_secs(1));
    assert_eq!(least, Some(Nanos::ZERO));
    assert_ne!(other, Some(Nanos::ZERO));
    assert_ne!(lost(Nanos::from_secs(90))[1], Some(Nanos::ZERO), "that is longer ago than a minute");
}

#[test]
fn ok_is_said_of_a_process_without_trouble_alone() {
    const AT: Instant = Instant(100_000_000_000);
    let status = |change: fn(&mut Sample, usize)| {
        let mut sample = samples::healthy(AT);
        let at = sample.processes.iter().position(|row| row.name.as_str() == "app-2").expect("there is one");
        change(&mut sample, at);
        let row = sample.processes[at].clone();
        let mut data = Data::default();
        data.take(Arc::new(sample));
        data.status(&row).words().1
    };
    assert_eq!(status(|_, _| ()), "ok");
    type Trouble = fn(&mut Sample, usize);
    let troubles: [(&str, Trouble); 9] = [
        ("down", |sample, at| sample.processes[at].life = Life::Down),
        ("left", |sample, at| sample.processes[at].life = Life::Left),
        ("frozen", |sample, at| sample.processes[at].life = Life::Frozen),
        ("stale", |sample, at| sample.processes[at].lease = None),
        ("joining", |sample, at| sample.processes[at].incarnation = Incarnation::NONE),
        ("on hold", |sample, at| {
            sample.processes[at].incarnation = Incarnation::NONE;
            sample.processes[at].held_until = Some(AT + Nanos(1));
        }),
        ("behind", |sample, at| sample.processes[at].view = None),
        ("no lease", |sample, at| sample.processes[at].active = false),
        ("no agent", |sample, at| {
            let region = sample.processes[at].region;
            let agents = sample.processes.iter_mut().filter(|row| (row.region, row.seat) == (region, 0));
            agents.for_each(|row| row.life = Life::Down);
        }),
    ];
    for (said, change) in troubles {
        assert_eq!(status(change), said);
    }
}

#[test]
fn a_heartbeat_that_stands_still_is_not_said_to_be_ok() {
    let mut model = live(160, 36);
    let beat = |model: &Model| {
        let shown = text(model);
        let line = shown.lines().find(|line| line.contains(" app-2 ")).expect("its row").to_owned();
        line.split(|c: char| !c.is_alphanumeric()).filter(|word| *word == "ok").count()
    };
    assert_eq!(beat(&model), 2, "its state and its heartbeat");
    for _ in 0..8 {
        let mut sample = samples::healthy(Instant(newest(&model).0 + 250_000_000));
        let row = sample.processes.iter_mut().find(|row| row.name.as_str() == "app-2").expect("there is one");
        row.heartbeat = 1;
        news(&mut model, sample);
    }
    assert_eq!(beat(&model), 1, "{}", text(&model));
}

#[test]
fn healthy_is_not_said_of_a_cluster_that_is_not() {
    let mut model = live(160, 36);
    let head = |model: &Model| text(model).lines().next().unwrap_or_default().to_owned();
    assert!(head(&model).contains("healthy"), "{}", head(&model));
    for health in [Health::Degraded, Health::Unavailable, Health::Unreachable, Health::Unknown] {
        let mut sample = samples::healthy(Instant(newest(&model).0 + 250_000_000));
        sample.health = health;
        news(&mut model, sample);
        let head = head(&model);
        assert!(head.contains(health.name()) && !head.contains("healthy"), "{head}");
    }
    let at = Instant(newest(&model).0 + 250_000_000);
    news(&mut model, samples::healthy(at));
    assert!(head(&model).contains("healthy"), "{}", head(&model));
    model.reduce(Event::Update(Update::Lost { why: "gone".to_owned() }), &mut Vec::new());
    assert!(!head(&model).contains("healthy"), "{}", head(&model));
    assert!(!head(&console(160, 36)).contains("healthy"), "nothing was read yet");
}

#[test]
fn a_join_on_hold_shows_the_remaining_time() {
    let mut model = live(160, 36);
    let mut sample = samples::healthy(Instant(newest(&model).0 + 250_000_000));
    let row = sample.processes.iter_mut().find(|row| row.name.as_str() == "app-2").expect("there is one");
    (row.incarnation, row.active) = (Incarnation::NONE, false);
    row.held_until = Some(sample.at + Nanos::from_millis(3250));
    news(&mut model, sample);
    let shown = text(&model);
    assert!(shown.contains("app-2     ~ on hold 3.2s") && shown.contains("on hold 1"), "{shown}");
    press(&mut model, "w");
    assert_eq!(
        model.list(members::ID).selected,
        Some(RowId::Process(samples::name("app-2"))),
        "find out why"
    );
}

/// The seconds since the first sample that are shown, in quarters.
fn shown_quarter(model: &Model) -> u64 {
    (model.shown_at().expect("shown").0 - 3_600_000_000_000) / 250_000_000
}

/// Eight seconds, of which the last two have incidents, with a mark at the twelfth sample.
fn with_a_mark(is_replay: bool) -> Model {
    let mut model = broken(120, 36);
    let mut all: Vec<Sample> = model.store.iter().map(|sample| (*sample).clone()).collect();
    let at = all[12].at;
    let mark = obol_observe::annotations::Mark::note(at, "deploy 1.4").expect("a note");
    all[12].marks.push(mark.into());
    model = console(120, 36);
    if is_replay {
        model.replay(samples::tape(&all));
        press(&mut model, "L");
        while model.replay.as_ref().is_some_and(|replay| replay.is_busy()) {
            model.reduce(Event::Tick(Instant(1)), &mut Vec::new());
        }
    } else {
        for sample in all {
            news(&mut model, sample);
        }
    }
    model
}

#[test]
fn keys_move_by_seconds_and_to_incidents_and_marks_live_and_in_a_replay() {
    for is_replay in [false, true] {
        let mut model = with_a_mark(is_replay);
        let mut to = |keys: &str| {
            press(&mut model, keys);
            while model.replay.as_ref().is_some_and(|replay| replay.is_busy()) {
                model.reduce(Event::Tick(Instant(1)), &mut Vec::new());
            }
            (shown_quarter(&model), text(&model))
        };
        let steps =
            [(",", 27), (",", 23), (".", 27), ("i", 24), ("b", 12), ("(", 0), ("L", 31), (":23:13:22\n", 8)];
        for (keys, quarter) in steps {
            let (shown, screen) = to(keys);
            assert_eq!(shown, quarter, "{keys} {is_replay}: {screen}");
            let bar = screen.lines().rfind(|line| line.contains("23:13:20.0Z")).expect("a time bar");
            assert!(bar.contains('@') && bar.contains("23:13:27.7Z"), "{bar}");
        }
        assert!(to("(((").1.contains("no earlier sample"), "it says so");
        assert!(to("i").1.contains("no incident before"));
        if !is_replay {
            press(&mut model, " ");
            assert!(model.frozen.is_none() && text(&model).contains("LIVE"));
        }
    }
}

#[test]
fn log_lines_are_followed_until_they_are_closed() {
    let mut model = broken(100, 24);
    let mut effects = Vec::new();
    crate::view::tests::press_for(&mut model, "l", &mut effects);
    let [Effect::Logs(Some(who))] = effects[..] else { panic!("{effects:?}") };
    assert_eq!(who.as_str(), "app-2", "the first row, which is in trouble");
    let line = |model: &mut Model, n: u32| {
        model.reduce(Event::Logged(who, format!("2026 ERROR line {n}.")), &mut Vec::new());
        text(model)
    };
    let all: Vec<String> = (0..50).map(|n| line(&mut model, n)).collect();
    assert!(all[49].contains("line 49.") && !all[49].contains("line 9."), "{}", all[49]);
    press(&mut model, "kk");
    let stays = text(&model);
    assert!(
        !stays.contains("line 49.") && stays.contains("line 47.") && stays.contains("2 newer below"),
        "{stays}"
    );
    let later = line(&mut model, 50);
    assert!(
        later.contains("3 newer below") && later.contains("line 47.") && !later.contains("line 48."),
        "{later}"
    );
    (51..3000).for_each(|n| drop(line(&mut model, n)));
    assert_eq!(model.logs.as_ref().map(|logs| logs.lines.len()), Some(2000));
    effects.clear();
    crate::view::tests::press_for(&mut model, "\x1b", &mut effects);
    assert_eq!((effects, &model.mode), (vec![Effect::Logs(None)], &Mode::Normal));
    assert!(!line(&mut model, 1).contains("line 1."), "of one that is not followed any more");
}
