//! Screens 4 and 5: decisions of the coordinators, and suspicions, by the processes' own counters.
//!
//! ```text
//! ┌─ Coordinators 3 ─────────────────────────────────────────────────────────────────────────────────┐
//! │   NAME     STATE  ROLE    VIEW  LAG  SLOT  BALLOT  PREPARED    PROMISED  DECIDED  ABORTS  ADOPTED │
//! │   coord-1  ok     leader    12    0    12       1  13 coord-1         8       11       0        0 │
//! └──────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Counters cover the life of a process; a restarted one counts from zero. SLOT is the newest slot
//! in which the coordinator's memory accepted a value, under the proposal number BALLOT; PREPARED
//! is a later slot and the coordinator that prepared it, with the number PROMISED there. These are
//! read from memory, whether its process runs or not.
//!
//! Screen 5 also has the paths by which pulses of other hosts arrive, if there are any, and who
//! suspects whom.

use crate::screens::members::tone;
use crate::screens::{About, Screen, paths, suspects};
use crate::state::table::Key;
use crate::state::{Model, RowId, ScreenId};
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell, count};
use crate::widgets::grid::{Column, Grid};
use crate::widgets::trend::{self, Trend};
use obol_fabric::Nanos;
use obol_membership::Kind;
use obol_membership::consensus::Ballot;
use obol_membership::metrics::Counter;
use obol_membership::recorder::EventKind;
use obol_membership::view::coordinator_name;
use obol_observe::calendar::age;
use obol_observe::sampling::data::Data;
use obol_observe::sampling::sample::ProcessRow;
use ratatui::layout::Rect;

/// A counter in a column, and whether values above zero need attention.
struct Counted {
    head: &'static str,
    counter: Counter,
    warns: bool,
    /// Its description in the help.
    means: &'static str,
}

const fn counted(head: &'static str, counter: Counter, warns: bool, means: &'static str) -> Counted {
    Counted { head, counter, warns, means }
}

pub(super) struct Counters {
    id: ScreenId,
    what: &'static str,
    /// Whether it lists only coordinators, with the contents of their acceptors.
    decides: bool,
    counted: &'static [Counted],
    /// Title and selection of the events below the list.
    noted: (&'static str, &'static [EventKind]),
}

/// Suspicions and their consequences.
const SUSPICIONS: [EventKind; 4] =
    [EventKind::Notice, EventKind::Suspect, EventKind::Retract, EventKind::Excluded];

pub(super) static COORDINATORS: Counters = Counters {
    id: ScreenId("Coordinators"),
    what: "The coordinators decide views by majority: who is a member. One leads and proposes; the others take over if it fails. ABORTS and BY WAIT cost time.",
    decides: true,
    counted: &DECIDED,
    noted: (
        "Takeovers, aborts, accusations",
        &[
            EventKind::Notice,
            EventKind::Suspect,
            EventKind::Retract,
            EventKind::Excluded,
            EventKind::Takeover,
            EventKind::Abort,
        ],
    ),
};

pub(super) static DETECTORS: Counters = Counters {
    id: ScreenId("Detectors"),
    what: "Who was suspected, by which detector, and how often wrongly (FALSE); with room, who suspects whom, ! of what is neither taken back nor followed by a removal. Of several hosts also the paths by which their pulses arrive.",
    decides: false,
    counted: &DETECTED,
    noted: ("Accusations", &SUSPICIONS),
};

impl Screen for Counters {
    fn about(&self) -> About {
        About::list(self.id, &[])
    }

    fn what(&self) -> &'static str {
        self.what
    }

    fn columns(&self) -> Vec<Column> {
        self.heads()
    }

    fn rows(&self, model: &Model) -> Vec<RowId> {
        self.processes(model).iter().map(|row| RowId::Process(row.name)).collect()
    }

    fn list_area(&self, model: &Model, area: Rect) -> Rect {
        self.split(model, area).0
    }

    fn trends(&self) -> &'static [&'static Trend] {
        const SHOWN: &[&Trend] = &[&trend::VIEWS, &trend::FAILOVERS, &trend::READS];
        SHOWN
    }

    fn draw(&self, model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
        let data = model.data();
        let rows = self.processes(model);
        let list = model.list(self.id);
        let ids = self.rows(model);
        let columns = self.heads();
        let (above, below) = self.split(model, area);
        let grid = Grid::of(&columns, list, &ids);
        let title = Cell::new(format!("{} {}", self.id.0, rows.len()), Tone::Title);
        let inside = grid.frame(canvas, above, &[title], &list.filter, None);
        if rows.is_empty() {
            let why = ("process", "nothing has been read yet");
            super::draw_none(model, canvas, inside, &list.filter, why);
        } else {
            grid.draw(canvas, inside, |row| self.cells(rows[row], data));
        }
        let Some(below) = below else { return };
        // What cannot be shown as a whole leaves its place to the events.
        let height = if self.decides { 0 } else { paths::height(model) };
        let height = if height <= below.height { height } else { 0 };
        if height > 0 {
            paths::draw(model, canvas, Rect { height, ..below });
        }
        let below = Rect { y: below.y + height, height: below.height - height, ..below };
        if below.height < EVENTS_LEAST {
            return;
        }
        let (events, matrix) = if self.decides { (below, None) } else { suspects::split(model, below) };
        self.events(model, canvas, events);
        if let Some(matrix) = matrix {
            suspects::draw(model, canvas, matrix);
        }
    }
}

