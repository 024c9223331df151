//! Screen 9: the replicas of a replicated log, as their memory on this host says.
//!
//! ```text
//! ┌─ Replicas 3  preset view  leader smr-1  term 9  redundancy 3 of 3 ─────────────────────┐
//! │   NAME   STATE    WRITER  TERM  COMMITTED  APPLIED  LAG  LAG B  FREED  SNAPSHOT  SESS.. │
//! │ ▸ smr-1  leads    --         9      48210    48210    3    336  48090     31.7k     12  │
//! └────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The figures are those of `obol smr status`. No replica has to answer, so a frozen one is read, too.

use crate::screens::{About, Screen};
use crate::state::table::Key;
use crate::state::{Model, RowId, ScreenId};
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell, count, wrapped};
use crate::widgets::grid::{Column, Grid};
use crate::widgets::trend::{self, Trend};
use obol_observe::replicas::{Doing, Log, Replica, Replicas};
use obol_observe::sampling::data::Data;
use ratatui::layout::Rect;

const ID: ScreenId = ScreenId("Stores");

pub(super) struct Stores;

impl Screen for Stores {
    fn about(&self) -> About {
        About { signs: &SIGNS, ..About::list(ID, &COLUMNS) }
    }

    fn what(&self) -> &'static str {
        "The replicas of the replicated store, if one runs: who leads, and how far behind each of the others is."
    }

    fn rows(&self, model: &Model) -> Vec<RowId> {
        rows(model).iter().map(|row| RowId::Process(row.name)).collect()
    }

    fn trends(&self) -> &'static [&'static Trend] {
        const SHOWN: &[&Trend] = &[&trend::VIEWS, &trend::FAILOVERS];
        SHOWN
    }

    fn draw(&self, model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
        let data = model.data();
        let rows = rows(model);
        let list = model.list(ID);
        let ids = self.rows(model);
        let grid = Grid::of(&COLUMNS, list, &ids);
        let inside = grid.frame(canvas, area, &title(data), &list.filter, None);
        if rows.is_empty() {
            let why = if data.sample.is_some() { NONE } else { "nothing has been read yet" };
            return super::draw_none(model, canvas, inside, &list.filter, ("replica", why));
        }
        grid.draw(canvas, inside, |row| cells(rows[row], data));
        let Some(remedy) = read(data).and_then(Replicas::remedy) else { return };
        let shown = u16::try_from(rows.len()).unwrap_or(u16::MAX);
        let from = inside.y.saturating_add(shown).saturating_add(2);
        let room = usize::from(inside.width.saturating_sub(4)).max(1);
        let lines = wrapped(&format!("No replica serves: {remedy}."), room);
        for (line, y) in lines.iter().zip(from..inside.bottom()) {
            canvas.put(inside, inside.x + 2, y, line, Tone::Warn);
        }
    }
}

/// What to do where no replica runs.
const NONE: &str = "no replica runs; start the first one: obol smr server --name smr-1";

/// Explanations of what the title and the column STATE have.
const SIGNS: [(&str, &str); 3] = [
    ("preset", "how an earlier leader is excluded: by views and leases (view), or by permissions to write"),
    ("redundancy", "members that have every entry that the leader knows to be committed, itself included"),
    (
        "states",
        "leads, follows, takes over (it collects what may be committed), stalls (it is to lead or leads, and lacks a majority of \
         the voters), waits (it is to lead and has no log), snapshot (it loads one), frozen, no member, no log, no answer (of its \
         host)",
    ),
];

/// The columns, and which are hidden first.
const COLUMNS: [Column; 13] = [
    Column::text("NAME", 6, 0).means("the replica"),
    Column::text("STATE", 10, 1).means("what it does; see states"),
    Column::text("WRITER", 6, 6).means("who may write to it: the leader, or a term that another leader had; --: the preset does not restrict it"),
    Column::number("TERM", 4, 5).means("the term of the newest leader that has written to it"),
    Column::number("ACCEPTED", 8, 9).means("number of the newest entry that is there, without a gap before it"),
    Column::number("COMMITTED", 9, 3).means("number of the newest entry that it knows to be committed"),
    Column::number("APPLIED", 7, 4).means("number of the newest entry that is a part of its state"),
    Column::number("LAG", 3, 2).means("entries of the leader's that it has not applied"),
    Column::number("LAG B", 5, 5).means("their bytes"),
    Column::number("FREED", 5, 7).means("number of the newest entry that was given up there: a replica without it needs a snapshot"),
    Column::number("SNAPSHOT", 8, 8).means("bytes of the newest snapshot that it made for another replica; if it loads one, how many of how many it has"),
    Column::number("SESSIONS", 8, 8).means("sessions of clients in its state"),
    Column::number("RING", 11, 10).means("bytes of the leader's ring there that were not applied yet, and of the ring"),
];

