//! Detection over ordinary networks after FiDe (Rovelli et al., USENIX ATC 2025): the planning of
//! redundant multicast trees and what remains of their risk (`obol plan network`), detectors compared
//! (`obol sim detectors`), and the paper's broadcasts and consensus (`obol sim fide`).
//!
//! Nothing here runs in a cluster.

pub mod detectors;
pub mod network;
pub mod perfect;
