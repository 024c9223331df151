//! Drills of a replicated store: what happens to its replicas, one thing after the other, while clients
//! write (`obol drill smr --script`).

use super::SCHEMA;
use super::read::id;
use obol_config::{BuiltIn, FileError, Problem, Problems, Section};
use obol_fabric::Nanos;
use obol_observe::named_enum;

/// Bounds of a step's time: shorter ones say nothing of what follows a change.
const TIME: (Nanos, Nanos) = (Nanos::from_millis(100), Nanos::from_secs(60));
/// The most voters that a log can have; fewer than three survive no death.
const VOTERS: (u32, u32) = (3, 7);
/// The presets of `obol smr server`.
const PRESETS: [(&str, &str); 4] =
    [("view", "view"), ("mu", "mu"), ("mu+views", "mu+views"), ("dare", "dare")];

static SHIPPED: BuiltIn = BuiltIn {
    kind: "drill of a store",
    folder: "drills/stores",
    texts: &[("dare-figure9a", include_str!("../../drills/stores/dare-figure9a.toml"))],
};

named_enum! {
    /// What a step does.
    Change {
        /// There are to be one more voter, and a replica starts.
        Grow = "grow",
        /// A replica starts, in the place of one that is gone.
        Join = "join",
        KillLeader = "kill-leader",
        /// Another replica is killed.
        KillFollower = "kill-follower",
        /// There is to be one voter less, and a replica is stopped that does not lead.
        Shrink = "shrink",
        /// The same, and the leader is stopped.
        ShrinkLeader = "shrink-leader",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreStep {
    /// What happens, for people.
    pub name: String,
    /// What it does.
    pub change: Change,
    /// How long it lasts at least, until the next one.
    pub time: Nanos,
}

/// A drill of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreDrill {
    pub id: String,
    /// What it is about.
    pub title: String,
    /// How an earlier leader is excluded.
    pub preset: &'static str,
    /// Replicas at first, all of which vote.
    pub voters: u32,
    /// One after the other.
    pub steps: Vec<StoreStep>,
}

impl StoreDrill {
    /// A shipped drill, or a file if `name_or_path` has a `/` or ends in `.toml`.
    pub fn load(name_or_path: &str) -> Result<Self, FileError> {
        let (text, origin) = SHIPPED.load(name_or_path)?;
        Self::parse(&text, &origin)
    }

    /// Reads and checks a drill. `origin` names the text in errors.
    pub fn parse(text: &str, origin: &str) -> Result<Self, FileError> {
        obol_config::recover(text, origin, top)
    }
}

fn top(top: &mut Section<'_, '_>, problems: &mut Problems) -> Option<StoreDrill> {
    let head = top.needed_section("drill", problems);
    let head = head.and_then(|section| section.read(problems, self::head));
    let (mut steps, mut places) = (Vec::new(), Vec::new());
    for section in top.some_sections("step", problems) {
        let at = section.at;
        if let Some(step) = section.read(problems, step) {
            steps.push(step);
            places.push(at);
        }
    }
    top.need("step", "at least one step, [[step]]", (!steps.is_empty()).then_some(()));
    let drill = StoreDrill { steps, ..head? };
    if problems.is_empty()
        && let Err((at, found)) = possible(&drill)
    {
        let rule = "a store needs 3 to 7 voters, a majority of them, and room for one that joins";
        problems.add(places.get(at).copied().unwrap_or_default(), Problem::Conflict { rule, found });
    }
    Some(drill)
}

fn head(section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<StoreDrill> {
    section.schema(SCHEMA, problems);
    let id = id(section, problems);
    let id = section.need("id", "the drill's name", id);
    let title = section.line("title", problems);
    let title = section.need("title", "what the drill is about", title);
    let preset = section.choice("preset", &PRESETS, problems);
    let preset = section.need("preset", "a preset of `obol smr server`", preset);
    let voters = section.number("voters", VOTERS, problems);
    let voters = section.need("voters", "how many replicas vote at first", voters);
    Some(StoreDrill {
        id: id?,
        title: title?.value,
        preset: preset?.value,
        voters: voters?.value,
        steps: Vec::new(),
    })
}

fn step(section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<StoreStep> {
    let name = section.line("name", problems);
    let name = section.need("name", "what happens", name);
    let change = section.choice("change", Change::ALL, problems);
    let change = section.need("change", "what the step does", change);
    let time = section.span("for", TIME, problems);
    let time = section.need("for", "how long it lasts, such as \"1s\"", time);
    Some(StoreStep { name: name?.value, change: change?.value, time: time?.value })
}

/// Whether each step can take place; otherwise which cannot, and why.
fn possible(drill: &StoreDrill) -> Result<(), (usize, String)> {
    let (mut wanted, mut running) = (drill.voters, drill.voters);
    for (at, step) in drill.steps.iter().enumerate() {
        match step.change {
            Change::Grow => (wanted, running) = (wanted + 1, running + 1),
            Change::Join => running += 1,
            Change::KillLeader | Change::KillFollower => running -= 1,
            Change::Shrink | Change::ShrinkLeader => (wanted, running) = (wanted - 1, running - 1),
        }
        // Of two voters none may die.
        if !(VOTERS.0..=VOTERS.1).contains(&wanted) || running > wanted || running < VOTERS.0 - 1 {
            let found =
                format!("after {:?} there would be {wanted} voters, and {running} would run", step.name);
            return Err((at, found));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drill(voters: u32, changes: &[&str]) -> String {
        let head =
            format!("[drill]\nschema = 1\nid = \"a\"\ntitle = \"b\"\npreset = \"mu\"\nvoters = {voters}\n");
        let steps = changes.iter().map(|change| {
            format!("[[step]]\nname = \"{change} it\"\nchange = \"{change}\"\nfor = \"200ms\"\n")
        });
        head + &steps.collect::<String>()
    }

    #[test]
    fn the_shipped_drill_is_read() {
        let drill = StoreDrill::load("dare-figure9a").expect("it is valid");
        assert_eq!((drill.id.as_str(), drill.preset, drill.voters), ("dare-figure9a", "dare", 5));
        assert_eq!(drill.steps.len(), 12);
        assert!(StoreDrill::load("nothing").is_err());
    }

    #[test]
    fn a_drill_that_would_lose_the_store_is_refused() {
        for (voters, changes) in [
            (3, &["kill-leader", "join", "grow", "kill-follower", "shrink"][..]),
            (5, &["kill-leader", "kill-follower", "kill-follower", "join", "join", "join"]),
            (6, &["grow"]),
        ] {
            assert!(StoreDrill::parse(&drill(voters, changes), "it").is_ok(), "{voters}: {changes:?}");
        }
        for (voters, changes) in
            [(3, &["kill-leader", "kill-leader"][..]), (3, &["shrink"]), (3, &["join"]), (7, &["grow"])]
        {
            let error = StoreDrill::parse(&drill(voters, changes), "it").expect_err("refused").to_string();
            assert!(error.contains("a store needs 3 to 7 voters"), "{voters}: {changes:?}: {error}");
        }
    }

    #[test]
    fn all_faults_of_a_file_are_reported() {
        let text = drill(2, &["kill", "grow"]).replace("title", "titel").replace("200ms", "1ms");
        let error = StoreDrill::parse(&text, "it").expect_err("refused").to_string();
        for part in ["drill.titel", "drill.voters is 2", "kill-leader", "100ms"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
