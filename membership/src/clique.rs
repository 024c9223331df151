//! Which members stay when not all can reach each other: the largest set of members that all reach
//! each other and that includes the leader, with a majority of the deciders. A pure function of the
//! links that are down; `detectors::links` decides who learns of those.
//!
//! uKharon, section 4.2, catastrophic failures: "approximately the maximum clique in which it is
//! included". Here it is exact wherever broken links form small clusters of members, as those of a
//! real network do.

/// The largest connected cluster of broken links for which the maximum clique is computed exactly.
/// In a larger one the member with the most broken links is removed first. This keeps at least the
/// sum of `1 / (1 + broken links)` over its members, and the whole larger side of a network that is
/// cut in two.
pub const EXACT_MAX: usize = 24;

/// Which of `members` nodes stay: true for each that does. `down` are the pairs without a link, in
/// any order; duplicates are allowed, and pairs with a node beyond `members` are ignored.
/// `centers`, which have no broken link among them, always stay.
///
/// Among sets of the same size, the one with the lowest differing node stays, so that all processes
/// compute the same one. Nodes without a broken link always stay.
pub fn largest(members: usize, down: &[(usize, usize)], centers: &[usize]) -> Vec<bool> {
    let mut stays = vec![true; members];
    let mut broken: Vec<Vec<usize>> = vec![Vec::new(); members];
    for &(a, b) in down.iter().filter(|(a, b)| a != b && *a < members && *b < members) {
        broken[a].push(b);
        broken[b].push(a);
    }
    for peers in &mut broken {
        peers.sort_unstable();
        peers.dedup();
    }
    for lost in centers.iter().filter_map(|center| broken.get(*center)) {
        lost.iter().for_each(|&node| stays[node] = false);
    }
    let mut seen = vec![false; members];
    for first in 0..members {
        let cluster = cluster_of(first, &broken, &stays, &mut seen);
        if cluster.len() > EXACT_MAX {
            thin_out(&cluster, &broken, &mut stays);
        } else if cluster.len() > 1 {
            choose(&cluster, &broken, &mut stays);
        }
    }
    assert!(is_clique(&stays, &broken), "members that stay reach each other");
    stays
}

fn is_clique(stays: &[bool], broken: &[Vec<usize>]) -> bool {
    (0..stays.len()).all(|node| !stays[node] || broken[node].iter().all(|peer| !stays[*peer]))
}

/// The nodes connected to this one by broken links, in order; none if it was seen before or does
/// not stay.
fn cluster_of(first: usize, broken: &[Vec<usize>], stays: &[bool], seen: &mut [bool]) -> Vec<usize> {
    let (mut cluster, mut open) = (Vec::new(), vec![first]);
    while let Some(node) = open.pop() {
        if stays[node] && !std::mem::replace(&mut seen[node], true) {
            cluster.push(node);
            open.extend(&broken[node]);
        }
    }
    cluster.sort_unstable();
    cluster
}

/// Finds the largest subset without a broken link, exactly.
fn choose(cluster: &[usize], broken: &[Vec<usize>], stays: &mut [bool]) {
    // The first node has the highest bit, so that of two sets of one size the larger number is the
    // preferred one.
    let bit = |place: usize| 1u32 << (31 - place);
    let conflicts: Vec<u32> = cluster
        .iter()
        .map(|&node| {
            let places = broken[node].iter().filter_map(|peer| cluster.binary_search(peer).ok());
            places.map(bit).sum()
        })
        .collect();
    let all = (0..cluster.len()).map(bit).sum();
    let mut best = 0;
    search(0, all, &conflicts, &mut best);
    for (place, &node) in cluster.iter().enumerate() {
        stays[node] = best & bit(place) != 0;
    }
}

/// Tries all extensions of `chosen` by nodes of `open`, none of which conflicts with a chosen one.
fn search(chosen: u32, open: u32, conflicts: &[u32], best: &mut u32) {
    if chosen.count_ones() + open.count_ones() < best.count_ones() {
        return;
    }
    let degree = |place: &usize| (conflicts[*place] & open).count_ones();
    let is_open = |place: &usize| open & (1 << (31 - *place)) != 0;
    // On a tie the later one wins, so that lower nodes stay.
    let worst = (0..conflicts.len()).filter(is_open).max_by_key(degree);
    match worst.filter(|place| degree(place) > 0) {
        Some(place) => {
            let bit = 1 << (31 - place);
            search(chosen | bit, open & !bit & !conflicts[place], conflicts, best);
            search(chosen, open & !bit, conflicts, best);
        }
        None => {
            let found = chosen | open;
            if (found.count_ones(), found) > (best.count_ones(), *best) {
                *best = found;
            }
        }
    }
}

