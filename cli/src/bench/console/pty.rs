//! A terminal of 200x50 with a program in it, and what the program has put on its screen.

use crate::running::tied;
use obol_console::output::Failure;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Columns and rows.
pub(super) const SIZE: (usize, usize) = (200, 50);

/// The cells of a terminal, as far as the console makes use of one: it moves the cursor, writes
/// characters and sets colours. Every character that it writes is one cell wide.
struct Cells {
    cells: Vec<Vec<char>>,
    /// Column and row.
    cursor: (usize, usize),
    state: State,
    /// Bytes of a character that is not whole yet.
    partial: Vec<u8>,
    /// What was written in all.
    bytes: u64,
}

/// How far into a control sequence the stream is.
enum State {
    Text,
    Escape,
    Control(String),
}

impl Cells {
    fn new() -> Self {
        let cells = vec![vec![' '; SIZE.0]; SIZE.1];
        Self { cells, cursor: (0, 0), state: State::Text, partial: Vec::new(), bytes: 0 }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        for &byte in bytes {
            match &mut self.state {
                State::Text if byte == 0x1b => self.state = State::Escape,
                State::Text => self.text(byte),
                State::Escape if byte == b'[' => self.state = State::Control(String::new()),
                State::Escape => self.state = State::Text,
                State::Control(parameters) if byte < 0x40 => parameters.push(char::from(byte)),
                State::Control(parameters) => {
                    let parameters = std::mem::take(parameters);
                    self.state = State::Text;
                    self.control(byte, &parameters);
                }
            }
        }
    }

    fn text(&mut self, byte: u8) {
        match byte {
            b'\r' => self.cursor.0 = 0,
            b'\n' => self.cursor.1 += 1,
            0..b' ' => {}
            _ => {
                self.partial.push(byte);
                let Ok(text) = std::str::from_utf8(&self.partial) else { return };
                let (column, row) = self.cursor;
                if let (Some(character), Some(cell)) =
                    (text.chars().next(), self.cells.get_mut(row).and_then(|row| row.get_mut(column)))
                {
                    *cell = character;
                }
                self.cursor.0 += 1;
                self.partial.clear();
            }
        }
    }

    fn control(&mut self, end: u8, parameters: &str) {
        let mut numbers = parameters.split(';').map(|n| n.parse::<usize>().ok());
        let mut next = || numbers.next().flatten();
        match end {
            b'H' | b'f' => {
                let row = next().unwrap_or(1).saturating_sub(1);
                self.cursor = (next().unwrap_or(1).saturating_sub(1), row);
            }
            b'J' => self.cells.iter_mut().for_each(|row| row.fill(' ')),
            _ => {}
        }
    }

    fn contains(&self, words: &str) -> bool {
        self.cells.iter().any(|row| row.iter().collect::<String>().contains(words))
    }
}

/// The cells, and a bell for when they change.
type Shared = Arc<(Mutex<Cells>, Condvar)>;

fn cells(shared: &Shared) -> MutexGuard<'_, Cells> {
    // A reader that panicked has left whole cells behind.
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where this process's console has its files.
pub(super) fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("obol-bench-console-{}", std::process::id()))
}

/// A program in a terminal, which `script` of util-linux makes; both end with this.
pub(super) struct Pty {
    child: Child,
    keys: Option<ChildStdin>,
    shown: Shared,
    folder: PathBuf,
    /// The program's process.
    pub(super) pid: u32,
}

impl Pty {
    /// Runs this program with these words, which need no quotes.
    pub(super) fn start(words: &str, patience: Duration) -> Result<Self, Failure> {
        let folder = folder();
        std::fs::create_dir_all(&folder).map_err(Failure::failed)?;
        let noted = folder.join("pid");
        // What an earlier one has noted.
        let _ = std::fs::remove_file(&noted);
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let (columns, rows) = SIZE;
        let command = format!(
            "stty cols {columns} rows {rows}; echo $$ > {}; exec {} {words}",
            noted.display(),
            program.display()
        );
        let mut child = tied("script")
            .map_err(Failure::failed)?
            .args(["-q", "-e", "-f", "-c", &command, "/dev/null"])
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            // Not the configuration of whoever measures.
            .env("XDG_CONFIG_HOME", &folder)
            .env("XDG_STATE_HOME", &folder)
            .env_remove("OBOL_CONFIG")
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Failure::failed)?;
        let keys = child.stdin.take();
        let out = child.stdout.take();
        let shown: Shared = Arc::new((Mutex::new(Cells::new()), Condvar::new()));
        let mut this = Self { child, keys, shown: Arc::clone(&shown), folder, pid: 0 };
        let Some(mut out) = out else { return Err(Failure::Failed("no output to read".to_owned())) };
        thread::spawn(move || {
            let mut bytes = [0; 16 << 10];
            while let Ok(n @ 1..) = out.read(&mut bytes) {
                cells(&shown).take(&bytes[..n]);
                shown.1.notify_all();
            }
        });
        let began = Instant::now();
        while this.pid == 0 {
            if let Ok(Some(how)) = this.child.try_wait() {
                return Err(Failure::Refused(format!("cannot run `script` of util-linux: {how}")));
            }
            if began.elapsed() > patience {
                return Err(Failure::Failed("`script` has not started the console".to_owned()));
            }
            let text = std::fs::read_to_string(&noted).unwrap_or_default();
            this.pid = text.trim().parse().unwrap_or(0);
            thread::sleep(Duration::from_millis(2));
        }
        Ok(this)
    }

    /// What was written to the terminal so far.
    pub(super) fn bytes(&self) -> u64 {
        cells(&self.shown).bytes
    }

    /// Waits until more than so much was written in all. Tells how long it took.
    pub(super) fn beyond(&self, bytes: u64, patience: Duration) -> Result<Duration, Failure> {
        let began = Instant::now();
        let mut now = cells(&self.shown);
        while now.bytes <= bytes {
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(Failure::Failed(format!("for {patience:?} the console writes nothing")));
            }
            now = self.shown.1.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(began.elapsed())
    }

    /// Types these keys.
    pub(super) fn press(&mut self, keys: &str) -> Result<(), Failure> {
        let Some(out) = &mut self.keys else { return Ok(()) };
        out.write_all(keys.as_bytes()).and_then(|()| out.flush()).map_err(Failure::failed)
    }

    /// Waits until the screen shows these words, or no longer does. Tells how long it took.
    pub(super) fn until(&self, words: &str, shown: bool, patience: Duration) -> Result<Duration, Failure> {
        let began = Instant::now();
        let mut now = cells(&self.shown);
        while now.contains(words) != shown {
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                let screen: Vec<String> = now.cells.iter().map(|row| row.iter().collect()).collect();
                let why =
                    format!("after {patience:?} the console does not show {words:?}:\n{}", screen.join("\n"));
                return Err(Failure::Failed(why));
            }
            now = self.shown.1.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(began.elapsed())
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        // The end of its input ends `script`, and that the terminal, which ends the console.
        self.keys = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_what_was_written_last() {
        let mut cells = Cells::new();
        cells.take(b"\x1b[?1049h\x1b[2J\x1b[3;5H\x1b[38;5;1mhel");
        cells.take(b"p \xe2\x94");
        cells.take(b"\x80\x1b[3;6Ho\x1b[m");
        assert!(cells.contains("holp \u{2500}") && !cells.contains("help"));
        assert_eq!(cells.cells[2][4], 'h');
        cells.take(b"\x1b[2J");
        assert!(!cells.contains("h"));
    }
}
