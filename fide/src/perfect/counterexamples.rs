//! How HSUC and HUC break outside of their assumptions: the shortest schedules.

use super::{Explored, Hsuc, Huc, Machine, Options, Setup, Weakness, explore};
use serde::Serialize;

/// States that a search may visit.
const STATES_MAX: usize = 1_000_000;

/// A search with one assumption given up.
#[derive(Serialize)]
pub struct Counterexample {
    pub algorithm: &'static str,
    /// What is given up.
    pub assumption: &'static str,
    /// Among how many processes.
    pub processes: u8,
    /// States that were visited.
    pub states: usize,
    /// Whether the search ended because nothing was left to visit.
    pub complete: bool,
    /// The property that breaks; absent if none does in the states visited.
    pub broken: Option<String>,
    /// The shortest schedule.
    pub schedule: Vec<String>,
}

impl Counterexample {
    /// What the search has found.
    pub fn finding(&self) -> String {
        match &self.broken {
            Some(broken) => format!("breaks {broken}"),
            None if self.complete => "holds in every state".to_owned(),
            None => "holds in these states, which are not all".to_owned(),
        }
    }
}

fn search<M: Machine>(
    algorithm: &'static str,
    processes: u8,
    weakness: Option<Weakness>,
    options: Options,
) -> Counterexample {
    let setup = Setup { processes, instances: 1, crashes: 1, weakness, options };
    let Explored { states, complete, disagreement, stalled } = explore::<M>(&setup, STATES_MAX);
    let broken = disagreement.or(stalled);
    let assumption = match weakness {
        Some(weakness) => weakness.name(),
        None if options.printed => "none: OSRB as printed",
        None => "none",
    };
    let schedule = broken.iter().flat_map(|broken| broken.path.iter().map(ToString::to_string)).collect();
    Counterexample {
        algorithm,
        assumption,
        processes,
        states,
        complete,
        broken: broken.map(|broken| broken.what),
        schedule,
    }
}

/// Searches with each assumption given up, and with none.
pub fn counterexamples() -> Vec<Counterexample> {
    let kept = Options::default();
    let mut found = vec![
        search::<Huc>("HUC", 3, None, kept),
        search::<Hsuc>("HSUC", 3, None, kept),
        search::<Hsuc>("HSUC", 3, None, Options { printed: true }),
    ];
    for weakness in Weakness::ALL {
        found.push(search::<Huc>("HUC", 2, Some(weakness), kept));
        found.push(search::<Hsuc>("HSUC", 3, Some(weakness), kept));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_searched_to_its_end_or_is_broken_is_not_said_to_hold_in_every_state() {
        let found = |complete, broken: Option<&str>| {
            let broken = broken.map(str::to_owned);
            let (algorithm, assumption) = ("HUC", "none");
            let schedule = Vec::new();
            let one =
                Counterexample { algorithm, assumption, processes: 3, states: 9, complete, broken, schedule };
            one.finding()
        };
        assert_eq!(found(true, None), "holds in every state");
        assert!(!found(false, None).contains("every state"));
        for complete in [false, true] {
            assert_eq!(found(complete, Some("agreement")), "breaks agreement");
        }
        // The limit, and a broken property, both leave states unvisited.
        let setup =
            Setup { processes: 3, instances: 1, crashes: 1, weakness: None, options: Options::default() };
        assert!(!explore::<Huc>(&setup, 10).complete);
    }
}
