//! What distinguishes presets: who should lead, and what keeps a deposed leader from answering.
//! This preset, `view`, has both from the membership.

use crate::log::Term;
use core::fmt::Debug;
use core::hash::Hash;
use obol_fabric::{Address, Fabric, Incarnation, ViewId};
use obol_membership::View;

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

/// Finds out who should lead.
pub trait Detector: Clone + Debug + Default + Eq + Hash {
    /// Installs a newer view.
    fn install(&mut self, view: &View);
    /// Who should lead now, as far as this replica knows.
    fn reign(&self) -> Option<Reign>;
}

/// Excludes the leaders of earlier terms.
pub trait Guard: Clone + Debug + Default + Eq + Hash {
    /// Installs a newer view.
    fn install(&mut self, view: &View);
    /// Begins to exclude the leaders before this term.
    fn seize<F: Fabric>(&mut self, term: Term, fabric: &mut F);
    /// Whether none of them commits or answers any more. READs that are posted after this see all
    /// that they have committed.
    fn seized<F: Fabric>(&self, fabric: &F) -> bool;
    /// Whether this leader was not excluded up to now. What completed before this call was then
    /// done as the leader.
    fn may_answer<F: Fabric>(&self, fabric: &F) -> bool;
}

/// The oldest replica in the view leads. A process that was excluded returns as a younger one, so
/// whoever is the oldest remains it until it goes, and no other replica leads in between.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Views {
    reign: Option<Reign>,
}

impl Detector for Views {
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
    fn install(&mut self, view: &View) {
        self.view = view.id;
    }

    /// The coordinators have done it: they decided the view, and raise the fences.
    fn seize<F: Fabric>(&mut self, _term: Term, _fabric: &mut F) {}

    fn seized<F: Fabric>(&self, fabric: &F) -> bool {
        fabric.is_active(self.view)
    }

    fn may_answer<F: Fabric>(&self, fabric: &F) -> bool {
        fabric.is_active(self.view)
    }
}
