//! What a follower does in a poll: it applies what the leader wrote, reports, and loads a snapshot if it
//! lacks a part of the log.

use super::{Replica, Role};
use crate::REPLICAS_MAX;
use crate::follow::OwnReport;
use crate::position::Index;
use crate::preset::{Detector, Guard};
use crate::service::Service;
use crate::snapshot::Pauses;
use crate::state::NotLoaded;
use obol_fabric::{Fabric, Incarnation, Instant, LinkError};

impl<S: Service, D: Detector, G: Guard> Replica<S, D, G> {
    pub(super) fn poll_following<F: Fabric>(&mut self, now: Instant, fabric: &mut F) -> bool {
        let more = if G::DIRECT {
            self.follow.poll_direct(self.area, &mut self.replicated, fabric)
        } else {
            self.follow.poll(self.area, &mut self.replicated, fabric)
        };
        // A leader that waits for its permission sends it nothing by which it could see that.
        if !G::REVOKES && self.replicated.state.log == 0 {
            self.follow.misfit |= self.own.is_some_and(|own| crate::grants::is_asked(own, self.area, fabric));
        }
        let leader = self.detector.leader();
        if let (Some(own), Some(leader)) = (self.own, leader)
            && self.at < REPLICAS_MAX
        {
            let may_bootstrap = self.may_bootstrap.is_some() && self.replicated.state.log == 0;
            let own_report = OwnReport { may_bootstrap, leaves: self.retires };
            self.note_told(now, leader.0);
            self.follow.report(now, own, self.at, leader, self.area, &self.replicated, own_report, fabric);
            if self.replicated.gap {
                self.load(now, own, self.replicated.log.base().index, fabric);
            } else {
                self.loader.stop(&mut self.replicated);
            }
        }
        more
    }

    pub(super) fn load<F: Fabric>(&mut self, now: Instant, own: Incarnation, least: Index, fabric: &mut F) {
        let (area, own) = (self.area, (own, self.at));
        let pauses = Pauses { pause: self.pace.poll_every, patience: self.pace.patience };
        let leader = self.detector.leader().map(|(leader, _)| leader);
        let Self { loader, replicas, replicated, .. } = self;
        loader.poll(now, own, replicas, leader, least, area, pauses, replicated, fabric);
    }

    /// A chunk of a snapshot was READ.
    pub(super) fn load_chunk(&mut self, now: Instant, id: u32, result: Result<&[u8], LinkError>) {
        let own = self.own.unwrap_or_default();
        let may_load = !matches!(self.role, Role::Leading(_)) && !self.refuses;
        match self.loader.on_read(now, own, id, result, &mut self.replicated, may_load) {
            Ok(false) => {}
            Ok(true) => {
                self.may_bootstrap = None;
                if let Role::TakingOver { takeover, behind } = &mut self.role {
                    *behind = None;
                    takeover.touch();
                }
            }
            Err(NotLoaded::Refused) => self.refuses = true,
            // Another one follows.
            Err(NotLoaded::OfNoUse) => {}
        }
        self.poll_at = Instant::ZERO;
    }
}
