//! A cluster as a table of text: one line per process.

use crate::{LeaseStatus, Process, Snapshot};
use obol_deaths::Detection;
use obol_fabric::Nanos;
use obol_membership::Kind;
use obol_membership::metrics::Counter;
use std::collections::HashSet;

/// How many columns a row has.
const COLUMNS: usize = 12;
/// The column that is left out where all processes are of one host.
const HOST: usize = 1;
/// Columns of a table of text; numbers lean right.
const HEADS: [(&str, bool); COLUMNS] = [
    ("NAME", false),
    ("HOST", true),
    ("KIND", false),
    ("STATE", false),
    ("INC", true),
    ("VIEW", true),
    ("LEASE", false),
    ("MARGIN", true),
    ("ON TIME", true),
    ("LATE", true),
    ("FAILED", true),
    ("VERSION", false),
];

/// What an app reads its lease from, or `--` where there is none.
const NONE: &str = "--";

/// How the lease of a process is called.
fn lease(process: &Process, snapshot: &Snapshot) -> &'static str {
    match process.lease {
        None => NONE,
        Some(_) if !process.alive => NONE,
        Some((page, fence)) => {
            let is_active = process.is_active(snapshot.at);
            LeaseStatus::of(page.start, page.end, is_active, fence > page.view, snapshot.at).name()
        }
    }
}

fn state(process: &Process, snapshot: &Snapshot) -> &'static str {
    match (process.alive, process.frozen, snapshot.is_member(process)) {
        (true, true, _) => "frozen",
        (true, false, _) if process.lost_agent(snapshot) => "no agent",
        (_, false, false) if process.left => "left",
        (false, ..) if snapshot.is_unread(process) => "unread",
        (false, ..) if process.is_missing() && !snapshot.remote.is_empty() => "no member",
        (false, ..) => "down",
        (true, false, false) if process.hold_left(snapshot.at) > Nanos::ZERO => "on hold",
        (true, false, false) => "joining",
        // The copy of another host's may be older than the view.
        (true, false, true) if process.elsewhere.is_none() && is_behind(process, snapshot) => "behind",
        (true, false, true) if process.kind != Kind::Coordinator && !process.is_active(snapshot.at) => {
            "no lease"
        }
        (true, false, true) => "ok",
    }
}

/// Whether it does not know the newest view.
fn is_behind(process: &Process, snapshot: &Snapshot) -> bool {
    process.view.as_ref().map(|view| view.id) != snapshot.view.as_ref().map(|view| view.id)
}

fn row(process: &Process, snapshot: &Snapshot, previous: Option<&Snapshot>) -> [String; COLUMNS] {
    let before = previous.and_then(|p| {
        let same = |o: &&Process| {
            o.process == process.process && (o.region, o.seat) == (process.region, process.seat)
        };
        let old = p.all_processes().find(same)?;
        Some((old, snapshot.at.since(p.at)))
    });
    let rate = |counter: Counter| {
        if process.kind == Kind::Coordinator || process.seat != 0 || !process.alive {
            return NONE.to_owned();
        }
        match before {
            Some((old, span)) if span > Nanos::ZERO => {
                let n = process.counter(counter).saturating_sub(old.counter(counter));
                format!("{:.1}", n as f64 * 1e9 / span.0 as f64)
            }
            _ => process.counter(counter).to_string(),
        }
    };
    let shown = lease(process, snapshot);
    let is_member = snapshot.is_member(process);
    let margin = process.margin(snapshot.at).filter(|_| shown == "active");
    [
        process.name.to_string(),
        if process.host == 0 { NONE.to_owned() } else { process.host.to_string() },
        process.kind.name().to_owned(),
        state(process, snapshot).to_owned(),
        if is_member { process.incarnation.to_string() } else { NONE.to_owned() },
        process.view.as_ref().filter(|_| process.alive).map_or(NONE.to_owned(), |view| view.id.to_string()),
        shown.to_owned(),
        margin.map_or(NONE.to_owned(), |margin| margin.to_string()),
        rate(Counter::RenewalsOnTime),
        rate(Counter::RenewalsLate),
        rate(Counter::RenewalsFailed),
        process.version.to_string(),
    ]
}

/// Whether a later life of a dead process is listed. A program that is restarted again and again
/// leaves many seats behind.
fn has_later(dead: &Process, snapshot: &Snapshot) -> bool {
    let life = |p: &Process| (p.alive, p.incarnation, p.region, p.seat);
    let same = |p: &&Process| (p.kind, p.name) == (dead.kind, dead.name);
    snapshot.all_processes().filter(same).any(|p| life(p) > life(dead))
}

/// The table's lines. Renewals are rates per second since `previous`, or totals without one.
pub fn lines(snapshot: &Snapshot, previous: Option<&Snapshot>) -> Vec<String> {
    let mut rows = vec![HEADS.map(|(head, _)| head.to_owned())];
    if previous.is_some() {
        for head in &mut rows[0][8..11] {
            head.push_str("/s");
        }
    }
    let shown = snapshot.all_processes().filter(|p| p.alive || !has_later(p, snapshot));
    rows.extend(shown.map(|p| row(p, snapshot, previous)));
    let hosts: HashSet<u8> = snapshot.all_processes().map(|p| p.host).collect();
    let columns: Vec<usize> = (0..COLUMNS).filter(|at| *at != HOST || hosts.len() > 1).collect();
    let widths: [usize; COLUMNS] =
        core::array::from_fn(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0));
    rows.iter()
        .map(|row| {
            let mut line = String::new();
            for &at in &columns {
                let (cell, width) = (&row[at], widths[at]);
                if at > 0 {
                    line.push_str("  ");
                }
                if HEADS[at].1 {
                    line.push_str(&format!("{cell:>width$}"));
                } else {
                    line.push_str(&format!("{cell:<width$}"));
                }
            }
            line.trim_end().to_owned()
        })
        .collect()
}