fn read(data: &Data) -> Option<&Replicas> {
    data.sample.as_deref()?.replicas.as_deref()
}

/// The state in a word, and how it is shown.
fn state(row: &Replica) -> (&'static str, Tone) {
    match &row.log {
        None if row.is_unread() => ("no answer", Tone::Stale),
        _ if row.frozen => ("frozen", Tone::Bad),
        _ if !row.member => ("no member", Tone::Warn),
        None if row.activity == Some(Doing::Waits) => ("waits", Tone::Bad),
        None => ("no log", Tone::Warn),
        Some(_) if row.activity == Some(Doing::Stalls) => ("stalls", Tone::Bad),
        Some(_) if row.activity == Some(Doing::TakesOver) => ("takes over", Tone::Warn),
        Some(log) if log.needs_snapshot => ("snapshot", Tone::Warn),
        Some(_) if row.leads => ("leads", Tone::Good),
        Some(_) => ("follows", Tone::Text),
    }
}

/// Who may write to a replica; empty if that is not restricted.
fn writer(log: &Log, data: &Data) -> String {
    let Some(all) = read(data).filter(|_| log.granted > 0) else { return String::new() };
    // A leader grants its own term to itself.
    let own = all.replicas.iter().find(|row| row.leads).and_then(|row| row.log.as_ref());
    match all.leader {
        Some(leader) if own.is_some_and(|own| own.granted == log.granted) => leader.to_string(),
        _ => format!("term {}", log.granted),
    }
}

/// The shown rows in order.
fn rows(model: &Model) -> Vec<&Replica> {
    let data = model.data();
    let list = model.list(ID);
    let Some(all) = read(data) else { return Vec::new() };
    let kept = |row: &&Replica| list.filter.keeps(&[("name", row.name.as_str()), ("state", state(row).0)]);
    let mut rows: Vec<&Replica> = all.replicas.iter().filter(kept).collect();
    let falls = |column: usize| COLUMNS.get(column).is_some_and(|column| column.falls);
    list.arrange(&mut rows, falls, |column, row| key(column, row, data));
    rows
}

fn key(column: usize, row: &Replica, data: &Data) -> Key {
    let head = COLUMNS[column].head;
    match (head, &row.log) {
        ("NAME", _) => Key::Text(row.name.to_string()),
        ("STATE", _) => Key::Text(state(row).0.to_owned()),
        (_, None) => Key::Missing,
        ("WRITER", Some(log)) => Key::Text(writer(log, data)),
        (_, Some(log)) => number(head, log).map_or(Key::Missing, |n| Key::Number(n as f64)),
    }
}

/// The number in a column.
fn number(head: &str, log: &Log) -> Option<u64> {
    Some(match head {
        "TERM" => log.term,
        "ACCEPTED" => log.accepted,
        "COMMITTED" => log.committed,
        "APPLIED" => log.applied,
        "LAG" => log.lag,
        "LAG B" => log.lag_bytes,
        "FREED" => log.pruned,
        "SNAPSHOT" => log.snapshot_bytes,
        "SESSIONS" => log.sessions,
        "RING" => log.ring_used_bytes,
        _ => return None,
    })
}

