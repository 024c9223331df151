//! The terminal: taken over at the start, and always restored, whatever ends or stops the process.

use crate::background::QUESTION;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use crossterm::event::{DisableFocusChange, EnableFocusChange};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{Command, cursor, execute};
use obol_term::output::Failure;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::io::{self, BufWriter, Stdout, Write};
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, panic, thread};

/// Whether the console has the terminal now.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether a thread has panicked; the terminal was restored then.
static PANICKED: AtomicBool = AtomicBool::new(false);
/// Whether the console captures the mouse while it has the terminal.
static MOUSE: AtomicBool = AtomicBool::new(false);
/// Whether an answer of the terminal may come that nobody has read.
static ANSWER_DUE: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// An answer that comes within this time is kept from the shell that has the terminal next.
const ANSWER_WAIT: Duration = Duration::from_millis(300);

/// Buffer size, so that a frame is one write.
const BUFFER_BYTES: usize = 64 << 10;

type Backend = CrosstermBackend<BufWriter<Stdout>>;

/// The terminal while the console has it; restored when this is dropped.
pub(crate) struct Terminal {
    /// Never dropped: its drop shows the cursor, as [`give_back`] does, and panics where the terminal is
    /// gone and standard error with it.
    inner: ManuallyDrop<ratatui::Terminal<Backend>>,
    asked: Option<Instant>,
}

fn failed(error: &io::Error) -> Failure {
    Failure::Failed(format!(
        "cannot use this terminal ({error}); `obol status` and `obol up --plain` need none"
    ))
}

impl Terminal {
    /// Takes over the terminal.
    pub(crate) fn take() -> Result<Self, Failure> {
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                PANICKED.store(true, Ordering::SeqCst);
                // The message must appear on the normal screen.
                give_back();
                before(info);
            }));
        });
        if let Err(error) = enter() {
            give_back();
            return Err(failed(&error));
        }
        let out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout());
        match ratatui::Terminal::new(CrosstermBackend::new(out)) {
            Ok(inner) => Ok(Self { inner: ManuallyDrop::new(inner), asked: None }),
            Err(error) => {
                give_back();
                Err(failed(&error))
            }
        }
    }

    /// Whether a thread has panicked, so that the console must end.
    pub(crate) fn is_lost() -> bool {
        PANICKED.load(Ordering::SeqCst)
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> io::Result<(u16, u16)> {
        let size = self.inner.size()?;
        Ok((size.width, size.height))
    }

    /// Draws a frame; only changes are written.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.inner.draw(|frame| draw(frame.buffer_mut())).map(drop)
    }

    /// Copies a text to the clipboard of the terminal's user, also over ssh: OSC 52.
    pub(crate) fn copy(&mut self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        write!(out, "\x1b]52;c;{}\x07", BASE64_STANDARD.encode(text)).and_then(|()| out.flush())
    }

    /// Asks for the background's colour; the answer is an input.
    pub(crate) fn ask_background(&mut self) -> io::Result<()> {
        self.asked = Some(Instant::now());
        ANSWER_DUE.store(true, Ordering::SeqCst);
        let mut out = io::stdout().lock();
        out.write_all(QUESTION.as_bytes()).and_then(|()| out.flush())
    }

    /// The answer was read.
    pub(crate) fn background_answered() {
        ANSWER_DUE.store(false, Ordering::SeqCst);
    }

    /// Waits until the answer was read, for a bounded time.
    fn await_answer(&self) {
        let Some(asked) = self.asked else { return };
        while ANSWER_DUE.load(Ordering::SeqCst) && asked.elapsed() < ANSWER_WAIT {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Captures or releases the mouse.
    pub(crate) fn mouse(on: bool) -> io::Result<()> {
        MOUSE.store(on, Ordering::SeqCst);
        if on { execute!(io::stdout(), Clicks(true)) } else { execute!(io::stdout(), Clicks(false)) }
    }

    /// Sounds the bell.
    pub(crate) fn bell(&mut self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(b"\x07").and_then(|()| out.flush())
    }

    /// Lets the next frame draw everything.
    pub(crate) fn forget(&mut self) -> io::Result<()> {
        // Not `clear`: it queries the cursor position, and some terminals never answer.
        let size = self.inner.size()?;
        self.inner.resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Stops this process like Ctrl-Z does, and takes over the terminal again when it is continued.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        self.await_answer();
        give_back();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        enter()?;
        self.forget()
    }

    /// Restores the terminal and ends this process as SIGQUIT does, with a core dump where these are
    /// wanted.
    pub(crate) fn abort() {
        give_back();
        // If the system does not let it, the console ends like at any other signal.
        let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGQUIT);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.await_answer();
        give_back();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, EnableFocusChange, cursor::Hide)?;
    if MOUSE.load(Ordering::SeqCst) { execute!(io::stdout(), Clicks(true)) } else { Ok(()) }
}

/// Enables or disables mouse reports of clicks and the wheel (1000, in the form 1006). Not
/// `EnableMouseCapture`: that also reports motion, which would wake the console all the time.
struct Clicks(bool);

impl Command for Clicks {
    fn write_ansi(&self, out: &mut impl fmt::Write) -> fmt::Result {
        out.write_str(if self.0 { "\x1b[?1000h\x1b[?1006h" } else { "\x1b[?1006l\x1b[?1000l" })
    }
}

/// Restores the terminal, once.
fn give_back() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // Errors are ignored, because every step is worth an attempt.
    let _ = execute!(io::stdout(), Clicks(false), DisableFocusChange, LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
    let _ = io::stdout().flush();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::{env, fs};

    /// Set in the child process that panics.
    const PANICS: &str = "OBOL_TEST_PANICS";

    #[test]
    fn a_panic_restores_the_terminal_and_is_shown() {
        if env::var_os(PANICS).is_some() {
            let mut terminal = Terminal::take().unwrap_or_else(|failure| panic!("{failure}"));
            terminal
                .draw(|buffer| {
                    buffer[(0, 0)].set_symbol("@");
                })
                .expect("drawn");
            assert!(thread::spawn(|| panic!("broken on purpose")).join().is_err());
            assert!(Terminal::is_lost());
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (at, program) = (folder.path().display(), env::current_exe().expect("this program"));
        let test = "terminal::tests::a_panic_restores_the_terminal_and_is_shown";
        let script = format!(
            "stty cols 80 rows 24; stty -g > {at}/before; {} --exact {test} --nocapture; stty -g > {at}/after",
            program.display()
        );
        let ran = Command::new("script")
            .args(["-q", "-e", "-c", &script, "/dev/null"])
            .env(PANICS, "1")
            .env("TERM", "xterm-256color")
            .stdin(Stdio::null())
            .output()
            .expect("script, of util-linux, is installed");
        let read = |name| fs::read_to_string(folder.path().join(name)).expect("noted");
        assert!(!read("before").is_empty());
        assert_eq!(read("after"), read("before"), "the terminal's settings");
        let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
        let (taken, after) = shown.split_once("\u{1b}[?1049l").expect("the screen is given back");
        assert!(taken.contains("\u{1b}[?1049h") && taken.contains('@'), "{shown}");
        assert!(after.contains("broken on purpose") && after.contains("\u{1b}[?25h"), "{shown}");
        assert!(after.contains("1 passed"), "{shown}");
    }
}