/// The one line that says how the cluster is.
pub fn headline(cluster: obol_fabric::Name, snapshot: &Snapshot) -> String {
    let view = snapshot.view.as_ref();
    let members = view.map_or(0, |view| view.members.len());
    format!(
        "cluster {cluster}  {}  view {}  members {members}  leader {}  deadbeat {}",
        snapshot.health.name(),
        view.map_or(NONE.to_owned(), |view| view.id.to_string()),
        snapshot.leader_name().map_or(NONE.to_owned(), |name| name.to_string()),
        snapshot.detection().map_or(NONE, Detection::name),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Health;
    use obol_fabric::{Incarnation, Instant, Name, Page};

    fn life(seat: u16, alive: bool) -> Process {
        Process {
            process: obol_fabric::host::Process { pid: 7, started: 8 },
            region: 3,
            seat,
            alive,
            incarnation: Incarnation(u64::from(seat)),
            ..Process::missing(Name::new("crash-1").expect("a name"), Kind::App)
        }
    }

    #[test]
    fn processes_of_several_hosts_have_the_number_of_theirs() {
        let (health, at) = (Health::Degraded, Instant(1));
        let of = |processes| {
            let snapshot =
                Snapshot { at, view: None, processes, remote: Vec::new(), health, reasons: Vec::new() };
            lines(&snapshot, None)
        };
        let on =
            |host, name| Process { host, ..Process::missing(Name::new(name).expect("a name"), Kind::App) };
        assert!(!of(vec![on(1, "app-1"), on(1, "app-2")])[0].contains("HOST"));
        let rows = of(vec![on(1, "app-1"), on(3, "app-3"), on(0, "app-4")]);
        let cells = rows.iter().map(|row| row.split_whitespace().nth(1).expect("a second cell"));
        assert_eq!(cells.collect::<Vec<_>>(), ["HOST", "1", "3", NONE], "{rows:?}");
    }

    #[test]
    fn ok_is_said_of_a_live_member_with_a_live_agent_and_a_lease_alone() {
        let name = |text: &str| Name::new(text).expect("a name");
        let nodes = [name("node-1"), name("app-1")].map(|name| (name, obol_fabric::Address::region(3)));
        let view = std::sync::Arc::new(obol_membership::View::genesis(
            &nodes,
            Nanos::from_millis(20),
            Nanos::from_millis(20),
        ));
        let [agent, app] = [view.members[0].incarnation, view.members[1].incarnation];
        let until = |end| {
            let id = view.id;
            let page = Page {
                view: id,
                base: id,
                start: Instant(1),
                end: Instant(end),
                confirmed: Instant(1),
                verified: Instant(1),
                lease: Nanos::from_millis(20),
                retired: 0,
            };
            Some((page, id))
        };
        let seen = Some(std::sync::Arc::clone(&view));
        let agent = Process { incarnation: agent, name: name("node-1"), kind: Kind::Agent, ..life(0, true) };
        let app = Process { incarnation: app, view: seen, lease: until(6), ..life(1, true) };
        let state = |agent: &Process, app: &Process| {
            let snapshot = Snapshot {
                at: Instant(5),
                view: Some(std::sync::Arc::clone(&view)),
                processes: vec![agent.clone(), app.clone()],
                remote: Vec::new(),
                health: Health::Healthy,
                reasons: Vec::new(),
            };
            super::state(app, &snapshot)
        };
        assert_eq!(state(&agent, &app), "ok");
        let dead = Process { alive: false, ..agent.clone() };
        assert_eq!(state(&dead, &app), "no agent");
        let outside = Process { incarnation: Incarnation::NONE, ..app.clone() };
        for (other, said) in [
            (Process { lease: until(5), ..app.clone() }, "no lease"),
            (Process { lease: None, ..app.clone() }, "no lease"),
            (Process { view: None, ..app.clone() }, "behind"),
            (Process { lease: None, kind: Kind::Coordinator, ..app.clone() }, "ok"),
            (Process { frozen: true, ..app.clone() }, "frozen"),
            (Process { alive: false, ..app.clone() }, "down"),
            (Process { alive: false, left: true, ..outside.clone() }, "left"),
            (outside.clone(), "joining"),
            (Process { held_until: Some(Instant(6)), ..outside }, "on hold"),
            (Process { incarnation: Incarnation(99), ..app.clone() }, "joining"),
        ] {
            assert_eq!(state(&agent, &other), said, "{other:?}");
        }
    }

    #[test]
    fn of_a_program_that_was_restarted_its_last_life_has_a_row() {
        let of = |processes| {
            let (health, at) = (Health::Degraded, Instant(1));
            let snapshot =
                Snapshot { at, view: None, processes, remote: Vec::new(), health, reasons: Vec::new() };
            lines(&snapshot, None)
        };
        let dead: Vec<Process> = (1..6).map(|seat| life(seat, false)).collect();
        let rows = of(dead.clone());
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert!(rows[1].contains(" down "), "{rows:?}");
        let rows = of([life(1, true)].into_iter().chain(dead).collect());
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert!(!rows[1].contains(" down "), "{rows:?}");
    }
}