/// Least height of the events below the list: a frame and two of them.
const EVENTS_LEAST: u16 = 4;

const DECIDED: [Counted; 8] = [
    counted("DECIDED", Counter::Decisions, false, "views that it decided"),
    counted(
        "ABORTS",
        Counter::Aborts,
        true,
        "proposals aborted because of another proposer or a wrong prediction",
    ),
    counted("ADOPTED", Counter::Adoptions, true, "values of other proposers that it decided"),
    counted("TAKEOVERS", Counter::Takeovers, false, "how often it became leader"),
    counted("FENCES", Counter::FencesRaised, false, "lease holders whose fence it raised"),
    counted("BY WAIT", Counter::ClearedByWait, true, "holders that were cleared by waiting out their lease"),
    counted("BY PROOF", Counter::ClearedByProof, false, "holders that were cleared by a proof of death"),
    counted("CLEARS", Counter::ClearsSent, false, "CLEARs that it sent"),
];

const DETECTED: [Counted; 8] = [
    counted("NOTICED", Counter::NoticesReceived, false, "death notices received"),
    counted("SENT", Counter::NoticesSent, false, "death notices sent"),
    counted(
        "HEARTBEAT",
        Counter::HeartbeatSuspicions,
        true,
        "suspicions that it raised because a heartbeat stalled",
    ),
    counted(
        "PROGRESS",
        Counter::ProgressSuspicions,
        true,
        "suspicions of a program that broke its progress promise",
    ),
    counted("FALSE", Counter::FalseSuspicions, true, "suspicions of processes that were alive"),
    counted("EXCLUDED", Counter::Exclusions, true, "how often it found itself excluded"),
    counted("LINK ERRORS", Counter::LinkErrors, true, "failed operations on links"),
    counted("LOST", Counter::DatagramsLost, true, "datagrams dropped because the receiver's queue was full"),
];

impl Counters {
    /// The columns of a screen; higher numbers are hidden first.
    fn heads(&self) -> Vec<Column> {
        let mut all = vec![
            Column::text("NAME", 8, 0).means("the process"),
            Column::text("STATE", 12, 1).means("as on screen 1"),
            Column::text("ROLE", 11, 3).means("leader: the live coordinator that proposes; else the kind"),
            Column::number("VIEW", 4, 2).means("the newest view that it knows"),
            Column::number("LAG", 3, 2).means("how many views it is behind the newest"),
        ];
        if self.decides {
            all.extend([
                Column::number("SLOT", 4, 2).means("the newest slot in which its acceptor accepted a value"),
                Column::number("BALLOT", 6, 3).means("the proposal number that it accepted there"),
                Column::text("PREPARED", 10, 3).means("a later slot that is prepared, and by whom"),
                Column::number("PROMISED", 6, 3).means("the proposal number promised there"),
            ]);
        }
        let counters = self.counted.iter().zip(4u8..);
        all.extend(counters.map(|(c, fold)| Column::number(c.head, 6, fold).means(c.means)));
        all
    }

