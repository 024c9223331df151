//! What is known of a process of a cluster of several hosts that is not seen alive. Of other hosts
//! only members are READ, so the newest view says why one is not seen.

use crate::Process;
use crate::keys::examine_keys;
use obol_fabric::{Incarnation, ViewId};
use obol_identity::Duty;
use obol_membership::View;
use obol_node::Network;
use std::collections::BTreeMap;
use std::path::Path;

/// Why an expected process is not seen alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Absence {
    /// It has ended.
    Down,
    /// It left on request.
    Left,
    /// It was removed as failed by this view; it may run.
    Removed(ViewId),
    /// It is not a member, and the newest view does not mention it; it may run.
    NoMember,
    /// Its memory cannot be read, and no view says that it is gone.
    Unseen,
    /// This host, where it is, does not answer, and others do; it may run.
    Silent(u8),
}

/// What is known of processes that are not seen alive.
pub(crate) struct Known<'a> {
    /// The rows of this host's processes, and of other hosts' that could be read.
    pub(crate) here: &'a [Process],
    pub(crate) elsewhere: &'a [Process],
    /// The newest view.
    pub(crate) view: Option<&'a View>,
    /// The last life of a name, if it left and is not back; views forget that.
    pub(crate) leaver: &'a dyn Fn(&str) -> Option<Incarnation>,
    /// Whether a process belongs to this host, as its deployment says.
    pub(crate) is_of_this_host: &'a dyn Fn(&str) -> bool,
    /// Whether `obol up` notes on this host who left. Where other supervisors start processes, what they
    /// and the views say of it counts.
    pub(crate) notes_leaves: bool,
}

impl Known<'_> {
    /// Whether the process with these rows of this host has left.
    fn has_left<'p>(&self, name: &str, mut rows: impl Iterator<Item = &'p Process> + Clone) -> bool {
        if self.notes_leaves {
            return false;
        }
        let departed = self.view.iter().flat_map(|view| &view.departed);
        let by_view = departed.filter(|d| d.name.as_str() == name).max_by_key(|d| d.incarnation);
        let left = by_view.map_or_else(|| (self.leaver)(name), |last| last.left.then_some(last.incarnation));
        // A later life that was never a member has no incarnation. Nor has a program whose agent has ended,
        // and no later life is in a seat there.
        let agent_lives =
            |p: &Process| self.here.iter().any(|q| q.region == p.region && q.seat == 0 && q.alive);
        let ended_with_agent =
            |p: &Process| p.seat != 0 && p.incarnation == Incarnation::NONE && !agent_lives(p);
        let newest = rows.clone().max_by_key(|p| (p.process.started, p.incarnation));
        let is_its = |p: &Process, left| p.incarnation == left || ended_with_agent(p);
        newest.zip(left).is_some_and(|(p, left)| is_its(p, left)) || rows.all(|p| p.left)
    }
}

impl Absence {
    /// That of a process of any host, by what is known.
    pub(crate) fn of(name: &str, known: &Known<'_>) -> Self {
        let named = |p: &&Process| p.name.as_str() == name && !p.is_missing();
        let mut rows = known.here.iter().filter(named).peekable();
        if rows.peek().is_some() {
            return if known.has_left(name, rows) { Self::Left } else { Self::Down };
        }
        let absence = Self::elsewhere(name, known);
        let ended = matches!(absence, Self::Removed(_) | Self::NoMember);
        // All processes of this host are seen.
        if ended && (known.is_of_this_host)(name) { Self::Down } else { absence }
    }

    /// The same of one that has no row of this host.
    fn elsewhere(name: &str, known: &Known<'_>) -> Self {
        let mut read =
            known.elsewhere.iter().filter(|p| p.name.as_str() == name && !p.is_missing()).peekable();
        if read.peek().is_some() {
            return if read.all(|p| p.left) { Self::Left } else { Self::Down };
        }
        let Some(view) = known.view else { return Self::Unseen };
        if view.members.iter().any(|m| m.name.as_str() == name) {
            return Self::Unseen;
        }
        let lives = view.departed.iter().filter(|d| d.name.as_str() == name);
        match lives.max_by_key(|d| d.incarnation) {
            Some(last) if last.left => Self::Left,
            Some(last) => Self::Removed(last.at),
            None if (known.leaver)(name).is_some() => Self::Left,
            None => Self::NoMember,
        }
    }

