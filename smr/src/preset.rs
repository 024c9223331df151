//! What a preset is made of: a detector, which says who should lead, and a guard, which keeps a deposed
//! leader from answering. [`Views`] and [`Active`] rely on the membership for both.

use crate::area::Area;
use crate::config::Config;
use crate::direct::Prefix;
use crate::follow::{Header, Places};
use crate::members;
use crate::position::Term;
use core::fmt::Debug;
use core::hash::Hash;
use obol_fabric::{Address, Fabric, Incarnation, Instant, LinkError, Nanos, ViewId};
use obol_membership::View;

/// Who should lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leadership {
    /// The replica.
    pub leader: Incarnation,
    pub at: Address,
    /// A term that no other leader has; higher than those of earlier leaders.
    pub term: Term,
}

/// What a replica tells a detector that looks at others by itself.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    pub(crate) area: Area,
    /// Interval of its looks.
    pub(crate) every: Nanos,
    /// Itself in the newest view; `None` if it is not a member.
    pub(crate) own: Option<Incarnation>,
    /// Who votes, as far as it knows.
    pub(crate) config: &'a Config,
    /// Its log; 0 for none.
    pub(crate) log: u64,
    /// The newest term whose leader may write to it.
    pub(crate) granted: Term,
    /// The newest term in which it was excluded while it led.
    pub(crate) lost: Term,
    /// What its replication plane has done.
    pub(crate) work: Work,
    pub(crate) leads: bool,
    /// It may lead: it votes, and its log has no hole.
    pub(crate) stands: bool,
    /// What its guard knows of elections.
    pub(crate) election: Election,
}

/// What a guard by which replicas elect their leader knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Election {
    /// The newest term.
    pub(crate) term: Term,
    /// Heartbeats of leaders that are not outdated, and of those that are, that have come.
    pub(crate) beats: u64,
    pub(crate) stale: u64,
    /// Votes that this replica has given to others.
    pub(crate) votes: u64,
    /// Requests for its vote that it did not consider, because it knew of a leader.
    pub(crate) ignored: u64,
    /// The leader of the newest of these heartbeats.
    pub(crate) leader: Option<Leadership>,
}

/// What a guard needs for its turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub(crate) area: Area,
    /// Interval of heartbeats.
    pub(crate) every: Nanos,
    /// The detector knows of a leader.
    pub(crate) trusts: bool,
    /// The replica's log.
    pub(crate) prefix: Prefix,
}

/// What a leader needs to answer a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reads {
    /// A lease: [`Guard::look`].
    Leased,
    /// Nothing but a committed entry confirms that this leader was not excluded: so each query is one,
    /// as with Mu.
    Logged,
    /// The guard confirms it, for all queries that have come before it began to: [`Guard::confirm`].
    Confirmed,
}

/// What the replication plane of a replica (Mu, 3.1) has done, for the background plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Work {
    pub(crate) turns: u64,
    /// How far it is with what it has begun; `None` if it has completed all of it.
    pub(crate) pending: Option<u64>,
}

/// What the other replicas of the view have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Some were not looked at yet.
    Unknown,
    HaveLog,
    /// None has a log. One may begin one, and this replica may not, or is younger.
    MayFound,
    /// None has a log, and none is to begin one before this replica does.
    HaveNothing,
}

impl Others {
    /// From the headers of all other replicas of the view, as far as they were READ. `own` is this one,
    /// and whether it may begin a log.
    pub(crate) fn of(
        (own, may_bootstrap): (Incarnation, bool),
        headers: &[(Incarnation, Option<Header>)],
    ) -> Self {
        let known = || headers.iter().filter_map(|(who, header)| Some((*who, (*header)?)));
        if known().any(|(_, header)| header.log != 0) {
            Self::HaveLog
        } else if known().count() < headers.len() {
            Self::Unknown
        } else if known().any(|(who, header)| header.may_bootstrap && (!may_bootstrap || who < own)) {
            Self::MayFound
        } else {
            Self::HaveNothing
        }
    }
}

/// Finds out who should lead.
pub trait Detector: Clone + Debug + Default + Eq + Hash {
    /// Views decide it; otherwise [`Detector::poll`] does.
    const OF_VIEWS: bool;

    /// Installs a newer view.
    fn install(&mut self, view: &View);
    /// Who should lead now, as far as this replica knows.
    fn leadership(&self) -> Option<Leadership>;
    /// The leader to which this replica reports while it does not lead.
    fn leader(&self) -> Option<(Incarnation, Address)> {
        self.leadership().map(|leadership| (leadership.leader, leadership.at))
    }
    /// The voters that it takes for failed: others READ this.
    fn failed(&self) -> Places {
        Places::default()
    }
    /// Whether it knows of a leader that runs.
    fn trusts(&self) -> bool {
        true
    }
    /// Whether another replica has a log or may begin one. `own` is this one, and whether it may.
    fn others(&self, _own: (Incarnation, bool)) -> Others {
        Others::Unknown
    }
    /// Does what is due. Returns whether what [`Detector::leadership`] says has changed.
    fn poll<F: Fabric>(&mut self, _now: Instant, _known: &Known<'_>, _fabric: &mut F) -> bool {
        false
    }
    /// A READ that it posted ended.
    fn on_read(&mut self, _argument: u32, _result: Result<&[u8], LinkError>) {}
    /// Plants a bug.
    #[cfg(feature = "mutants")]
    fn plant(&mut self, _mutant: crate::Mutant) {}
}

