//! The presets of replicas, as options name them.

use clap::ValueEnum;
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
    /// Whether views say who leads.
    pub(crate) const fn is_led_by_views(self) -> bool {
        matches!(self, Self::View | Self::MuViews)
    }

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
