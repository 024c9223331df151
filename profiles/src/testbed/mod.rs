//! Testbeds for the simulator: published or measured durations of every operation, each value with
//! its source. Read as strictly as a [`Profile`](crate::Profile): all faults at once, with line and
//! column.

mod keys;
mod read;

pub use keys::Parameter;

use obol_config::{BuiltIn, FileError};
use obol_fabric::{Name, Nanos};
use obol_fabric_sim::{Model, Quantiles};
use std::collections::BTreeMap;

/// The schema of testbed files that this program reads.
pub const SCHEMA: u32 = 1;

/// The built-in testbeds: name and text.
static FILES: [(&str, &str); 1] = [("infiniband", include_str!("../../sim/infiniband.toml"))];

static TESTBEDS: BuiltIn = BuiltIn { kind: "testbed", folder: "profiles/sim", texts: &FILES };

/// Names of the built-in testbeds.
pub static BUILTIN: [&str; FILES.len()] = obol_config::names(&FILES);

/// A testbed. Created by [`Testbed::load`], [`Testbed::parse`] or [`Testbed::builtin`], which check
/// it. The default is the initial value for reading: a missing key is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Testbed {
    pub name: Name,
    /// Its description, in one line.
    pub description: String,
    /// All durations without load on network or memory; deaths are noticed at exit time.
    pub model: Model,
    /// The polling interval of a core under full memory load.
    pub interval_loaded: Quantiles,
    /// The delay that a saturated network adds in each direction.
    pub saturated: Quantiles,
    /// From a kill to its notice if the kernel reports the signal, not the exit.
    pub signal: Quantiles,
    /// The interval between kills that are meant to be simultaneous.
    pub spread: Quantiles,
    /// The constants that the published cluster ran with.
    pub deployment: Published,
    sources: BTreeMap<&'static str, String>,
}

/// The constants of the protocol that a paper's authors used on the testbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// How long a lease lasts.
    pub lease: Nanos,
    /// How long a lease cache's own lease lasts.
    pub cache_lease: Nanos,
    /// Pause between a renewal and the next.
    pub renew_every: Nanos,
    /// The longest pause between two increments of a process's heartbeat.
    pub heartbeat_every: Nanos,
    /// Pause between two READs of a successor's heartbeat.
    pub heartbeat_period: Nanos,
    /// The assumed drift of a clock, in parts per million.
    pub drift_ppm: u32,
}

impl Testbed {
    /// One of [`BUILTIN`].
    pub fn builtin(name: &str) -> Result<Self, FileError> {
        let (text, origin) = TESTBEDS.text(name)?;
        Self::parse(text, &origin)
    }

    /// Reads and checks TOML. `origin` names the source in errors; no file is opened.
    pub fn parse(text: &str, origin: &str) -> Result<Self, FileError> {
        read::read(text, origin)
    }

    /// A built-in testbed, or a file if `name_or_path` has a `/` or ends in `.toml`.
    pub fn load(name_or_path: &str) -> Result<Self, FileError> {
        let (text, origin) = TESTBEDS.load(name_or_path)?;
        Self::parse(&text, &origin)
    }

    /// All parameters with their values and sources, in the order of the reference.
    pub fn parameters(&self) -> Vec<Parameter> {
        keys::parameters(self)
    }

    /// The same testbed with kernels that report a death when the signal is sent. The notice at
    /// exit time becomes the proof, so a proof comes as much later.
    #[must_use]
    pub fn with_early_notice(mut self) -> Self {
        let rest: Vec<_> = self.model.notice.points().to_vec();
        let early = &self.signal;
        // Both times belong to the same death: a slow kill delays both.
        let proof = rest.into_iter().map(|(at, exit)| (at, exit.saturating_sub(early.at(at)))).collect();
        self.model.proof = rising(proof);
        self.model.notice = self.signal.clone();
        self
    }
}

/// The difference of two distributions as one; it never decreases.
fn rising(mut points: Vec<(u32, Nanos)>) -> Quantiles {
    let mut least = Nanos::ZERO;
    for (_, span) in &mut points {
        least = least.max(*span);
        *span = least;
    }
    Quantiles::new(points).unwrap_or_else(|_| Quantiles::fixed(least))
}
