//! The console: what an operator sees of a cluster, live.
//!
//! `poll` reads the cluster, `state` is what the console is and how events change it, `view` draws
//! that, `input` says what keys do, `theme` how things look. `state` and `view` know no clock, no
//! terminal and no cluster.

mod chaos;
pub mod config;
pub mod event_text;
#[cfg(test)]
mod fuzz;
mod input;
pub mod options;
pub mod output;
mod palette;
mod past;
pub mod poll;
mod recording;
mod remember;
mod report;
#[cfg(test)]
mod samples;
mod screens;
mod state;
mod terminal;
mod theme;
#[cfg(test)]
mod totals;
mod update;
mod view;
mod widgets;

use crate::options::Look;
use crate::output::Failure;
use chaos::Worker;
use config::Config;
use crossterm::event::{self, Event as Input, MouseButton, MouseEventKind};
use input::Press;
use obol_fabric::host::{clock, program};
use obol_fabric::{Name, Nanos};
use obol_observe::annotations::Mark;
use obol_profiles::Site;
pub use past::HOUR;
pub use poll::live::unix_now;
use poll::live::{Live, POLL_EVERY, Rate};
use poll::{Listener, News, Place};
use recording::Tape;
pub use recording::{record, replay};
use report::Report;
pub use report::{iso, run as report};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use state::chaos::ChaosNews;
use state::mouse::Mouse;
use state::{Effect, Event, Model};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use terminal::Terminal;
use theme::Glyphs;
pub use theme::Theme;

/// Between two frames at least; a key is on the screen after this time at most.
const FRAME: Duration = Duration::from_millis(33);
/// Without news the console looks at the clock this often, so that what is stale is told.
const TICK: Duration = Duration::from_millis(500);
/// Between two looks at what is due while a recording plays.
const PLAY: Duration = Duration::from_millis(100);
/// Between two samples while the terminal is not in focus, and while nobody sees them because the
/// screen is frozen. Counters and histograms only grow and flight recorders keep what happened, so
/// nothing is lost in between.
const POLL_UNFOCUSED: Duration = Duration::from_secs(1);
const POLL_FROZEN: Duration = Duration::from_secs(4);

/// What is said after a panic.
const BUG: &str = "the console has a bug and ended; what it said about it is above";

/// What the console's threads tell it.
enum Message {
    Input(Input),
    News(News),
    Chaos(ChaosNews),
    Signal(i32),
    /// A recording can not go on.
    NotRecording(String),
    /// Whoever started the console ends it.
    End,
}

/// A console on a thread of its own, beside what its process does otherwise. Dropping it gives the
/// terminal back.
pub struct Background {
    tell: Sender<Message>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Background {
    /// Shows a console; `ended` is set when the user has quit it.
    pub fn start(console: Console, ended: Arc<AtomicBool>) -> Result<Self, Failure> {
        let tell = console.tell.clone();
        let body = move || {
            let how = console.run();
            ended.store(true, Ordering::Relaxed);
            how
        };
        let thread = thread::Builder::new().name("console".to_owned()).spawn(body);
        let thread = thread.map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
        Ok(Self { tell, thread: Some(thread) })
    }

    /// Ends it and says how it went.
    pub fn close(mut self) -> Result<(), Failure> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Failure> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // It may have ended already.
        let _ = self.tell.send(Message::End);
        thread.join().unwrap_or_else(|_| Err(Failure::Failed(BUG.to_owned())))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Whoever wanted to know how it went has closed it.
        let _ = self.end();
    }
}

/// Whether a console can be shown: a terminal that calls itself dumb knows no escape codes.
pub fn is_possible() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A console that is about to be shown.
pub struct Console {
    place: Place,
    look: Look,
    config: Config,
    owner: bool,
    record: Option<PathBuf>,
    arm: bool,
    aged: bool,
    told: Receiver<Message>,
    tell: Sender<Message>,
}

impl Console {
    /// `owner` says whether quitting ends the cluster.
    pub fn new(place: Place, look: Look, config: Config, owner: bool) -> Self {
        let (tell, told) = mpsc::channel();
        Self { place, look, config, owner, record: None, arm: false, aged: false, told, tell }
    }

    /// Records from the first sample on.
    pub fn record(mut self, file: Option<PathBuf>) -> Self {
        self.record = file;
        self
    }

    /// Lets drills be armed.
    pub const fn arm(mut self, may: bool) -> Self {
        self.arm = may;
        self
    }

    /// Shows it until the user quits.
    pub fn run(self) -> Result<(), Failure> {
        let Self { place, look, config, owner, record, arm, aged, told, tell } = self;
        let mut model = model(place.cluster, &look, &config, owner);
        model.chaos.drills = chaos::choices();
        model.chaos.may_arm = arm;
        if aged {
            past::live_through(&mut model, &place);
        }
        let rate = Rate::new(POLL_EVERY);
        let tape = Tape::new(place.cluster);
        if let Some(file) = record {
            tape.begin(&file)?;
            model.reduce(Event::Recording(Ok(Some(file.display().to_string()))), &mut Vec::new());
        }
        let (_quit, quit) = mpsc::channel();
        let polled = rate.clone();
        let mut tee = Tee { tape: tape.clone(), tell: tell.clone() };
        let polled_place = place.clone();
        spawn("poll", move || Live::new(polled_place).run(&polled, &quit, &mut tee))?;
        show(model, tell, &told, &rate, &tape, Some(&place))
    }
}

