//! What distinguishes presets: who should lead, and what keeps a deposed leader from answering.
//!
//! | preset | detector | guard |
//! |---|---|---|
//! | `view` | [`crate::Views`] | [`Active`]: the lease and the fence of the membership |
//! | `mu+views` | [`crate::Views`] | [`crate::Grants`]: the permission switch of Mu |
//! | `mu` | [`crate::PullScore`]: the detector of Mu | the same, and no lease |
//! | `dare` | [`crate::Beats`]: heartbeats that the leader writes | [`crate::Votes`]: terms and votes |

use crate::grants::Grants;
use crate::preset::{Active, Guard};
use crate::votes::Votes;
use derive_more::Display;

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
    /// A leader is elected by votes, writes heartbeats and one log for all leaders, and READs the terms of
    /// a majority before it answers a query.
    #[display("dare")]
    Dare,
}

impl Preset {
    /// Whether views say who leads.
    pub const fn is_led_by_views(self) -> bool {
        matches!(self, Self::View | Self::MuViews)
    }

    /// The preset of a log; `None` for one that this version does not know.
    pub fn of(log: u64) -> Option<Self> {
        let [_, kind, ..] = log.to_le_bytes();
        let all = [
            (Active::KIND, Self::View),
            (Grants::<true>::KIND, Self::MuViews),
            (Grants::<false>::KIND, Self::Mu),
            (Votes::KIND, Self::Dare),
        ];
        all.into_iter().find_map(|(known, preset)| (known == kind).then_some(preset))
    }
}
