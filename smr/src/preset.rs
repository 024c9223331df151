//! What distinguishes presets: who should lead, and what keeps a deposed leader from answering.
//!
//! | preset | detector | guard |
//! |---|---|---|
//! | `view` | [`Views`] | [`Active`]: the lease and the fence of the membership |
//! | `mu+views` | [`Views`] | [`crate::Grants`]: the permission switch of Mu |
//! | `mu` | [`crate::PullScore`]: the detector of Mu | the same, and no lease |

use crate::area::Area;
use crate::config::Config;
use crate::grants::Grants;
use crate::log::Term;
use core::fmt::Debug;
use core::hash::Hash;
use derive_more::Display;
use obol_fabric::{Address, Fabric, Incarnation, Instant, LinkError, Nanos, ViewId};
use obol_membership::View;

/// A combination of a detector and a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display)]
pub enum Preset {
    /// Views say who leads, and lease and fence exclude the leader before.
    #[display("view")]
    View,
    /// Views say who leads, and the replicas exclude the leader before: they revoke its permission to
    /// write to them.
    #[display("mu+views")]
    MuViews,
    /// Replicas read counters in each other's memory to find out who should lead, and exclude the
    /// leader before as with `mu+views`. Reads are replicated.
    #[display("mu")]
    Mu,
}

impl Preset {
    /// The preset of a log; `None` for one that this version does not know.
    pub fn of(log: u64) -> Option<Self> {
        let [_, kind, ..] = log.to_le_bytes();
        let all = [
            (Active::KIND, Self::View),
            (Grants::<true>::KIND, Self::MuViews),
            (Grants::<false>::KIND, Self::Mu),
        ];
        all.into_iter().find_map(|(known, preset)| (known == kind).then_some(preset))
    }
}

/// Who should lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reign {
    /// The replica.
    pub leader: Incarnation,
    /// Its address.
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
}

/// What the replication plane of a replica (Mu, 3.1) has done, for the background plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Work {
    /// Its turns.
    pub(crate) turns: u64,
    /// How far it is with what it has begun; `None` if it has completed all of it.
    pub(crate) pending: Option<u64>,
}

/// What the other replicas of the view have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Some were not looked at yet.
    Unknown,
    /// One has a log.
    HaveLog,
    /// None has a log. One may begin one, and this replica may not, or is younger.
    MayFound,
    /// None has a log, and none is to begin one before this replica does.
    HaveNothing,
}

/// Finds out who should lead.
pub trait Detector: Clone + Debug + Default + Eq + Hash {
    /// Views decide it; otherwise [`Detector::poll`] does.
    const OF_VIEWS: bool;

    /// Installs a newer view.
    fn install(&mut self, view: &View);
    /// Who should lead now, as far as this replica knows.
    fn reign(&self) -> Option<Reign>;
    /// The leader to which this replica reports while it does not lead.
    fn leader(&self) -> Option<(Incarnation, Address)> {
        self.reign().map(|reign| (reign.leader, reign.at))
    }
    /// Whether another replica has a log or may begin one. `own` is this one, and whether it may.
    fn others(&self, _own: (Incarnation, bool)) -> Others {
        Others::Unknown
    }
    /// Does what is due. Returns whether what [`Detector::reign`] says has changed.
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
    /// Nothing but a committed entry confirms that this leader was not excluded: so each query is one,
    /// as with Mu.
    const REPLICATES_READS: bool = false;

    /// Installs a newer view, and this replica's incarnation in it.
    fn install(&mut self, view: &View, own: Option<Incarnation>);
    /// Begins to exclude the leaders before this term, as its leader.
    fn seize<F: Fabric>(&mut self, term: Term, fabric: &mut F);
    /// Leads no more, and takes over no more.
    fn release(&mut self) {}
    /// Does what is due, whether this replica leads or not.
    fn poll<F: Fabric>(&mut self, _now: Instant, _area: Area, _fabric: &mut F) {}
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
/// whoever is the oldest remains it until it goes, and no other replica leads in between.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Views {
    reign: Option<Reign>,
}

impl Detector for Views {
    const OF_VIEWS: bool = true;

    /// The term is the base of the first view in which this replica sees the leader lead. A change
    /// of the oldest replica is a change of the apps, so the views of two leaders never have the
    /// same base, and the later leader's is higher.
    fn install(&mut self, view: &View) {
        let oldest = crate::replicas(view).next();
        let known = self.reign;
        self.reign = oldest.map(|oldest| match known {
            Some(reign) if reign.leader == oldest.incarnation => reign,
            _ => Reign { leader: oldest.incarnation, at: oldest.address, term: Term(view.base.0) },
        });
    }

    fn reign(&self) -> Option<Reign> {
        self.reign
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
