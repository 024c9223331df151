//! The protocol's events in flight recorders, and their names.

use obol_fabric::recorder::{EventCode, Record as FabricRecord, Stamped as FabricStamped};
use obol_fabric::slots;
use serde::{Deserialize, Serialize};

/// An event of the protocol.
pub type Record = FabricRecord<EventKind>;
/// The same with its number and time, as readers get it.
pub type Stamped = FabricStamped<EventKind>;

slots! {
    /// What happened, with the meaning of `a` and `b` of a [`Record`].
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    EventKind: EventCode {
        /// The process started; `a` = generation.
        Started = "started",
        /// A death notice; `a` = accused incarnation, `b` = accuser's incarnation.
        Notice = "notice",
        /// The leader proposed view `a`.
        Propose = "propose",
        /// The leader decided view `a`; `b` = 1 if the value was adopted.
        Decide = "decide",
        /// View `a` became the newest known; `b` = 1 if it came by a snapshot jump.
        ViewReceived = "view_received",
        /// All holders of views below base `a` are clear; `b` = how many by a fence.
        Fenced = "fenced",
        /// CLEAR for base `a` was sent or applied.
        Clear = "clear",
        /// View `a` became active.
        Active = "active",
        /// The lease on view `a` ended without a successor; `b` = how often so far. Not every lapse
        /// is recorded.
        LeaseLost = "lease_lost",
        /// This process began to lead; `a` = newest view that it knows.
        Takeover = "takeover",
        /// This process became incarnation `a`.
        Joined = "joined",
        /// This process was excluded; `a` = its incarnation, `b` = the view.
        Excluded = "excluded",
        /// A suspicion by this process of incarnation `a`.
        Suspect = "suspect",
        /// A suspicion of incarnation `a` was wrong: it runs again.
        Retract = "retract",
        /// A proposal for view `a` was aborted.
        Abort = "abort",
        /// The application's first success in view `a`.
        Service = "service",
        /// The clock of incarnation `a` is proved to run at least `b` ppm faster than this
        /// process's: beyond the bound.
        ClockFast = "clock_fast",
        /// The clock of incarnation `a` is proved to run at least `b` ppm slower than this
        /// process's: beyond the bound.
        ClockSlow = "clock_slow",
        /// This process left at its own request; `a` = its incarnation, `b` = the view.
        Left = "left",
        /// Incarnation `a` failed repeatedly under its name, so joins of that name are on hold;
        /// `b` = how often, in what time, and for how long.
        JoinHeld = "join_held_back",
        /// The leader decided view `b`, which adds coordinator `a` to the deciders because another
        /// one is missing.
        Replacing = "replacing",
        /// The leader decided view `b`, which removes coordinator `a` from the deciders because it
        /// is missing.
        Replaced = "replaced",
    }
}
