//! The presets of replicas, and which one of them is hit, as options name them.

use clap::ValueEnum;
use obol_chaos::drills::studies::engines::Victim;
use obol_smr::Preset;

/// How an earlier leader is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PresetName {
    /// By the lease and the fence of the membership
    #[value(name = "view")]
    View,
    /// By the permission switch of Mu: replicas let one leader at a time write to them
    #[value(name = "mu+views")]
    MuViews,
    /// The same, but replicas find out by themselves who leads, as in Mu, and
    /// replicate reads
    #[value(name = "mu")]
    Mu,
    /// By terms and votes, as in DARE: the leader writes heartbeats, and reads the
    /// terms of a majority before it answers a query
    #[value(name = "dare")]
    Dare,
}

impl PresetName {
    /// The preset.
    pub(crate) const fn preset(self) -> Preset {
        match self {
            Self::View => Preset::View,
            Self::MuViews => Preset::MuViews,
            Self::Mu => Preset::Mu,
            Self::Dare => Preset::Dare,
        }
    }
}

/// Which replica is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VictimName {
    /// The one that leads
    Leader,
    /// Another one
    Follower,
}

impl VictimName {
    pub(crate) const fn victim(self) -> Victim {
        match self {
            Self::Leader => Victim::Leader,
            Self::Follower => Victim::Follower,
        }
    }
}

/// Each once, in their order.
pub(crate) fn distinct<T: Copy + PartialEq>(all: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(one) {
            once.push(*one);
        }
    }
    once
}
