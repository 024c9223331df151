//! A console at a terminal: threads for polling, keys and signals, and the drawing loop.

use crate::background::{Answer, Taken};
use crate::config::Config;
use crate::contexts::{self, Context, Watch};
use crate::drill_worker::{self, Worker};
use crate::input::Press;
use crate::message::Message;
use crate::options::Look;
use crate::recording::SharedRecorder;
use crate::screens::clusters;
use crate::state::mouse::Mouse;
use crate::state::replay::Replay;
use crate::state::{Effect, Event, Model};
use crate::terminal::Terminal;
use crate::theme::{self, Glyphs, Theme};
use crate::{past, remember, screens, svg, view};
use crossterm::event::{self, Event as Input, MouseButton, MouseEventKind};
use obol_chaos::drills::audit::log::Who;
use obol_fabric::host::Cluster;
use obol_fabric::host::{clock, program};
use obol_fabric::{Name, Nanos};
use obol_node::ClusterLocation;
use obol_node::{Site, ending};
use obol_observe::annotations::Mark;
use obol_observe::sampling::live::{Live, POLL_EVERY, Rate};
use obol_observe::sampling::sample::Sample;
use obol_observe::sampling::tape::Tape;
use obol_observe::sampling::{Sink, Update};
use obol_report::Report;
use obol_term::output::{self, Failure};
use parking_lot::Mutex;
use signal_hook::consts::{SIGCONT, SIGQUIT, SIGTSTP};
use signal_hook::iterator::Signals;
use std::io::{self, IsTerminal as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Shortest interval of frames; a key shows its effect after at most this time.
const FRAME: Duration = Duration::from_millis(33);
/// Longest delay of the first frame for the terminal's answer which background it has.
const ANSWER: Duration = Duration::from_millis(100);
/// Without updates the console checks the clock this often, to mark stale data.
const TICK: Duration = Duration::from_millis(500);
/// Interval of checks while a recording plays.
const PLAY: Duration = Duration::from_millis(100);
/// Poll intervals while the terminal is not in focus, and while the screen is frozen. Counters and
/// histograms only grow and flight recorders keep events, so nothing is lost in between.
const POLL_UNFOCUSED: Duration = Duration::from_secs(1);
const POLL_FROZEN: Duration = Duration::from_secs(4);

/// Message after a panic.
const BUG: &str = "the console ended because of a bug; its message is above";

/// A console on a thread of its own. Dropping it restores the terminal.
pub struct Background {
    tx: Sender<Message>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Background {
    /// Starts a console; `ended` is set when the user quits.
    pub fn start(console: Console, ended: Arc<AtomicBool>) -> Result<Self, Failure> {
        let tx = console.tx.clone();
        let body = move || {
            let how = console.run();
            ended.store(true, Ordering::Relaxed);
            how
        };
        let thread = thread::Builder::new().name("console".to_owned()).spawn(body);
        let thread = thread.map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
        Ok(Self { tx, thread: Some(thread) })
    }

    /// Ends it and returns its result.
    pub fn close(mut self) -> Result<(), Failure> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Failure> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // It may have ended already.
        let _ = self.tx.send(Message::End);
        thread.join().unwrap_or_else(|_| Err(Failure::Failed(BUG.to_owned())))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // The result is only available through `close`.
        let _ = self.end();
    }
}

/// Whether a console can be shown: a dumb terminal has no escape codes.
pub fn is_possible() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A console before its start.
pub struct Console {
    location: ClusterLocation,
    look: Look,
    config: Config,
    owner: bool,
    record: Option<PathBuf>,
    arm: bool,
    aged: bool,
    rx: Receiver<Message>,
    tx: Sender<Message>,
}

impl Console {
    /// `owner` states whether quitting ends the cluster.
    pub fn new(location: ClusterLocation, look: Look, config: Config, owner: bool) -> Self {
        let (tx, rx) = mpsc::channel();
        Self { location, look, config, owner, record: None, arm: false, aged: false, rx, tx }
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

    /// Runs it until the user quits.
    pub fn run(self) -> Result<(), Failure> {
        let Self { mut location, look, config, owner, mut record, arm, aged, mut rx, mut tx } = self;
        let mut model = model(location.cluster, &look, &config, owner);
        let mut stage = None;
        if !owner && !is_there(&location) && !contexts::all(&config.contexts, &location.root).is_empty() {
            model.screen = clusters::ID;
        }
        // The theme of clusters that have none of their own, and whether the background decides it.
        let mut theme = (model.theme, model.theme_follows);
        loop {
            let context = contexts::of(&config.contexts, &location);
            let own = context.theme.filter(|_| look.theme.is_none());
            (model.theme, model.theme_follows) = own.map_or(theme, |own| (own, false));
            model.context = Some(context);
            model.chaos.drills = drill_worker::choices();
            model.chaos.may_arm = arm;
            if aged {
                past::add_history(&mut model, &location);
            }
            let rate = Rate::new(POLL_EVERY);
            let recorder = SharedRecorder::new(location.cluster);
            if let Some(file) = record.take() {
                recorder.begin(&file)?;
                model.reduce(Event::Recording(Ok(Some(file.display().to_string()))), &mut Vec::new());
            }
            let (_quit, quit) = mpsc::channel();
            let polled = rate.clone();
            let mut tee = RecordingSink { recorder: recorder.clone(), tx: tx.clone() };
            let polled_location = location.clone();
            spawn("poll", move || Live::new(polled_location).run(&polled, &quit, &mut tee))?;
            let place = Place { location: &location, contexts: &config.contexts };
            let shown = match &mut stage {
                Some(stage) => stage,
                none => none.insert(Stage::open(&model, &tx)?),
            };
            let (before, next) = match show(model, shown, tx, &rx, &rate, &recorder, Some(place))? {
                End::Quit(text) => {
                    drop(stage.take());
                    return leave(text);
                }
                End::Switch(model, next) => (model, next),
            };
            if own.is_none() {
                theme = (before.theme, before.theme_follows);
            }
            // The inputs go to the next one before the channel of this one is closed.
            let (next_tx, next_rx) = mpsc::channel();
            shown.pass_to(&next_tx);
            (tx, rx) = (next_tx, next_rx);
            location = next.location;
            model = self::model(location.cluster, &look, &config, owner);
            model.mouse = before.mouse;
        }
    }
}

/// Whether there is a cluster at this place.
fn is_there(location: &ClusterLocation) -> bool {
    // One that cannot be seen is shown with the reason.
    Cluster::list(&location.root).map_or(true, |all| all.contains(&location.cluster))
}

/// Leaves a text on the terminal, which was restored.
fn leave(text: Option<String>) -> Result<(), Failure> {
    if Terminal::is_lost() {
        return Err(Failure::Failed(BUG.to_owned()));
    }
    if let Some(text) = text {
        output::line(text)?;
    }
    Ok(())
}

/// How a session ends.
enum End {
    /// With this text to leave on the terminal.
    Quit(Option<String>),
    /// Another cluster is to be shown in place of this one.
    Switch(Box<Model>, Context),
}

/// The cluster of a session, and the configured ones.
#[derive(Clone, Copy)]
struct Place<'a> {
    location: &'a ClusterLocation,
    contexts: &'a [Context],
}

/// Sends updates to the console, and samples to the recording if there is one.
struct RecordingSink {
    recorder: SharedRecorder,
    tx: Sender<Message>,
}

impl Sink for RecordingSink {
    fn take(&mut self, update: Update) -> bool {
        if let Update::Sample(sample) = &update
            && let Err(why) = self.recorder.take(sample)
        {
            // If the console has ended, the next statement detects it.
            let _ = self.tx.send(Message::NotRecording(why.to_string()));
        }
        self.tx.send(Message::Update(update)).is_ok()
    }
}

/// A console with the requested appearance.
fn model(cluster: Name, look: &Look, config: &Config, owner: bool) -> Model {
    let wanted = look.theme.or(config.theme);
    let theme = wanted.unwrap_or_else(Theme::detect);
    let glyphs = if look.ascii { theme::ASCII } else { Glyphs::detect() };
    let mut model = Model::new(cluster, screens::first(), theme, glyphs, owner);
    model.theme_follows = wanted.is_none() && theme.depends();
    model.bell = look.bell;
    remember::read(&mut model);
    config.apply(&mut model);
    model
}

/// The terminal, and the threads that read it and signals, which pass what they read to the session that is
/// shown.
struct Stage {
    terminal: Terminal,
    inputs: Arc<Mutex<Sender<Message>>>,
    /// When the terminal was asked for its background, until it answers or is given up.
    asked: Option<Instant>,
}

impl Stage {
    /// Takes over the terminal.
    fn open(model: &Model, tx: &Sender<Message>) -> Result<Self, Failure> {
        let mut terminal = Terminal::take()?;
        Terminal::mouse(model.mouse)?;
        let asked = model.theme_follows.then(Instant::now);
        if asked.is_some() {
            terminal.ask_background()?;
        }
        let inputs = Arc::new(Mutex::new(tx.clone()));
        listen(&inputs, model.owner, asked.is_some())?;
        Ok(Self { terminal, inputs, asked })
    }

    /// Passes inputs to another session from now on.
    fn pass_to(&self, tx: &Sender<Message>) {
        *self.inputs.lock() = tx.clone();
    }
}

/// Shows a cluster, or a recording.
fn show(
    model: Model,
    stage: &mut Stage,
    tx: Sender<Message>,
    rx: &Receiver<Message>,
    rate: &Rate,
    recorder: &SharedRecorder,
    place: Option<Place<'_>>,
) -> Result<End, Failure> {
    let worker = place.map(|place| Worker::new(place.location.clone(), tx.clone()));
    let watch = None;
    Session { stage, model, rx, tx, rate, recorder, place, worker, watch, focused: true }.run()
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(body);
    spawned.map(drop).map_err(|error| Failure::Failed(format!("cannot start the thread {name}: {error}")))
}

/// Listens to keys and signals. The owner of the cluster handles the signals that end both.
fn listen(inputs: &Arc<Mutex<Sender<Message>>>, owner: bool, asked: bool) -> Result<(), Failure> {
    let ends = if owner { Vec::new() } else { ending::signals() };
    let mut signals =
        Signals::new([SIGTSTP, SIGCONT, SIGQUIT].into_iter().chain(ends)).map_err(Failure::failed)?;
    let to = Arc::clone(inputs);
    spawn("signals", move || {
        for signal in signals.forever() {
            if to.lock().send(Message::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    let to = Arc::clone(inputs);
    spawn("input", move || {
        if read_inputs(&to, asked).is_ok() {
            return;
        }
        // The terminal is gone. If the receiver is, too, the console has ended.
        let _ = to.lock().send(Message::End);
    })
}

/// Sends what is read from the terminal until the console has ended, which may hold the answer which
/// background it has.
fn read_inputs(to: &Mutex<Sender<Message>>, asked: bool) -> io::Result<()> {
    let mut answer = asked.then(Answer::default);
    loop {
        let patience = answer.as_ref().and_then(Answer::patience);
        let is_there = patience.map_or(Ok(true), event::poll)?;
        let input = if is_there { Some(event::read()?) } else { None };
        let taken = match (&mut answer, input) {
            (Some(answer), Some(input)) => answer.take(input),
            (Some(answer), None) => answer.pause(),
            (None, input) => Taken { passed: input.into_iter().collect(), light: None },
        };
        let passed = taken.passed.into_iter().map(Message::Input);
        for message in passed.chain(taken.light.map(Message::Background)) {
            if to.lock().send(message).is_err() {
                return Ok(());
            }
        }
        if answer.as_ref().is_some_and(Answer::is_over) {
            answer = None;
            Terminal::background_answered();
        }
    }
}

/// The console while it has the terminal.
struct Session<'a> {
    stage: &'a mut Stage,
    model: Model,
    rx: &'a Receiver<Message>,
    tx: Sender<Message>,
    rate: &'a Rate,
    recorder: &'a SharedRecorder,
    /// `None` for a recording.
    place: Option<Place<'a>>,
    worker: Option<Worker>,
    /// Reads the clusters of the list while that is shown.
    watch: Option<Watch>,
    /// Whether the terminal is in focus.
    focused: bool,
}

impl Session<'_> {
    /// Runs the console to its end.
    fn run(mut self) -> Result<End, Failure> {
        program::release();
        let mut effects = Vec::new();
        let mut dirty = true;
        let mut drawn: Option<Instant> = None;
        loop {
            let wait = match drawn {
                _ if self.model.replay.as_ref().is_some_and(Replay::is_busy) => Duration::ZERO,
                _ if !dirty => tick(&self.model),
                None => self.unanswered(),
                drawn => drawn.map_or(Duration::ZERO, |at| FRAME.saturating_sub(at.elapsed())),
            };
            let first = match self.rx.recv_timeout(wait) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(End::Quit(None)),
            };
            for message in first.into_iter().chain(self.rx.try_iter()) {
                match self.event(message, &mut effects) {
                    ControlFlow::Continue(Some(event)) => dirty |= self.model.reduce(event, &mut effects),
                    ControlFlow::Continue(None) => {}
                    ControlFlow::Break(()) => return Ok(End::Quit(None)),
                }
            }
            dirty |= self.model.reduce(Event::Tick(clock::now()), &mut effects);
            for effect in effects.drain(..) {
                if let Effect::Switch(at) = effect {
                    match self.model.contexts.get(at).cloned() {
                        Some(next) => return Ok(End::Switch(Box::new(self.model), next)),
                        None => continue,
                    }
                }
                if let ControlFlow::Break(text) = self.perform(effect)? {
                    return Ok(End::Quit(text));
                }
                dirty = true;
            }
            if Terminal::is_lost() {
                return Ok(End::Quit(None));
            }
            self.set_rate();
            dirty |= self.set_watch()?;
            if dirty && drawn.map_or_else(|| self.unanswered().is_zero(), |at| at.elapsed() >= FRAME) {
                let (width, height) = self.stage.terminal.size()?;
                self.model.reduce(Event::Resize(width, height), &mut effects);
                self.stage.terminal.draw(|buffer| view::draw(&self.model, buffer))?;
                drawn = Some(Instant::now());
                dirty = false;
                self.model.look_ahead();
            }
        }
    }

    /// How long the first frame still waits for the terminal's answer.
    fn unanswered(&self) -> Duration {
        self.stage.asked.map_or(Duration::ZERO, |asked| ANSWER.saturating_sub(asked.elapsed()))
    }

    /// The event of a message, if it is one for the model; breaks if the console has to end.
    fn event(&mut self, message: Message, effects: &mut Vec<Effect>) -> ControlFlow<(), Option<Event>> {
        ControlFlow::Continue(match message {
            Message::Input(input) => self.input(&input),
            Message::Update(update) => {
                self.model.polled_every = Nanos::from_std(self.rate.get());
                Some(Event::Update(update))
            }
            Message::Background(light) => {
                self.stage.asked = None;
                Some(Event::Background(light))
            }
            Message::Chaos(update) => Some(Event::Chaos(update)),
            Message::Summary(at, found) => Some(Event::Summary(at, found)),
            Message::Logged(who, line) => Some(Event::Logged(who, line)),
            Message::Signal(SIGTSTP) => {
                effects.push(Effect::Suspend);
                None
            }
            Message::Signal(SIGCONT) => {
                effects.push(Effect::Redraw);
                None
            }
            Message::Signal(SIGQUIT) => {
                Terminal::abort();
                return ControlFlow::Break(());
            }
            Message::NotRecording(why) => Some(Event::Recording(Err(why))),
            Message::Signal(_) | Message::End => return ControlFlow::Break(()),
        })
    }

    fn input(&mut self, input: &Input) -> Option<Event> {
        match input {
            Input::Key(key) => Press::of(*key).map(Event::Key),
            Input::Resize(width, height) => Some(Event::Resize(*width, *height)),
            Input::FocusLost | Input::FocusGained => {
                self.focused = matches!(input, Input::FocusGained);
                None
            }
            Input::Mouse(mouse) => match mouse.kind {
                MouseEventKind::Down(MouseButton::Left) => {
                    Some(Event::Mouse(Mouse::Click(mouse.column, mouse.row)))
                }
                MouseEventKind::ScrollDown => Some(Event::Mouse(Mouse::Wheel(true))),
                MouseEventKind::ScrollUp => Some(Event::Mouse(Mouse::Wheel(false))),
                _ => None,
            },
            Input::Paste(_) => None,
        }
    }

    /// Performs an effect; breaks with the text to leave on the terminal if the console has to end.
    fn perform(&mut self, effect: Effect) -> Result<ControlFlow<Option<String>>, Failure> {
        let done = match effect {
            Effect::Quit(keep) => return Ok(ControlFlow::Break(keep.then(|| view::text(&self.model)))),
            Effect::Suspend => {
                self.stage.terminal.suspend()?;
                None
            }
            Effect::Redraw => {
                self.stage.terminal.forget()?;
                None
            }
            Effect::Bell => {
                self.stage.terminal.bell()?;
                None
            }
            Effect::Copy(text) => {
                self.stage.terminal.copy(&text)?;
                None
            }
            Effect::Mouse(on) => {
                Terminal::mouse(on)?;
                None
            }
            Effect::Note(text) => {
                let mark = Mark::note(clock::now(), &text).map_err(|error| error.to_string());
                Some(Event::Noted(self.note(mark)))
            }
            Effect::Acknowledge(one) => {
                let by = Who::this().name();
                let mark = Mark::acknowledged(clock::now(), one.acknowledge(by), &one.fact);
                Some(Event::Noted(self.note(Ok(mark))))
            }
            Effect::Export => {
                Some(Event::Exported(export(&self.model).map_err(|failure| failure.to_string())))
            }
            Effect::Record => {
                Some(Event::Recording(self.recorder.toggle().map_err(|error| error.to_string())))
            }
            Effect::Remember => {
                // If it cannot be saved, the user has to sort again.
                drop(remember::write(&self.model));
                None
            }
            Effect::Preview(_)
            | Effect::RunDrill(_)
            | Effect::AbortDrill
            | Effect::Act(..)
            | Effect::Switch(_)
            | Effect::Logs(_) => {
                self.delegate(effect);
                None
            }
        };
        if let Some(event) = done {
            self.model.reduce(event, &mut Vec::new());
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Writes an annotation; returns its text.
    fn note(&self, mark: Result<Mark, String>) -> Result<String, String> {
        let (mark, place) = (mark?, self.place.ok_or("there is no cluster")?);
        let location = place.location.clone();
        mark.write(&location.root.join(location.cluster.as_str())).map_err(|error| error.to_string())?;
        let text = mark.text.clone();
        // A host that does not answer must not hold up keys. It lacks the annotation then.
        std::thread::spawn(move || {
            Site::open(&location.root, location.cluster).map(|site| mark.forward(&site))
        });
        Ok(text)
    }

    /// Passes it to the worker; there is none for a recording.
    fn delegate(&self, effect: Effect) {
        let Some(worker) = &self.worker else { return };
        match effect {
            Effect::Preview(drill) => worker.preview(drill),
            Effect::RunDrill(drill) => worker.run(drill),
            Effect::AbortDrill => worker.abort(),
            Effect::Act(verb, who) => worker.act(verb, who),
            Effect::Logs(who) => worker.follow_logs(who),
            _ => {}
        }
    }

    /// Reads the clusters of the list while it is shown; returns whether it is another list now.
    fn set_watch(&mut self) -> Result<bool, Failure> {
        let Some(place) = self.place else { return Ok(false) };
        let is_shown = self.model.screen == clusters::ID;
        if is_shown == self.watch.is_some() {
            return Ok(false);
        }
        self.watch = None;
        if is_shown {
            let all = contexts::all(place.contexts, &place.location.root);
            self.watch = Some(Watch::start(&all, self.tx.clone())?);
            self.model.reduce(Event::Contexts(all), &mut Vec::new());
        }
        Ok(is_shown)
    }

    /// Adapts the poll interval to visibility. While recording, the interval stays short.
    fn set_rate(&mut self) {
        let every = match (&self.model.recording, &self.model.frozen, self.focused) {
            (Some(_), ..) | (_, None, true) => POLL_EVERY,
            (_, Some(_), _) => POLL_FROZEN,
            (_, None, false) => POLL_UNFOCUSED,
        };
        self.rate.set(every);
        // Data is not stale just because the interval became shorter.
        self.model.polled_every = self.model.polled_every.max(Nanos::from_std(every));
    }
}

/// How long the console waits for updates.
fn tick(model: &Model) -> Duration {
    match &model.replay {
        Some(replay) if replay.plays() => PLAY,
        _ => TICK,
    }
}

/// Writes a report on the kept samples in every format, and the screen; returns the folder.
fn export(model: &Model) -> Result<String, Failure> {
    let report = match &model.replay {
        Some(replay) => {
            let mut failed = None;
            let read = |sample: Result<Sample, _>| sample.map_err(|error| failed = Some(error)).ok();
            let report = Report::new(model.cluster, replay.shown().map_while(read).map(Arc::new));
            failed.map_or(Ok(report), |error| Err(Failure::failed(error)))?
        }
        None => {
            let to = model.frozen.as_ref().map_or(obol_fabric::Instant(u64::MAX), |frozen| frozen.at);
            Report::new(model.cluster, model.store.between(None, to))
        }
    };
    let report = report.ok_or_else(|| Failure::Refused("nothing has been read yet".to_owned()))?;
    report.export(Some(&svg::text(&view::buffer(model))))
}

/// `obol console`: shows a running cluster, or waits for it.
pub fn run(location: ClusterLocation, look: Look, arm: bool) -> Result<ExitCode, Failure> {
    if !is_possible() {
        return Err(Failure::Refused(
            "the console needs a terminal that knows escape codes (TERM is not dumb); `obol status` and `obol events` print without one".to_owned(),
        ));
    }
    let config = Config::load(look.config.as_deref())?;
    Console::new(location, look, config, false).arm(arm).run()?;
    Ok(ExitCode::SUCCESS)
}

/// A console with an hour of artificial history.
pub fn aged(location: ClusterLocation) -> Result<ExitCode, Failure> {
    let look = Look { theme: None, ascii: false, bell: false, config: None };
    let mut console = Console::new(location, look, Config::load(None)?, false);
    console.aged = true;
    console.run()?;
    Ok(ExitCode::SUCCESS)
}

/// A recording that has something to show.
fn recorded(file: &Path) -> Result<Tape, Failure> {
    let mut tape = Tape::open(file).map_err(Failure::refused)?;
    while tape.found() == 0 && !tape.is_scanned() {
        tape.scan();
    }
    if tape.found() > 0 {
        return Ok(tape);
    }
    let gap = tape.gap().map_or(String::new(), |gap| format!(" ({gap})"));
    Err(Failure::Refused(format!(
        "{}: the recording of cluster {} has no sample{gap}, so there is nothing to show; record again with `obol record`",
        file.display(),
        tape.cluster()
    )))
}

/// `obol replay`: shows a recording.
pub fn replay(file: &Path, look: &Look) -> Result<ExitCode, Failure> {
    let tape = recorded(file)?;
    let cluster = Name::new(tape.cluster())
        .map_err(|error| Failure::Refused(format!("{}: cluster name: {error}", file.display())))?;
    if !is_possible() {
        return Err(Failure::Refused(
            "a replay needs a terminal; `obol report` prints without one".to_owned(),
        ));
    }
    let config = Config::load(look.config.as_deref())?;
    let mut model = model(cluster, look, &config, false);
    model.replay(tape);
    let (tx, rx) = mpsc::channel();
    let mut stage = Stage::open(&model, &tx)?;
    let end = show(model, &mut stage, tx, &rx, &Rate::new(POLL_EVERY), &SharedRecorder::new(cluster), None);
    drop(stage);
    match end? {
        End::Quit(text) => leave(text)?,
        // A recording has no other cluster.
        End::Switch(..) => {}
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use obol_fabric::Instant;
    use obol_observe::sampling::record::{Header, Recorder};

    #[test]
    fn a_recording_without_a_sample_is_refused_and_says_so() {
        let folder = tempfile::tempdir().expect("made");
        let file = folder.path().join("c.obolrec");
        let mut recorder = Recorder::create(&file, &Header::new(samples::name("default"))).expect("created");
        let look = Look { theme: None, ascii: false, bell: false, config: None };
        let refused = replay(&file, &look).expect_err("nothing to show").to_string();
        for words in ["c.obolrec: ", "cluster default has no sample", "obol record"] {
            assert!(refused.contains(words), "{words:?} is not in {refused}");
        }
        recorder.sample(&samples::healthy(Instant(1))).expect("written");
        assert_eq!(recorded(&file).map(|tape| tape.found()).map_err(|error| error.to_string()), Ok(1));
    }
}