    /// The same of a program, which leaves with its agent.
    pub(crate) fn with_agent(name: &str, agent: Option<&str>, known: &Known<'_>) -> Self {
        let absence = Self::of(name, known);
        let follows = matches!(absence, Self::Removed(_) | Self::NoMember);
        let left = |agent| Self::of(agent, known) == Self::Left;
        if follows && agent.is_some_and(left) { Self::Left } else { absence }
    }

    /// In words, for this number of processes.
    pub(crate) fn text(self, of: usize) -> String {
        match self {
            Self::Down => "down".to_owned(),
            Self::Left => "left".to_owned(),
            Self::Removed(view) => format!("not a member: removed as failed by view {view}"),
            Self::NoMember => "not a member".to_owned(),
            Self::Unseen => "not seen from this host".to_owned(),
            Self::Silent(_) => {
                let whose = if of == 1 { "its" } else { "their" };
                format!("cannot be read: {whose} host does not answer")
            }
        }
    }
}

/// How these processes ended, as far as it is known: once if they ended alike.
pub(crate) fn shown_fates(names: &[&str], fates: &BTreeMap<String, String>) -> String {
    let known: Vec<(&str, &String)> =
        names.iter().filter_map(|name| Some((*name, fates.get(*name)?))).collect();
    let Some((_, first)) = known.first() else { return String::new() };
    if known.len() == names.len() && known.iter().all(|(_, how)| how == first) {
        return format!(": {first}");
    }
    let each: Vec<String> = known.iter().map(|(name, how)| format!("{name}: {how}")).collect();
    format!(" ({})", each.join("; "))
}

/// Why processes of other hosts that do not answer may run all the same: this host has no keys by which
/// it could reach them, or it reaches none. `silent` says of each whether it does not answer.
pub(crate) fn why_silent(network: &Network, silent: impl Iterator<Item = bool>) -> Option<String> {
    let silent: Vec<bool> = silent.collect();
    if !silent.contains(&true) {
        return None;
    }
    let unusable = network.keys().and_then(|keys| unusable(keys, network));
    let none_answers = || "none of them answers: they are down, or this host is cut off from them".to_owned();
    unusable.or_else(|| (!silent.contains(&false)).then(none_answers))
}

