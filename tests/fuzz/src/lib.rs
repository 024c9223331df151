//! Fuzzing as ordinary tests, on a stable compiler: inputs are mutations of a kept corpus, the same
//! ones in every run.
//!
//! A target is a closure that takes an input, decodes it, uses what came out, and returns an
//! outcome: any number that distinguishes what happened, such as the kind of error. An input with an
//! outcome that no input had before becomes a parent of further ones, so a campaign goes deeper
//! where the program distinguishes more. The target knows the structure of its inputs: seeds are
//! valid, numbers are replaced in place by those at which arithmetic goes wrong, and checksums are
//! the target's to fix.
//!
//! | variable | meaning |
//! |---|---|
//! | `OBOL_FUZZ_SECONDS` | how long each target runs; without it, a fixed number of inputs |
//! | `OBOL_FUZZ_SEED` | another sequence of inputs |
//!
//! An input that makes the target panic is written to `target/fuzz/` and named. Once the fault is
//! repaired it goes into the corpus, where every run tries it first.

mod mutate;
pub mod recorded;
mod regions;
mod rng;

pub use mutate::Shape;
pub use regions::Regions;
pub use rng::Rng;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Inputs that found something new and are kept as parents.
const PARENTS_MAX: usize = 512;
/// No input gets longer than this.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// What is fuzzed: a name, what inputs look like, and those that are known.
#[derive(Debug)]
pub struct Target {
    name: &'static str,
    shape: Shape,
    inputs: u64,
    corpus: Vec<Vec<u8>>,
}

impl Target {
    /// A target without a corpus. `inputs` is how many a run tries, unless `OBOL_FUZZ_SECONDS` says
    /// how long it tries.
    pub const fn new(name: &'static str, shape: Shape, inputs: u64) -> Self {
        Self { name, shape, inputs, corpus: Vec::new() }
    }

    /// Adds an input to the corpus.
    #[must_use]
    pub fn with(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.corpus.push(input.into());
        self
    }

    /// Adds every file of a folder whose name ends so.
    ///
    /// # Panics
    ///
    /// If the folder cannot be read, or has no such file: a corpus that is not there tests
    /// nothing.
    #[must_use]
    pub fn with_files(mut self, folder: impl AsRef<Path>, ending: &str) -> Self {
        let folder = folder.as_ref();
        let files = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut files: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
        // Every run must see them in one order.
        files.sort();
        let before = self.corpus.len();
        for file in files.iter().filter(|file| file.to_string_lossy().ends_with(ending)) {
            let bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            self.corpus.push(bytes);
        }
        assert!(self.corpus.len() > before, "{}: no file ends with {ending}", folder.display());
        self
    }

    /// Tries the corpus as it is, and then mutations of it.
    ///
    /// # Panics
    ///
    /// As the target does, after the input has been written down.
    pub fn run(&self, mut target: impl FnMut(&[u8]) -> u64) {
        let seed = number("OBOL_FUZZ_SEED").unwrap_or(1);
        let seconds = number("OBOL_FUZZ_SECONDS").map(Duration::from_secs);
        let mut rng = Rng::new(seed ^ u64::from(crc32fast::hash(self.name.as_bytes())));
        let mut parents = self.corpus.clone();
        assert!(!parents.is_empty(), "{} has no corpus", self.name);
        let mut outcomes = BTreeSet::new();
        for input in &self.corpus {
            outcomes.insert(self.one(input, &mut target));
        }
        let began = Instant::now();
        let mut tried: u64 = 0;
        let goes_on = |tried| seconds.map_or(tried < self.inputs, |seconds| began.elapsed() < seconds);
        while goes_on(tried) {
            let mut input = self.shape.mutate(&parents, &mut rng);
            input.truncate(INPUT_BYTES_MAX);
            tried += 1;
            if outcomes.insert(self.one(&input, &mut target)) && parents.len() < PARENTS_MAX {
                parents.push(input);
            }
        }
        println!(
            "fuzz {}: {tried} inputs, {} outcomes, {} parents, {:.1} s",
            self.name,
            outcomes.len(),
            parents.len(),
            began.elapsed().as_secs_f64()
        );
    }

    fn one(&self, input: &[u8], target: &mut impl FnMut(&[u8]) -> u64) -> u64 {
        match catch_unwind(AssertUnwindSafe(|| target(input))) {
            Ok(outcome) => outcome,
            Err(panic) => {
                let kept = self.keep(input);
                eprintln!("fuzz {}: the input that did it is in {kept}", self.name);
                resume_unwind(panic)
            }
        }
    }

    fn keep(&self, input: &[u8]) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz");
        let file = folder.join(format!("{}-{:08x}", self.name, crc32fast::hash(input)));
        match std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, input)) {
            Ok(()) => file.display().to_string(),
            Err(error) => format!("no file ({error}): {input:02x?}"),
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

/// An outcome from anything that can be hashed.
pub fn outcome(of: impl std::hash::Hash) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A decoder with a fault that takes one field at its end and another one above a threshold.
    fn faulty(bytes: &[u8]) -> u64 {
        let Some((head, rest)) = bytes.split_first_chunk::<8>() else { return 0 };
        let Some((more, _)) = rest.split_first_chunk::<8>() else { return 1 };
        let (a, b) = (u64::from_le_bytes(*head), u64::from_le_bytes(*more));
        if a < 1_000 {
            return 2;
        }
        assert!(b.checked_add(32).is_some(), "overflow");
        3
    }

    #[test]
    fn a_fault_that_takes_two_numbers_is_found_from_a_harmless_input() {
        let target = Target::new("self", Shape::Bytes, 20_000).with([0; 24]);
        let found = catch_unwind(|| target.run(faulty));
        assert!(found.is_err(), "the planted fault was not found");
    }

    #[test]
    fn the_same_seed_tries_the_same_inputs() {
        let tried = || {
            let mut all = Vec::new();
            Target::new("same", Shape::Text, 200).with("a = 1\nb = \"x\"\n").run(|input| {
                all.push(input.to_vec());
                outcome(input.len())
            });
            all
        };
        assert_eq!(tried(), tried());
    }
}