    /// The shown rows in order.
    fn processes<'m>(&self, model: &'m Model) -> Vec<&'m ProcessRow> {
        let filter = &model.list(self.id).filter;
        let kept = |row: &ProcessRow, data: &Data| {
            (!self.decides || row.kind == Kind::Coordinator)
                && (filter.is_empty()
                    || filter.keeps(&[
                        ("name", row.name.as_str()),
                        ("kind", row.kind.name()),
                        ("state", data.status(row).words().1),
                    ]))
        };
        let columns = self.heads();
        let before = columns.len() - self.counted.len();
        super::processes(model, self.id, &columns, kept, |column, row, data, _| match column {
            0 => Key::Text(row.name.to_string()),
            1 => Key::Number(f64::from(data.status(row) as u8)),
            2 => Key::Text(role_of(row, data).to_owned()),
            3 => row.view.map_or(Key::Missing, |view| Key::Number(view.0 as f64)),
            4 => lag(row, data).map_or(Key::Missing, |lag| Key::Number(lag as f64)),
            5 if self.decides => ballot_key(accepted(row).map(|ballot| ballot.slot.0)),
            6 if self.decides => ballot_key(accepted(row).map(|ballot| u64::from(ballot.number))),
            7 if self.decides => ballot_key(prepared(row).map(|ballot| ballot.slot.0)),
            8 if self.decides => ballot_key(prepared(row).map(|ballot| u64::from(ballot.number))),
            at => self
                .counted
                .get(at - before)
                .map_or(Key::Missing, |c| Key::Number(row.counter(c.counter) as f64)),
        })
    }

    fn cells(&self, row: &ProcessRow, data: &Data) -> Vec<Cell> {
        let status = data.status(row);
        let (sign, word) = status.words();
        let leads = role_of(row, data);
        let lag = lag(row, data);
        let mut all = vec![
            Cell::text(row.name.to_string()),
            Cell::new(format!("{sign} {word}").trim_start().to_owned(), tone(status)),
            Cell::new(leads, if leads == "leader" { Tone::Title } else { Tone::Text }),
            Cell::maybe(row.view.map(|view| view.to_string())),
            lag.map_or(Cell::none(), |n| {
                Cell::new(n.to_string(), if n > 0 { Tone::Warn } else { Tone::Text })
            }),
        ];
        if self.decides {
            let (accepted, prepared) = (accepted(row), prepared(row));
            let by = |ballot: Ballot| format!("{} {}", ballot.slot, coordinator_name(ballot.proposer));
            all.extend([
                Cell::maybe(accepted.map(|ballot| ballot.slot.to_string())),
                Cell::maybe(accepted.map(|ballot| ballot.number.to_string())),
                Cell::maybe(prepared.map(by)),
                Cell::maybe(prepared.map(|ballot| ballot.number.to_string())),
            ]);
        }
        all.extend(self.counted.iter().map(|c| {
            let n = row.counter(c.counter);
            Cell::new(count(n), if c.warns && n > 0 { Tone::Warn } else { Tone::Text })
        }));
        all
    }

    /// The list, and the area below it.
    fn split(&self, model: &Model, body: Rect) -> (Rect, Option<Rect>) {
        let rows = u16::try_from(self.processes(model).len()).unwrap_or(u16::MAX);
        let wanted = rows.saturating_add(3).max(4);
        super::split(body, wanted, EVENTS_LEAST)
    }

    /// Events below the list, newest first.
    fn events(&self, model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
        let data = model.data();
        let (title, shown) = self.noted;
        let inside =
            canvas.frame(area, &[Cell::new(title, Tone::Title)], &[Cell::new("newest first", Tone::Dim)]);
        let now = data.sample.as_ref().map(|sample| sample.at);
        let rows = data.events.iter().rev().filter(|row| shown.contains(&row.event));
        let mut y = inside.y;
        for row in rows.take(usize::from(inside.height)) {
            let ago = now.map_or(Nanos::ZERO, |now| now.since(row.at));
            let reason = row.reason.map_or("", |reason| reason.name());
            let text = format!(
                "{:>6} ago  {:<10} {:<8} {:<9} {}",
                age(ago),
                row.process.as_str(),
                row.event.name(),
                reason,
                data.describe(row)
            );
            canvas.put(inside, inside.x + 1, y, &text, Tone::Text);
            y += 1;
        }
        if y == inside.y {
            canvas.put(inside, inside.x + 2, y, "none in the events that were read", Tone::Dim);
        }
    }
}

fn ballot_key(number: Option<u64>) -> Key {
    number.map_or(Key::Missing, |number| Key::Number(number as f64))
}

fn accepted(row: &ProcessRow) -> Option<Ballot> {
    row.acceptor.as_ref()?.accepted
}

fn prepared(row: &ProcessRow) -> Option<Ballot> {
    row.acceptor.as_ref()?.prepared
}

fn role_of(row: &ProcessRow, data: &Data) -> &'static str {
    let leads = data.sample.as_ref().is_some_and(|sample| sample.leader == Some(row.name));
    if leads { "leader" } else { row.kind.name() }
}

/// How many views it is behind the newest.
fn lag(row: &ProcessRow, data: &Data) -> Option<u64> {
    let newest = data.sample.as_ref()?.view.as_ref()?.id;
    Some(newest.0.saturating_sub(row.view?.0))
}
