//! A terminal of 200x50 with a program in it, and what the program has put on its screen.

use obol_fabric::host::this_program;
use obol_supervise::running::dies_with_parent;
use obol_term::output::Failure;
use parking_lot::{Condvar, Mutex};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const COLUMNS: NonZeroU16 = NonZeroU16::MIN.saturating_add(199);
const ROWS: NonZeroU16 = NonZeroU16::MIN.saturating_add(49);

/// The screen, and how many bytes were written in all.
struct Shown(vt100::Parser, u64);

impl Shown {
    fn contains(&self, words: &str) -> bool {
        self.0.screen().rows(0, COLUMNS.get()).any(|row| row.contains(words))
    }
}

/// The screen, and a bell for when it changes.
type Shared = Arc<(Mutex<Shown>, Condvar)>;

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
        let program = this_program::file().map_err(Failure::failed)?;
        let command = format!(
            "stty cols {COLUMNS} rows {ROWS}; echo $$ > {}; exec {} {words}",
            noted.display(),
            program.display()
        );
        let mut child = dies_with_parent("script", None)
            .map_err(Failure::failed)?
            .args(["-q", "-e", "-f", "-c", &command, "/dev/null"])
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            // Not the user's own configuration.
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
        let shown: Shared =
            Arc::new((Mutex::new(Shown(vt100::Parser::new(ROWS, COLUMNS, 0), 0)), Condvar::new()));
        let mut this = Self { child, keys, shown: Arc::clone(&shown), folder, pid: 0 };
        let Some(mut out) = out else { return Err(Failure::Failed("no output to read".to_owned())) };
        thread::spawn(move || {
            let mut bytes = [0; 16 << 10];
            while let Ok(n @ 1..) = out.read(&mut bytes) {
                let mut now = shown.0.lock();
                now.0.process(&bytes[..n]);
                now.1 += n as u64;
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
        self.shown.0.lock().1
    }

    /// Waits until more than so much was written in all. Returns how long it took.
    pub(super) fn beyond(&self, bytes: u64, patience: Duration) -> Result<Duration, Failure> {
        let began = Instant::now();
        let mut now = self.shown.0.lock();
        while now.1 <= bytes {
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(Failure::Failed(format!("for {patience:?} the console writes nothing")));
            }
            self.shown.1.wait_for(&mut now, left);
        }
        Ok(began.elapsed())
    }

    /// Types these keys.
    pub(super) fn press(&mut self, keys: &str) -> Result<(), Failure> {
        let Some(out) = &mut self.keys else { return Ok(()) };
        out.write_all(keys.as_bytes()).and_then(|()| out.flush()).map_err(Failure::failed)
    }

    /// Waits until the screen shows these words, or no longer does. Returns how long it took.
    pub(super) fn until(&self, words: &str, shown: bool, patience: Duration) -> Result<Duration, Failure> {
        let began = Instant::now();
        let mut now = self.shown.0.lock();
        while now.contains(words) != shown {
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                let screen = now.0.screen().contents();
                let why = format!("after {patience:?} the console does not show {words:?}:\n{screen}");
                return Err(Failure::Failed(why));
            }
            self.shown.1.wait_for(&mut now, left);
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