/// Tells the console, and the recording if there is one.
struct Tee {
    tape: Tape,
    tell: Sender<Message>,
}

impl Listener for Tee {
    fn tell(&mut self, news: News) -> bool {
        if let News::Sample(sample) = &news
            && let Err(why) = self.tape.take(sample)
        {
            // If the console has ended, the next line finds out.
            let _ = self.tell.send(Message::NotRecording(why.to_string()));
        }
        self.tell.send(Message::News(news)).is_ok()
    }
}

/// A console that looks as asked.
fn model(cluster: Name, look: &Look, config: &Config, owner: bool) -> Model {
    let theme = look.theme.or(config.theme).unwrap_or_else(Theme::detect);
    let glyphs = if look.ascii { theme::ASCII } else { Glyphs::detect() };
    let mut model = Model::new(cluster, screens::ALL[0].id(), theme, glyphs, owner);
    model.bell = look.bell;
    remember::read(&mut model);
    config.apply(&mut model);
    model
}

/// Takes the terminal, and gives it back at the end.
fn show(
    model: Model,
    tell: Sender<Message>,
    told: &Receiver<Message>,
    rate: &Rate,
    tape: &Tape,
    place: Option<&Place>,
) -> Result<(), Failure> {
    let mut terminal = Terminal::take()?;
    Terminal::mouse(model.mouse)?;
    listen(tell.clone(), model.owner)?;
    let text = attend(&mut terminal, model, tell, told, rate, tape, place)?;
    drop(terminal);
    if Terminal::is_lost() {
        return Err(Failure::Failed(BUG.to_owned()));
    }
    if let Some(text) = text {
        output::line(text)?;
    }
    Ok(())
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(body);
    spawned.map(drop).map_err(|error| Failure::Failed(format!("cannot start the thread {name}: {error}")))
}

