//! The cells of a next-hop group: which member a flow takes.
//!
//! A group with several members has a power of two of cells, each of which names a member; the number of a member's cells
//! is proportional to its weight, to within one cell. A flow takes the cell that its hash points at. When the group
//! changes, a member keeps as many of its cells as its new share allows, so that a flow moves only if its member goes or
//! its member's share shrinks. The select groups of OpenFlow do the same.

/// The maximum number of members of a group.
pub const MEMBERS_MAX: usize = 256;

/// The number of cells for each member, as far as [`CELLS_MAX`] allows.
const CELLS_PER_MEMBER: usize = 128;
/// The number of cells of the lightest member: one cell is then less than 2 % of any share.
const CELLS_OF_LIGHTEST: u64 = 64;
/// The maximum number of cells. A member whose share is below 1/512 may miss its weight by more than 2 %.
const CELLS_MAX: usize = 32_768;

/// A member of a group: the number of a next hop, and its weight, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Member {
    pub(crate) next_hop: u32,
    pub(crate) weight: u32,
}

/// Returns the next hop of each cell; `before` are the cells that the group had.
pub(crate) fn assign(members: &[Member], before: &[u32]) -> Vec<u32> {
    let total: u64 = members.iter().map(|member| u64::from(member.weight)).sum();
    let lightest = members
        .iter()
        .map(|member| u64::from(member.weight))
        .min()
        .unwrap_or(1);
    let by_weight = CELLS_OF_LIGHTEST * total / lightest.max(1);
    let len = (members.len() * CELLS_PER_MEMBER)
        .max(usize::try_from(by_weight).unwrap_or(CELLS_MAX))
        .min(CELLS_MAX)
        .next_power_of_two()
        .max(before.len());
    let mut left = quotas(members, total.max(1), len);
    let mut cells = vec![None; len];
    if !before.is_empty() {
        // Positions by next hop, in order, to be found by bisection.
        let mut positions: Vec<(u32, usize)> = (0..)
            .zip(members)
            .map(|(at, member)| (member.next_hop, at))
            .collect();
        positions.sort_unstable();
        for (at, cell) in cells.iter_mut().enumerate() {
            let was = before[at % before.len()];
            let Ok(found) = positions.binary_search_by_key(&was, |position| position.0) else {
                continue;
            };
            let left = &mut left[positions[found].1];
            if *left > 0 {
                *left -= 1;
                *cell = Some(was);
            }
        }
    }
    let mut free = members
        .iter()
        .zip(&left)
        .flat_map(|(member, left)| core::iter::repeat_n(member.next_hop, *left));
    cells
        .into_iter()
        .map(|cell| cell.or_else(|| free.next()).unwrap_or_default())
        .collect()
}

/// Returns how many of `len` cells each member gets: largest remainders (Hare), but at least one.
fn quotas(members: &[Member], total: u64, len: usize) -> Vec<usize> {
    let share = |member: &Member| u64::from(member.weight) * len as u64;
    let mut quotas: Vec<usize> = members
        .iter()
        .map(|member| (share(member) / total) as usize)
        .collect();
    let mut left = len.saturating_sub(quotas.iter().sum());
    let mut by_remainder: Vec<usize> = (0..members.len()).collect();
    by_remainder.sort_by_key(|at| {
        (
            quotas[*at] > 0,
            core::cmp::Reverse(share(&members[*at]) % total),
            *at,
        )
    });
    for at in by_remainder {
        if left > 0 {
            quotas[at] += 1;
            left -= 1;
        }
    }
    quotas
}

/// Returns the next hash of the same flow: a step of a permutation of 64-bit numbers.
#[inline]
pub(crate) fn next(hash: u64) -> u64 {
    let mixed = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(weights: &[u32]) -> Vec<Member> {
        (1..)
            .zip(weights)
            .map(|(next_hop, weight)| Member {
                next_hop,
                weight: *weight,
            })
            .collect()
    }

    fn counted(cells: &[u32], members: &[Member]) -> Vec<usize> {
        members
            .iter()
            .map(|member| cells.iter().filter(|cell| **cell == member.next_hop).count())
            .collect()
    }

    #[test]
    fn shares_of_64_members_are_within_two_percent_of_their_weights() {
        for weights in [
            vec![1; 64],
            (1..=64).collect::<Vec<u32>>(),
            (0..64).map(|at| 4 + at % 5).collect(),
            vec![1, 255],
        ] {
            let members = members(&weights);
            let cells = assign(&members, &[]);
            let total: u32 = weights.iter().sum();
            for (count, weight) in counted(&cells, &members).into_iter().zip(&weights) {
                let exact = f64::from(*weight) * cells.len() as f64 / f64::from(total);
                let error = (count as f64 - exact).abs() / exact;
                assert!(
                    error < 0.02,
                    "{count} cells, expected {exact}, of weight {weight}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn a_lost_member_moves_only_its_cells(
            weights in prop::collection::vec(1u32..256, 2..64),
            gone in any::<prop::sample::Index>(),
        ) {
            let all = members(&weights);
            let cells = assign(&all, &[]);
            let mut rest = all.clone();
            let gone = rest.remove(gone.index(all.len()));
            let after = assign(&rest, &cells);
            prop_assert_eq!(after.len(), cells.len());
            let moved = cells.iter().zip(&after).filter(|(was, is)| **was != gone.next_hop && was != is).count();
            // Rounding takes at most one cell from a member.
            prop_assert!(moved <= rest.len(), "{} of {} cells moved", moved, cells.len());
            prop_assert!(!after.contains(&gone.next_hop));
            prop_assert!(counted(&after, &rest).into_iter().all(|count| count > 0));
        }
    }
}