/// What a leader may do with what it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Commit what a majority has in memory: every later leader will find it.
    pub commit: bool,
    /// Send the replies of committed commands: no earlier leader answers a query any more.
    pub answer: bool,
    /// Send what was read from its state: no later leader has answered anything.
    pub read: bool,
}

impl Look {
    /// All or nothing.
    pub const fn all(may: bool) -> Self {
        Self { commit: may, answer: may, read: may }
    }
}

/// Excludes the leaders of earlier terms.
pub trait Guard: Clone + Debug + Default + Eq + Hash {
    /// Which guard it is: a part of the log's identity, because all replicas of a log need the same.
    const KIND: u8;
    /// A leader whose WRITE is refused was excluded.
    const REVOKES: bool;
    /// Each replica has one log for all leaders, as in DARE, and a successor continues from its own,
    /// which its voters have found recent enough.
    const DIRECT: bool = false;
    /// What a leader needs to answer a query.
    const READS: Reads = Reads::Leased;

    /// Installs a newer view, and this replica's incarnation in it.
    fn install(&mut self, view: &View, own: Option<Incarnation>);
    /// Begins to exclude the leaders before this term, as its leader.
    fn seize<F: Fabric>(&mut self, term: Term, fabric: &mut F);
    /// Leads no more, and takes over no more.
    fn release(&mut self) {}
    /// It has seized a majority, and leads.
    fn elected(&mut self) {}
    /// Does what is due, whether this replica leads or not.
    fn poll<F: Fabric>(&mut self, _now: Instant, _turn: &Turn, _fabric: &mut F) {}
    /// A change of permissions that it posted ended.
    fn on_permit<F: Fabric>(&mut self, _result: Result<(), LinkError>, _area: Area, _fabric: &mut F) {}
    /// Whether no earlier leader commits anything by this replica's memory any more. READs of it that
    /// are posted after this see all that was committed by it.
    fn seized<F: Fabric>(&self, at: Address, fabric: &F) -> bool;
    /// Whether this leader may begin to send its log to this replica.
    fn may_feed(&self, _at: Address) -> bool {
        true
    }
    /// What this leader may do now: what completed before this call was done before it was excluded,
    /// or was never done. `reads`: it has read its state for answers.
    fn look<F: Fabric>(&mut self, reads: bool, fabric: &F) -> Look;
    /// What has to be confirmed before a query that is taken now is answered: see [`Reads::Confirmed`].
    fn ticket(&self) -> u64 {
        0
    }
    fn confirmed(&self) -> u64 {
        u64::MAX
    }
    /// Begins to confirm what has not been, unless that is under way.
    fn confirm<F: Fabric>(&mut self, _now: Instant, _voters: &[Address], _area: Area, _fabric: &mut F) {}
    /// A READ that it posted ended.
    fn on_read(&mut self, _now: Instant, _argument: u32, _result: Result<&[u8], LinkError>) {}
    /// What it knows of elections.
    fn election(&self) -> Election {
        Election { term: self.granted(), ..Election::default() }
    }
    /// The newest term whose leader may write to this replica; 0 if that is not restricted.
    fn granted(&self) -> Term {
        Term(0)
    }
    /// Whether the fabric can do what this guard needs, as far as is known.
    fn is_supported(&self) -> bool {
        true
    }
    /// Plants a bug.
    #[cfg(feature = "mutants")]
    fn plant(&mut self, _mutant: crate::Mutant) {}
}

/// The oldest replica in the view leads. A process that was excluded returns as a younger one, so
/// the oldest replica stays the oldest until it leaves: leadership never passes to another one and
/// back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Views {
    leadership: Option<Leadership>,
}

impl Detector for Views {
    const OF_VIEWS: bool = true;

    /// The term is the base of the first view in which this replica sees the leader lead. A change
    /// of the oldest replica is a change of the apps, so the views of two leaders never have the
    /// same base, and the later leader's is higher.
    fn install(&mut self, view: &View) {
        let oldest = members::replicas(view).next();
        let known = self.leadership;
        self.leadership = oldest.map(|oldest| match known {
            Some(leadership) if leadership.leader == oldest.incarnation => leadership,
            _ => Leadership { leader: oldest.incarnation, at: oldest.address, term: Term(view.base.0) },
        });
    }

    fn leadership(&self) -> Option<Leadership> {
        self.leadership
    }
}

/// The lease and the fence of the membership: while a view is active, no earlier leader's is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Active {
    view: ViewId,
}

impl Guard for Active {
    const KIND: u8 = 0;
    const REVOKES: bool = false;

    fn install(&mut self, view: &View, _own: Option<Incarnation>) {
        self.view = view.id;
    }

    /// The coordinators have done it: they decided the view, and raise the fences.
    fn seize<F: Fabric>(&mut self, _term: Term, _fabric: &mut F) {}

    fn seized<F: Fabric>(&self, _at: Address, fabric: &F) -> bool {
        fabric.is_active(self.view)
    }

    fn look<F: Fabric>(&mut self, _reads: bool, fabric: &F) -> Look {
        Look::all(fabric.is_active(self.view))
    }
}