/// Listens to keys and signals. Who owns the cluster handles the signals that end both.
fn listen(tell: Sender<Message>, owner: bool) -> Result<(), Failure> {
    let ends: &[i32] = if owner { &[] } else { &[SIGINT, SIGTERM, SIGHUP] };
    let mut signals = Signals::new([SIGTSTP, SIGCONT].iter().chain(ends)).map_err(Failure::failed)?;
    let tell_signal = tell.clone();
    spawn("signals", move || {
        for signal in signals.forever() {
            if tell_signal.send(Message::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    spawn("input", move || {
        while let Ok(input) = event::read() {
            if tell.send(Message::Input(input)).is_err() {
                return;
            }
        }
        // The terminal is gone; so is the reason to go on. If nobody listens, it has ended.
        let _ = tell.send(Message::End);
    })
}

/// Runs the console; gives the text that is to stay on the terminal.
fn attend(
    terminal: &mut Terminal,
    mut model: Model,
    tell: Sender<Message>,
    told: &Receiver<Message>,
    rate: &Rate,
    tape: &Tape,
    place: Option<&Place>,
) -> Result<Option<String>, Failure> {
    let worker = place.map(|place| Worker::new(place.clone(), tell));
    program::release();
    let mut effects = Vec::new();
    let mut dirty = true;
    let mut focused = true;
    let mut drawn: Option<Instant> = None;
    loop {
        let due = drawn.map_or(Duration::ZERO, |at| FRAME.saturating_sub(at.elapsed()));
        let first = match told.recv_timeout(if dirty { due } else { tick(&model) }) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        };
        for message in first.into_iter().chain(told.try_iter()) {
            let event = match message {
                Message::Input(Input::Key(key)) => match Press::of(key) {
                    Some(press) => Event::Key(press),
                    None => continue,
                },
                Message::Input(Input::Resize(width, height)) => Event::Resize(width, height),
                Message::Input(Input::FocusLost) => {
                    focused = false;
                    continue;
                }
                Message::Input(Input::FocusGained) => {
                    focused = true;
                    continue;
                }
                Message::Input(Input::Mouse(mouse)) => match mouse.kind {
                    MouseEventKind::Down(MouseButton::Left) => {
                        Event::Mouse(Mouse::Click(mouse.column, mouse.row))
                    }
                    MouseEventKind::ScrollDown => Event::Mouse(Mouse::Wheel(true)),
                    MouseEventKind::ScrollUp => Event::Mouse(Mouse::Wheel(false)),
                    _ => continue,
                },
                Message::Input(_) => continue,
                Message::News(news) => {
                    model.polled_every = Nanos::from_std(rate.get());
                    Event::News(news)
                }
                Message::Chaos(news) => Event::Chaos(news),
                Message::Signal(SIGTSTP) => {
                    effects.push(Effect::Suspend);
                    continue;
                }
                Message::Signal(SIGCONT) => {
                    effects.push(Effect::Redraw);
                    continue;
                }
                Message::NotRecording(why) => Event::Recording(Err(why)),
                Message::Signal(_) | Message::End => return Ok(None),
            };
            dirty |= model.reduce(event, &mut effects);
        }
        dirty |= model.reduce(Event::Tick(clock::now()), &mut effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Quit(keep) => return Ok(keep.then(|| view::text(&model))),
                Effect::Suspend => terminal.suspend()?,
                Effect::Redraw => terminal.forget()?,
                Effect::Note(text) => {
                    let how = place.map_or(Err("there is no cluster".to_owned()), |place| note(place, text));
                    model.reduce(Event::Noted(how), &mut Vec::new());
                }
                Effect::Export => {
                    let how = export(&model).map_err(|failure| failure.to_string());
                    model.reduce(Event::Exported(how), &mut Vec::new());
                }
                Effect::Bell => terminal.bell()?,
                Effect::Copy(text) => terminal.copy(&text)?,
                // What can not be remembered is chosen again.
                Effect::Remember => drop(remember::write(&model)),
                Effect::Preview(drill) => worker.iter().for_each(|worker| worker.preview(drill.clone())),
                Effect::RunDrill(drill) => worker.iter().for_each(|worker| worker.run(drill.clone())),
                Effect::Act(verb, who) => worker.iter().for_each(|worker| worker.act(verb, who)),
                Effect::Mouse(on) => Terminal::mouse(on)?,
                Effect::AbortDrill => worker.iter().for_each(Worker::abort),
                Effect::Record => {
                    let how = tape.toggle().map_err(|error| error.to_string());
                    model.reduce(Event::Recording(how), &mut Vec::new());
                }
            }
            dirty = true;
        }
        if Terminal::is_lost() {
            return Ok(None);
        }
        // A recording is as dense as if somebody looked.
        let every = match (&model.recording, &model.frozen, focused) {
            (Some(_), ..) | (_, None, true) => POLL_EVERY,
            (_, Some(_), _) => POLL_FROZEN,
            (_, None, false) => POLL_UNFOCUSED,
        };
        rate.set(every);
        // What is read more often from now on is not stale for that.
        model.polled_every = model.polled_every.max(Nanos::from_std(every));
        if dirty && drawn.is_none_or(|at| at.elapsed() >= FRAME) {
            let (width, height) = terminal.size()?;
            model.reduce(Event::Resize(width, height), &mut effects);
            terminal.draw(|buffer| view::draw(&model, buffer))?;
            drawn = Some(Instant::now());
            dirty = false;
            model.look_ahead();
        }
    }
}

/// Writes a note beside the cluster's memory; gives what was noted.
fn note(place: &Place, text: String) -> Result<String, String> {
    let dir = place.root.join(place.cluster.as_str());
    let written = Mark::note(clock::now(), &text).and_then(|mark| mark.write(&dir));
    written.map(|()| text).map_err(|error| error.to_string())
}

/// How long the console waits for news.
fn tick(model: &Model) -> Duration {
    if model.replay.as_ref().is_some_and(|replay| replay.plays()) { PLAY } else { TICK }
}

/// Writes a report on the samples that are kept, in every format, and the screen; gives the folder.
fn export(model: &Model) -> Result<String, Failure> {
    let to = model.frozen.as_ref().map_or(obol_fabric::Instant(u64::MAX), |frozen| frozen.at);
    let samples = model.store.between(None, to);
    let report = Report::new(model.cluster, samples.collect());
    let report = report.ok_or_else(|| Failure::Refused("nothing has been read yet".to_owned()))?;
    report.export(Some(&report::svg::text(&view::buffer(model))))
}

/// `obol mark`: notes something.
pub fn mark(place: &Place, text: &str) -> Result<ExitCode, Failure> {
    let site = Site::open(&place.root, place.cluster).map_err(Failure::refused)?;
    let mark = Mark::note(clock::now(), text).map_err(Failure::refused)?;
    mark.write(site.cluster.dir()).map_err(Failure::failed)?;
    Ok(ExitCode::SUCCESS)
}

/// `obol console`: shows a cluster that runs, or waits for it.
pub fn run(place: Place, look: Look, arm: bool) -> Result<ExitCode, Failure> {
    if !is_possible() {
        return Err(Failure::Refused(
            "the console needs a terminal that knows escape codes (TERM is not dumb); `obol status` and `obol events` print without one".to_owned(),
        ));
    }
    let config = Config::load(look.config.as_deref())?;
    Console::new(place, look, config, false).arm(arm).run()?;
    Ok(ExitCode::SUCCESS)
}

/// A console with an hour of history that nobody has lived through.
pub fn aged(place: Place) -> Result<ExitCode, Failure> {
    let look = Look { theme: None, ascii: false, bell: false, config: None };
    let mut console = Console::new(place, look, Config::load(None)?, false);
    console.aged = true;
    console.run()?;
    Ok(ExitCode::SUCCESS)
}
