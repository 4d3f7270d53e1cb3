//! The entries of circuits between two ends (`p2p_vc`).

use millrace_ix_model::ObjectId;

use crate::builder::Builder;
use crate::layout::POLICE;
use crate::service::{End, ServiceContext};
use crate::tags;

/// Adds the entries of a circuit. With one end only, or with an end that is shut down, there is no circuit.
pub(crate) fn plan_p2p(context: &ServiceContext<'_>, builder: &mut Builder) {
    let [one, two] = &context.ends[..] else {
        return;
    };
    if one.config.shut_down || two.config.shut_down {
        return;
    }
    let path = context.service.path(one.switch, two.switch);
    let broken = path
        .windows(2)
        .find(|pair| pair[0] != pair[1] && context.trunk_kind(pair[0], pair[1]).is_none());
    if let Some(pair) = broken {
        let message = format!("no trunk joins {} and {}: no frame passes", pair[0], pair[1]);
        builder.problem(ObjectId::from(context.id), message);
        return;
    }
    tags::plan_from_trunks(context, builder);
    for triple in path.windows(3) {
        tags::plan_transit(context, [triple[0], triple[1], triple[2]], builder);
        tags::plan_transit(context, [triple[2], triple[1], triple[0]], builder);
    }
    for (end, other) in [(one, two), (two, one)] {
        plan_end(context, end, other, builder);
    }
}

/// Adds the entries for the direction from `end` to `other`, and for frames from trunks that leave at `end`.
/// A circuit passes every source address and has one path, so that its frames skip tables 2 and 4.
fn plan_end(context: &ServiceContext<'_>, end: &End<'_>, other: &End<'_>, builder: &mut Builder) {
    tags::plan_ingress(context, end, POLICE, builder);
    tags::plan_police(context, end, Some(other), builder);
    if end.shares_ports(other) {
        tags::plan_egress(context, other, Some(end), builder);
        return;
    }
    tags::plan_egress(context, end, None, builder);
    if end.switch != other.switch {
        tags::plan_to_trunk(context, end, builder);
    }
}