/// Why no other host accepts the keys of this one from what reads there, if so.
fn unusable(keys: &Path, network: &Network) -> Option<String> {
    let (valid_for, fault) = examine_keys(keys, network, &[Duty::Observer]);
    let expired = || {
        format!(
            "the certificate of this host in {} is not valid now, so no other host accepts a connection; `obol host keys` makes new ones",
            keys.display()
        )
    };
    fault.or_else(|| valid_for.is_none().then(expired))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::missed::{self, MissedReader};
    use crate::reason::Reason;
    use obol_fabric::{Address, Incarnation, Name, Nanos};
    use obol_membership::Kind;
    use obol_membership::view::Departed;
    use obol_node::network::Fabric;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    /// A row of a process whose memory was read.
    fn row(called: &str, left: bool) -> Process {
        let process = obol_fabric::host::Process { pid: 7, started: 8 };
        Process { process, left, ..Process::missing(name(called), Kind::App) }
    }

    /// A view with coord-1 and these departed.
    fn view(departed: &[(&str, u64, bool)]) -> View {
        let mut view = View::genesis(&[(name("coord-1"), Address::region(1))], Nanos(1), Nanos(1));
        view.departed = departed
            .iter()
            .map(|(called, at, left)| Departed {
                token: *at,
                incarnation: Incarnation(*at),
                name: name(called),
                kind: Kind::App,
                at: ViewId(*at),
                left: *left,
            })
            .collect();
        view
    }

    fn nobody(_: &str) -> Option<Incarnation> {
        None
    }

    /// What is known on a host that notes who left, of processes of any host.
    fn known<'a>(here: &'a [Process], elsewhere: &'a [Process], view: Option<&'a View>) -> Known<'a> {
        Known { here, elsewhere, view, leaver: &nobody, is_of_this_host: &|_| false, notes_leaves: true }
    }

    #[test]
    fn the_newest_view_says_why_a_process_of_another_host_is_not_seen() {
        let view = view(&[("app-2", 4, true), ("app-2", 7, false), ("app-3", 5, false), ("app-3", 9, true)]);
        let of = |called| Absence::of(called, &known(&[], &[], Some(&view)));
        assert_eq!(of("coord-1"), Absence::Unseen, "a member");
        assert_eq!(of("app-2"), Absence::Removed(ViewId(7)));
        assert_eq!(of("app-3"), Absence::Left);
        assert_eq!(of("app-4"), Absence::NoMember);
        assert_eq!(Absence::of("app-4", &known(&[], &[], None)), Absence::Unseen, "no view is known");
    }

    #[test]
    fn a_process_whose_memory_was_read_is_down_unless_it_left() {
        let view = view(&[("app-2", 7, false)]);
        let of = |here: &[Process], elsewhere: &[Process]| {
            Absence::of("app-2", &known(here, elsewhere, Some(&view)))
        };
        assert_eq!(of(&[], &[row("app-2", false)]), Absence::Down);
        assert_eq!(of(&[], &[row("app-2", true)]), Absence::Left);
        assert_eq!(of(&[row("app-2", true)], &[]), Absence::Down, "this host notes who left");
        let missing = Process::missing(name("app-2"), Kind::App);
        assert_eq!(of(&[missing], &[]), Absence::Removed(ViewId(7)), "a row of no process");
    }

    #[test]
    fn who_left_a_prepared_host_is_not_down_there() {
        let view = view(&[("app-2", 7, true), ("app-3", 8, false), ("app-5", 9, false)]);
        let life = |called, who, left| Process { incarnation: Incarnation(who), ..row(called, left) };
        let of = |called, here: &[Process]| {
            let known = Known { notes_leaves: false, ..known(here, &[], Some(&view)) };
            Absence::of(called, &known)
        };
        // Its agent left, and it with it, which only the view says.
        assert_eq!(of("app-2", &[life("app-2", 7, false)]), Absence::Left);
        assert_eq!(of("app-4", &[life("app-4", 3, true)]), Absence::Left, "the view has forgotten it");
        assert_eq!(of("app-3", &[life("app-3", 8, false)]), Absence::Down, "it failed");
        let mut later = Process { region: 5, seat: 1, ..life("app-2", 0, false) };
        later.process.started = 9;
        let agent = Process { region: 5, alive: true, ..life("node-2", 12, false) };
        let rows = [life("app-2", 7, true), later, agent];
        assert_eq!(of("app-2", &rows), Absence::Down, "it was started again, and did not join");
        // Without its agent it has no incarnation any more.
        let [_, later, agent] = rows;
        let rows = [later.clone(), Process { alive: false, ..agent }];
        assert_eq!(of("app-2", &rows), Absence::Left, "with its agent");
        let failed = Process { name: name("app-3"), ..later };
        assert_eq!(of("app-3", &[failed]), Absence::Down, "it failed with its agent");
    }

    #[test]
    fn who_left_is_gone_also_when_the_views_have_forgotten_it() {
        let view = view(&[]);
        let left = |called: &str| (called == "node-2").then_some(Incarnation(5));
        let known = |here| Known { leaver: &left, notes_leaves: false, ..known(here, &[], Some(&view)) };
        assert_eq!(Absence::of("node-2", &known(&[])), Absence::Left);
        assert_eq!(Absence::of("node-3", &known(&[])), Absence::NoMember);
        let here = [Process { incarnation: Incarnation(5), ..row("node-2", false) }];
        assert_eq!(Absence::of("node-2", &known(&here)), Absence::Left);
    }

    #[test]
    fn who_left_under_a_generated_name_stays_left_on_its_own_host() {
        const POD: &str = "shop-7d9f-bbbbb";
        let dir = tempfile::tempdir().expect("made");
        let left = View { id: ViewId(9), ..view(&[(POD, 7, true)]) };
        missed::learn(dir.path(), &left, &missed::Regions::new(), 1).expect("written");
        // Views remember those that departed within their last 32.
        let later = View { id: ViewId(90), ..view(&[]) };
        let mut reader = MissedReader::new(dir.path());
        assert_eq!(reader.of(&later, 2).count(), 0);
        let leaver = |name: &str| reader.leaver(name);
        // It left with its agent, so that its seat does not say it.
        let seat = Process { region: 5, seat: 1, ..row(POD, false) };
        let agent = Process { region: 5, ..row("node-2", true) };
        let rows = [seat, agent];
        let known = Known { leaver: &leaver, notes_leaves: false, ..known(&rows, &[], Some(&later)) };
        assert_eq!(Absence::of(POD, &known), Absence::Left);
    }

    #[test]
    fn who_is_of_this_host_and_has_no_process_is_down() {
        let view = view(&[("app-2", 7, false), ("app-3", 8, true)]);
        let of = |called| {
            let known = Known { is_of_this_host: &|_| true, ..known(&[], &[], Some(&view)) };
            Absence::of(called, &known)
        };
        assert_eq!((of("app-1"), of("app-2")), (Absence::Down, Absence::Down));
        assert_eq!((of("app-3"), of("coord-1")), (Absence::Left, Absence::Unseen));
    }

    #[test]
    fn a_program_leaves_with_its_agent_and_fails_without_it() {
        let view = view(&[("node-2", 7, true), ("app-2", 7, false), ("app-3", 8, false)]);
        let of = |app, agent| Absence::with_agent(app, Some(agent), &known(&[], &[], Some(&view)));
        assert_eq!(of("app-2", "node-2"), Absence::Left);
        assert_eq!(of("app-3", "node-3"), Absence::Removed(ViewId(8)));
    }

    #[test]
    fn silent_hosts_are_in_doubt_if_this_one_has_no_keys_or_none_answers() {
        let empty = tempfile::tempdir().expect("made");
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let over_rdma = Network::local(1, address, 1, 1);
        let without_keys =
            Network { fabric: Fabric::Ip { keys: empty.path().to_owned() }, ..over_rdma.clone() };
        let why = |network, silent: &[bool]| why_silent(network, silent.iter().copied());
        assert_eq!(why(&over_rdma, &[false, true]), None, "others can be reached");
        assert!(why(&over_rdma, &[true, true]).is_some_and(|why| why.contains("cut off")));
        assert!(why(&without_keys, &[false, true]).is_some_and(|why| why.contains("obol host keys")));
        assert_eq!(why(&without_keys, &[false, false]), None, "all were read");
        assert_eq!(why(&without_keys, &[]), None, "there are no others");
    }

    fn texts(reasons: Vec<Reason>) -> Vec<String> {
        reasons.into_iter().map(|reason| reason.text).collect()
    }

    #[test]
    fn each_absence_is_one_reason() {
        let absent = [
            ("app-1", Absence::Unseen),
            ("app-2", Absence::Removed(ViewId(7))),
            ("node-2", Absence::Removed(ViewId(7))),
        ];
        let absent = absent.map(|(name, absence)| (name.to_owned(), absence)).into();
        assert_eq!(
            texts(Absence::reasons(["node-2", "app-1", "app-2", "app-9"], &absent, &BTreeMap::new())),
            [
                "app-9 down",
                "node-2, app-2 not a member: removed as failed by view 7",
                "app-1 not seen from this host"
            ]
        );
    }

    #[test]
    fn members_of_a_silent_host_are_one_reason_and_those_of_another_one_are_another() {
        let silent = [("coord-2", 2), ("node-3", 3), ("coord-3", 3)];
        let absent = silent.map(|(name, host)| (name.to_owned(), Absence::Silent(host))).into();
        assert_eq!(
            texts(Absence::reasons(["coord-3", "coord-2", "node-3"], &absent, &BTreeMap::new())),
            [
                "coord-2 cannot be read: its host does not answer",
                "coord-3, node-3 cannot be read: their host does not answer"
            ]
        );
    }

    #[test]
    fn who_is_down_is_shown_with_how_it_ended_where_that_is_known() {
        let fates = [
            ("app-1", "killed by SIGKILL"),
            ("app-2", "killed by SIGKILL"),
            ("app-3", "exit status 3"),
            ("app-5", "killed by SIGSEGV"),
        ];
        let fates = fates.map(|(name, how)| (name.to_owned(), how.to_owned())).into();
        let absent = [("app-5".to_owned(), Absence::Removed(ViewId(7)))].into();
        let of = |names: &[&str]| texts(Absence::reasons(names.iter().copied(), &absent, &fates));
        assert_eq!(of(&["app-1", "app-2"]), ["app-1, app-2 down: killed by SIGKILL"]);
        let each = "app-1, app-3, app-4 down (app-1: killed by SIGKILL; app-3: exit status 3)";
        assert_eq!(of(&["app-1", "app-3", "app-4"]), [each]);
        assert_eq!(of(&["app-4"]), ["app-4 down"]);
        assert_eq!(
            of(&["app-5"]),
            ["app-5 not a member: removed as failed by view 7"],
            "its host may not know"
        );
    }
}