/// Drops the node with the most broken links until none is left, then takes back every node that
/// fits.
fn thin_out(cluster: &[usize], broken: &[Vec<usize>], stays: &mut [bool]) {
    let mut degrees: Vec<usize> =
        cluster.iter().map(|&node| broken[node].iter().filter(|peer| stays[**peer]).count()).collect();
    while let Some((place, _)) = degrees.iter().enumerate().filter(|(_, d)| **d > 0).max_by_key(|(_, d)| **d)
    {
        stays[cluster[place]] = false;
        degrees[place] = 0;
        for peer in &broken[cluster[place]] {
            if let Ok(peer) = cluster.binary_search(peer) {
                degrees[peer] = degrees[peer].saturating_sub(1);
            }
        }
    }
    for &node in cluster {
        // A node that a center has lost is in no cluster, so it is not taken back.
        if !stays[node] && broken[node].iter().all(|peer| !stays[*peer]) {
            stays[node] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kept(members: usize, down: &[(usize, usize)], leader: usize) -> Vec<usize> {
        let stays = largest(members, down, &[leader]);
        (0..members).filter(|node| stays[*node]).collect()
    }

    fn fits(set: u32, down: &[(usize, usize)]) -> bool {
        down.iter().all(|&(a, b)| a == b || set >> a & 1 == 0 || set >> b & 1 == 0)
    }

    #[test]
    fn nodes_with_all_links_stay_and_of_a_broken_pair_the_older_one() {
        assert_eq!(kept(5, &[], 0), [0, 1, 2, 3, 4]);
        assert_eq!(kept(5, &[(3, 2)], 0), [0, 1, 2, 4]);
        assert_eq!(kept(5, &[(3, 2), (2, 3), (2, 2), (2, 9)], 0), [0, 1, 2, 4]);
    }

    #[test]
    fn the_leader_always_stays() {
        assert_eq!(kept(4, &[(3, 0), (3, 1), (3, 2)], 3), [3]);
        assert_eq!(kept(4, &[(1, 0), (2, 0)], 0), [0, 3]);
    }

    #[test]
    fn of_a_partitioned_network_the_leaders_side_stays_otherwise_the_larger_one() {
        let cut = |left: std::ops::Range<usize>, right: std::ops::Range<usize>| {
            left.flat_map(|a| right.clone().map(move |b| (a, b))).collect::<Vec<_>>()
        };
        assert_eq!(kept(6, &cut(0..2, 2..6), 0), [0, 1]);
        // The leader, 0, reaches both sides.
        assert_eq!(kept(6, &cut(1..3, 3..6), 0), [0, 3, 4, 5]);
        // Also where the cluster is too large for the exact search.
        assert_eq!(kept(1_000, &cut(1..400, 400..1_000), 0).len(), 601);
        let even: Vec<usize> = (0..51).collect();
        assert_eq!(kept(101, &cut(1..51, 51..101), 0), even, "the older half");
    }

    #[test]
    fn a_member_that_lost_many_goes_before_those_that_lost_it() {
        let star: Vec<(usize, usize)> = (2..1_000).map(|n| (1, n)).collect();
        let without: Vec<usize> = (0..1_000).filter(|n| *n != 1).collect();
        assert_eq!(kept(1_000, &star, 0), without);
    }

    #[test]
    fn the_largest_cluster_that_is_tried_out_takes_no_time() {
        let path: Vec<(usize, usize)> = (1..EXACT_MAX).map(|n| (n, n + 1)).collect();
        assert_eq!(kept(EXACT_MAX + 1, &path, 0).len(), EXACT_MAX / 2 + 1);
        let pairs: Vec<(usize, usize)> =
            (1..=EXACT_MAX).flat_map(|a| (a + 1..=EXACT_MAX).map(move |b| (a, b))).collect();
        assert_eq!(kept(EXACT_MAX + 1, &pairs, 0), [0, 1]);
    }

    proptest! {
        #[test]
        fn the_kept_set_is_maximum_for_few_members(
            members in 1usize..=10,
            leader in 0usize..10,
            down in prop::collection::vec((0usize..10, 0usize..10), 0..30),
        ) {
            let leader = leader % members;
            let stays = largest(members, &down, &[leader]);
            let set: u32 = (0..members).filter(|n| stays[*n]).map(|n| 1 << n).sum();
            prop_assert!(fits(set, &down) && set >> leader & 1 == 1);
            let inside: Vec<_> = down.iter().copied().filter(|(a, b)| *a < members && *b < members).collect();
            let order = |set: u32| (set.count_ones(), set.reverse_bits());
            let best = (0..1u32 << members).filter(|s| s >> leader & 1 == 1 && fits(*s, &inside)).max_by_key(|s| order(*s));
            prop_assert_eq!(best, Some(set));
        }

        #[test]
        fn the_kept_set_is_maximal_and_large_enough_for_many_members(
            members in 30usize..200,
            down in prop::collection::vec((1usize..200, 1usize..200), 0..600),
        ) {
            let stays = largest(members, &down, &[0]);
            let inside = || down.iter().filter(|(a, b)| a != b && *a < members && *b < members);
            for &(a, b) in inside() {
                prop_assert!(!stays[a] || !stays[b]);
            }
            let mut broken = vec![std::collections::BTreeSet::new(); members];
            for &(a, b) in inside() {
                broken[a].insert(b);
                broken[b].insert(a);
            }
            for node in 0..members {
                prop_assert!(stays[node] || broken[node].iter().any(|peer| stays[*peer]), "{} could stay", node);
            }
            let bound: f64 = broken.iter().map(|peers| 1.0 / (1.0 + peers.len() as f64)).sum();
            let kept = stays.iter().filter(|s| **s).count();
            prop_assert!(kept as f64 >= bound - 1e-9, "{} of {} stay, {}", kept, members, bound);
        }
    }
}
