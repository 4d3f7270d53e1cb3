//! Partitions rules into sortable sets (see `partition_sort`), offline.

use crate::rule::{FIELDS, Range};

/// Rules that are equal in all fields ordered so far, as indices.
type Class = Vec<u32>;

/// Returns sortable sets with their orders of fields, the largest first.
pub(crate) fn partition(ranges: &[[Range; FIELDS]]) -> Vec<([usize; FIELDS], Vec<u32>)> {
    let mut left: Vec<u32> = (0..ranges.len() as u32).collect();
    let mut sets = Vec::new();
    let mut taken = vec![false; ranges.len()];
    while !left.is_empty() {
        let (order, kept) = field_order(ranges, left.clone());
        for rule in &kept {
            taken[*rule as usize] = true;
        }
        left.retain(|rule| !taken[*rule as usize]);
        sets.push((order, kept));
    }
    sets
}

/// Returns an order of the fields, and the rules that are sortable in this order.
pub(crate) fn field_order(ranges: &[[Range; FIELDS]], rules: Vec<u32>) -> ([usize; FIELDS], Vec<u32>) {
    let mut order = Vec::new();
    let mut classes = vec![rules];
    while order.len() < FIELDS {
        let left = (0..FIELDS).filter(|field| !order.contains(field));
        let tried = left.map(|field| {
            let kept = classes.iter().flat_map(|class| heaviest(ranges, class, field));
            (field, kept.collect::<Vec<Class>>())
        });
        let Some((field, kept)) = tried.max_by_key(|(_, kept)| kept.iter().map(Vec::len).sum::<usize>())
        else {
            break;
        };
        order.push(field);
        classes = kept;
    }
    // The set can keep only one of the rules that are equal in all fields.
    let kept = classes
        .iter()
        .filter_map(|class| class.first().copied())
        .collect();
    (core::array::from_fn(|place| order[place]), kept)
}

/// Returns the set of ranges without overlaps that has most rules, among the ranges of a class in one field
/// (weighted interval scheduling). Each item of the result has the rules of one range.
fn heaviest(ranges: &[[Range; FIELDS]], class: &[u32], field: usize) -> Vec<Class> {
    let range = |rule: u32| ranges[rule as usize][field];
    if class.iter().all(|rule| range(*rule) == range(class[0])) {
        return vec![class.to_vec()];
    }
    let mut sorted = class.to_vec();
    sorted.sort_unstable_by_key(|rule| (range(*rule).hi, range(*rule).lo));
    let groups: Vec<&[u32]> = sorted.chunk_by(|a, b| range(*a) == range(*b)).collect();
    // `most[n]` is the maximum number of rules in ranges of the first n groups. `before[n]` is the number of
    // groups that end before group n begins.
    let mut most = vec![0];
    let mut before = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let lo = range(group[0]).lo;
        let free = groups[..at].partition_point(|other| range(other[0]).hi < lo);
        before.push(free);
        most.push((most[free] + group.len()).max(most[at]));
    }
    let mut kept = Vec::new();
    let mut at = groups.len();
    while at > 0 {
        if most[at] == most[at - 1] {
            at -= 1;
        } else {
            kept.push(groups[at - 1].to_vec());
            at = before[at - 1];
        }
    }
    kept
}
