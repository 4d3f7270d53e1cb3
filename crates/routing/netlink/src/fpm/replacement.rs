//! The replacement of a route in FPM: zebra sends the removal and the new route in one frame.
//!
//! Seen with FRR 8.4.4: `RTM_DELROUTE` without next hops, then `RTM_NEWROUTE`, both of the same table, prefix and metric. Passed
//! on one after the other, they would leave the prefix without a route for a moment. The first one is therefore left out.

use crate::wire::{Change, Content, Messages, Route};

/// Returns true if the first of `rest` adds the route that `removed` removes.
pub(super) fn follows(removed: &Route<'_>, rest: &Messages<'_>) -> bool {
    let Some(Ok(next)) = rest.clone().next() else {
        return false;
    };
    match next.content() {
        Ok(Content::Route(Change::New, added)) => {
            (
                added.table,
                added.destination,
                added.prefix_len,
                added.source_len,
                added.tos,
                added.priority,
            ) == (
                removed.table,
                removed.destination,
                removed.prefix_len,
                removed.source_len,
                removed.tos,
                removed.priority,
            )
        }
        _ => false,
    }
}
