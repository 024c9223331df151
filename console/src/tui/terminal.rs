//! The terminal: taken when the console begins and always given back, whatever ends or stops the process.

use crate::output::Failure;
use crossterm::event::{DisableFocusChange, EnableFocusChange};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{cursor, execute};
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::io::{self, BufWriter, Stdout, Write};
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the terminal is the console's now.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether any thread has panicked; the terminal was given back then.
static PANICKED: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// A frame is written at once.
const BUFFER_BYTES: usize = 64 << 10;

type Backend = CrosstermBackend<BufWriter<Stdout>>;

/// The terminal while the console has it; given back when this is dropped.
pub(crate) struct Terminal {
    inner: ratatui::Terminal<Backend>,
}

fn failed(error: &io::Error) -> Failure {
    Failure::Failed(format!(
        "cannot use this terminal ({error}); `obol status` and `obol up --plain` need none"
    ))
}

impl Terminal {
    /// Takes the terminal.
    pub(crate) fn take() -> Result<Self, Failure> {
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                PANICKED.store(true, Ordering::SeqCst);
                // The message is to be read on the ordinary screen.
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
            Ok(inner) => Ok(Self { inner }),
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

    /// Draws a frame; only what changed is written.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.inner.draw(|frame| draw(frame.buffer_mut())).map(drop)
    }

    /// Sounds the bell.
    pub(crate) fn bell(&mut self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(b"\x07").and_then(|()| out.flush())
    }

    /// Makes the next frame write everything.
    pub(crate) fn forget(&mut self) -> io::Result<()> {
        // Not `clear`: it asks the terminal where the cursor is, and some never answer.
        let size = self.inner.size()?;
        self.inner.resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Stops this process, as Ctrl-Z does to any other, and takes the terminal again when it goes on.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        enter()?;
        self.forget()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, EnableFocusChange, cursor::Hide)
}

/// Gives the terminal back, once.
fn give_back() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // A terminal that is gone can not be mended, and every step is worth trying.
    let _ = execute!(io::stdout(), DisableFocusChange, LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
    let _ = io::stdout().flush();
}