fn cells(row: &Replica, data: &Data) -> Vec<Cell> {
    let (state, tone) = state(row);
    let mut all = vec![Cell::text(row.name.to_string()), Cell::new(state, tone)];
    let Some(log) = &row.log else {
        all.resize(COLUMNS.len(), Cell::none());
        return all;
    };
    let writer = writer(log, data);
    all.push(if writer.is_empty() { Cell::none() } else { Cell::text(writer) });
    all.extend([log.term, log.accepted, log.committed, log.applied].map(|n| Cell::text(n.to_string())));
    all.extend([log.lag, log.lag_bytes].map(|n| Cell::text(count(n))));
    all.push(Cell::text(log.pruned.to_string()));
    all.push(match (log.needs_snapshot, log.snapshot_bytes) {
        (true, _) => match &log.loads {
            Some(loads) => Cell::new(format!("{}/{}", count(loads.bytes), count(loads.of_bytes)), Tone::Warn),
            None => Cell::new("needed", Tone::Warn),
        },
        (false, 0) => Cell::none(),
        (false, bytes) => Cell::text(count(bytes)),
    });
    all.push(Cell::text(count(log.sessions)));
    all.push(Cell::text(format!("{}/{}", count(log.ring_used_bytes), count(u64::from(log.ring_bytes)))));
    all
}

fn title(data: &Data) -> Vec<Cell> {
    let Some(all) = read(data) else { return vec![Cell::new("Replicas", Tone::Title)] };
    let mut cells = vec![Cell::new(format!("Replicas {}", all.replicas.len()), Tone::Title)];
    let shown = |n: Option<u64>| n.map_or("--".to_owned(), |n| n.to_string());
    let preset = all.preset.as_deref().unwrap_or("--").to_owned();
    cells.push(Cell::text(format!("  preset {preset}")));
    cells.push(match all.leader {
        Some(leader) => Cell::text(format!("  leader {leader}")),
        None => Cell::new("  no leader", Tone::Bad),
    });
    cells.push(Cell::text(format!("  term {}", shown(all.term))));
    let members = all.replicas.iter().filter(|row| row.member).count() as u64;
    let is_whole = all.redundancy.is_none_or(|n| n >= members);
    let tone = if is_whole { Tone::Text } else { Tone::Warn };
    cells.push(Cell::new(format!("  redundancy {} of {members}", shown(all.redundancy)), tone));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use crate::state::filter::Filter;
    use crate::view::tests::{console, press};
    use crate::view::text;
    use obol_fabric::Instant;

    /// A console that shows these replicas.
    fn shown(replicas: Replicas) -> Model {
        let mut model = console(160, 24);
        let at = Instant(3_600_000_000_000);
        let sample = obol_observe::sampling::sample::Sample {
            replicas: Some(Box::new(replicas)),
            ..samples::healthy(at)
        };
        let update = obol_observe::sampling::Update::Sample(Box::new(sample));
        model.reduce(crate::state::Event::Update(update), &mut Vec::new());
        press(&mut model, "9");
        model
    }

    #[test]
    fn whoever_may_write_has_a_name_where_a_preset_restricts_it() {
        let all = *samples::replicas();
        let model = shown(all.clone());
        let writers: Vec<String> =
            all.replicas.iter().filter_map(|row| Some(writer(row.log.as_ref()?, model.data()))).collect();
        assert_eq!(writers, ["smr-1", "smr-1", "term 7"]);
        let log = Log { granted: 0, ..all.replicas[0].log.clone().expect("a log") };
        assert_eq!(writer(&log, model.data()), "");
    }

    #[test]
    fn without_a_leader_the_screen_says_what_to_do() {
        let mut all = *samples::replicas();
        (all.leader, all.redundancy) = (None, None);
        for row in &mut all.replicas {
            row.leads = false;
        }
        for (doing, state, what) in [
            (Doing::TakesOver, "takes over", "No replica serves: one takes over"),
            (Doing::Stalls, "stalls", "No replica serves: one lacks a majority"),
        ] {
            all.replicas[0].activity = Some(doing);
            let text = text(&shown(all.clone()));
            for said in ["no leader", state, what, "redundancy -- of 4"] {
                assert!(text.contains(said), "{said}:\n{text}");
            }
        }
    }

    #[test]
    fn rows_are_filtered_by_state_and_sorted_by_lag() {
        let mut model = shown(*samples::replicas());
        let list = model.list_mut(ID);
        list.sort = COLUMNS.iter().position(|column| column.head == "LAG");
        let names = |model: &Model| rows(model).iter().map(|row| row.name.to_string()).collect::<Vec<_>>();
        assert_eq!(
            names(&model),
            ["smr-3", "smr-2", "smr-1", "smr-4"],
            "the largest first, the unknown last"
        );
        model.list_mut(ID).filter = Filter::new("frozen");
        assert_eq!(names(&model), ["smr-2"]);
    }
}
