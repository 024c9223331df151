//! Campaigns in shards, as a batch engine starts them: which seeds one shard runs, and one report
//! from the reports of all.

use super::report::{Report, Shard};
use std::io;

/// Variables in which batch engines tell a task its number, from 0 on, with the least number where
/// the engine lets its user choose it.
const INDEX_VARIABLES: [(&str, Option<&str>); 3] = [
    // Kubernetes: Jobs with completionMode Indexed.
    ("JOB_COMPLETION_INDEX", None),
    // Slurm: job arrays.
    ("SLURM_ARRAY_TASK_ID", Some("SLURM_ARRAY_TASK_MIN")),
    // Nomad: allocations of a group.
    ("NOMAD_ALLOC_INDEX", None),
];

/// What tells this program from every other build: its release, and the CRC-32 of its executable.
pub fn build() -> io::Result<String> {
    let program = std::fs::read("/proc/self/exe")?;
    Ok(format!("{} {:08x}", env!("CARGO_PKG_VERSION"), crc32fast::hash(&program)))
}

/// Why the seeds of a shard, or the report of all shards, cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    #[error("no task index in the environment: none of {} is set", variables())]
    NoIndex,
    #[error("{variable} is `{text}`, which is not a number")]
    NotANumber { variable: &'static str, text: String },
    #[error("task {index} of {shards}: tasks are numbered from 0 on")]
    NoSuchShard { index: u64, shards: u64 },
    #[error("{seeds} seeds are fewer than {shards} shards")]
    TooFewSeeds { seeds: u64, shards: u64 },
    #[error("no report")]
    NoReport,
    #[error("the report from seed {first} on has {seeds} seeds, and its campaign lacks some of them")]
    NoSuchSeeds { first: u64, seeds: u64 },
    #[error("no report has the seeds from {from} to {to}, which the campaign has")]
    Missing { from: u64, to: u64 },
    #[error("the reports from seed {first} on and from seed {other} on are of different campaigns")]
    Campaigns { first: u64, other: u64 },
    #[error("two reports have seed {seed}")]
    Overlap { seed: u64 },
    #[error(
        "the reports from seed {first} on and from seed {other} on are of different builds: {build} and {other_build}"
    )]
    Builds { first: u64, build: String, other: u64, other_build: String },
    #[error("the reports from seed {first} on and from seed {other} on list different paths")]
    Marks { first: u64, other: u64 },
}

fn variables() -> String {
    INDEX_VARIABLES.map(|(name, _)| name).join(", ")
}

impl Shard {
    /// Shard `index` of `shards` of a campaign, whose seeds end at a `u64`. Sizes differ by at most one seed.
    pub fn new(Self { first, seeds }: Self, index: u64, shards: u64) -> Result<Self, ShardError> {
        if index >= shards {
            return Err(ShardError::NoSuchShard { index, shards });
        }
        if seeds < shards {
            return Err(ShardError::TooFewSeeds { seeds, shards });
        }
        let (each, longer) = (seeds / shards, seeds % shards);
        Ok(Self { first: first + index * each + index.min(longer), seeds: each + u64::from(index < longer) })
    }

    /// The seed after the last.
    fn end(self) -> Result<u64, ShardError> {
        let Self { first, seeds } = self;
        first.checked_add(seeds).ok_or(ShardError::NoSuchSeeds { first, seeds })
    }
}

/// The index, from 0 on, that a batch engine has given to this task.
pub fn index_from(get: impl Fn(&str) -> Option<String>) -> Result<u64, ShardError> {
    let number = |variable: &'static str| {
        let number =
            |text: String| text.parse::<u64>().map_err(|_| ShardError::NotANumber { variable, text });
        get(variable).map(number).transpose()
    };
    for (variable, least) in INDEX_VARIABLES {
        if let Some(index) = number(variable)? {
            let least = least.map(number).transpose()?.flatten().unwrap_or(0);
            return Ok(index.saturating_sub(least));
        }
    }
    Err(ShardError::NoIndex)
}

/// One report from those of all shards: of one build and campaign, without gaps and overlaps. Their figures
/// come from files, so that sums saturate.
pub fn merge(mut reports: Vec<Report>) -> Result<Report, ShardError> {
    reports.sort_by_key(|report| report.first);
    let Some(one) = reports.first() else { return Err(ShardError::NoReport) };
    let mut all =
        Report { marks: one.marks.clone(), ..Report::empty(one.build.clone(), one.of.first, one.of) };
    for mark in &mut all.marks {
        (mark.seeds, mark.first) = (0, None);
    }
    let least = one.first;
    let (mut next, end) = (all.of.first, all.of.end()?);
    for report in reports {
        let Report { first, seeds, of, .. } = report;
        if of != all.of {
            return Err(ShardError::Campaigns { first: least, other: first });
        }
        let after = Shard { first, seeds }.end()?;
        if first < all.of.first || after > end {
            return Err(ShardError::NoSuchSeeds { first, seeds });
        }
        if first > next {
            return Err(ShardError::Missing { from: next, to: first - 1 });
        }
        if first < next {
            return Err(ShardError::Overlap { seed: first });
        }
        next = after;
        add(&mut all, report)?;
    }
    if next < end {
        return Err(ShardError::Missing { from: next, to: end - 1 });
    }
    Ok(all.conclude())
}

fn add(all: &mut Report, report: Report) -> Result<(), ShardError> {
    if report.build != all.build {
        return Err(ShardError::Builds {
            first: all.first,
            build: all.build.clone(),
            other: report.first,
            other_build: report.build,
        });
    }
    let alike = all.marks.iter().map(|m| &m.mark).eq(report.marks.iter().map(|m| &m.mark));
    if !alike {
        return Err(ShardError::Marks { first: all.first, other: report.first });
    }
    for (sum, mark) in all.marks.iter_mut().zip(report.marks) {
        sum.seeds = sum.seeds.saturating_add(mark.seeds);
        sum.first = [sum.first, mark.first].into_iter().flatten().min();
    }
    for step in report.clock_sweep {
        let sum = all.sweep_step(step.permille);
        sum.seeds = sum.seeds.saturating_add(step.seeds);
        sum.overlapped = sum.overlapped.saturating_add(step.overlapped);
    }
    for (sum, figure) in [
        (&mut all.seeds, report.seeds),
        (&mut all.failovers, report.failovers),
        (&mut all.simulated_ns, report.simulated_ns),
        (&mut all.violations, report.violations.max(report.failures.len() as u64)),
        (&mut all.canaries, report.canaries),
    ] {
        *sum = sum.saturating_add(figure);
    }
    all.wall_seconds += report.wall_seconds;
    all.cpu_seconds += report.cpu_seconds;
    all.recovery_permille_max = all.recovery_permille_max.max(report.recovery_permille_max);
    all.failures.extend(report.failures);
    Ok(())
}
