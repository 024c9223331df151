//! Drills on real clusters and the simulation campaign.
