//! Queues, rates and policers of a port, from the configuration to the data plane.

use millrace_datapath::offload::{OffloadMode, OffloadSettings};
use millrace_datapath::schedule::{PortPlan, QueuePlan};
use millrace_model as model;
use millrace_pipeline::{ColorAction, Marks, Policer, PolicerPlan, PolicerRates};
use millrace_types::{BitRate, Pcp};
use millrace_wire::{Dscp, Tc};

/// Returns the queues and rates of a port.
pub(super) fn plan_of(port: &model::Port) -> PortPlan {
    let queue = |queue: &model::Queue| QueuePlan {
        id: queue.id,
        min_rate: queue.min_rate.map(model::Rate::get),
        max_rate: queue.max_rate.map(model::Rate::get),
        priority: queue.priority.get(),
        weight: queue.weight.get(),
        packets_max: queue.length.get() as usize,
        bytes_max: queue.size.map(|size| size.get().into()),
    };
    PortPlan {
        rate: port.rate.map(model::Rate::get),
        overhead: port.frame_overhead.get(),
        queues: port.egress_queues.iter().map(queue).collect(),
    }
}

/// Returns the settings of the offload of a port, if it has any.
pub(super) fn offload_of(port: &model::Port) -> Option<OffloadSettings> {
    let given = port.offload.as_ref()?;
    Some(OffloadSettings {
        mode: match given.mode {
            model::OffloadMode::Auto => OffloadMode::Auto,
            model::OffloadMode::Dispatch => OffloadMode::Dispatch,
            model::OffloadMode::Verify => OffloadMode::Verify,
            model::OffloadMode::Trust => OffloadMode::Trust,
        },
        entries: given.entries.map(model::OffloadEntries::get),
        operations_per_second: given.operations_per_second.get(),
        drops: given.drops,
    })
}

/// Returns the policer of a port, if it has one.
pub(super) fn policer_of(port: &model::Port) -> Option<PolicerPlan> {
    let given = port.policer.as_ref()?;
    let size = |size: Option<model::BurstSize>, rate: BitRate| {
        size.map_or_else(|| Policer::default_burst(rate), |size| size.get().into())
    };
    let cir = given.cir.get();
    let cbs = size(given.cbs, cir);
    // The model has checked that a two-rate policer has both rates.
    let second = |rate: Option<model::Rate>| rate.map_or(cir, model::Rate::get);
    let rates = match given.kind {
        model::PolicerKind::SingleRate => PolicerRates::SingleRate {
            cir,
            cbs,
            ebs: size(given.ebs, cir),
        },
        model::PolicerKind::TwoRate => PolicerRates::TwoRate {
            cir,
            cbs,
            pir: second(given.pir),
            pbs: size(given.pbs, second(given.pir)),
        },
        model::PolicerKind::TwoRateExcess => PolicerRates::TwoRateExcess {
            cir,
            cbs,
            eir: second(given.eir),
            ebs: size(given.ebs, second(given.eir)),
        },
    };
    Some(PolicerPlan {
        rates,
        color_aware: given.color_aware,
        overhead: port.frame_overhead.get(),
        color_actions: [&given.green, &given.yellow, &given.red].map(treatment_of),
    })
}

fn treatment_of(action: &model::ColorAction) -> ColorAction {
    match action.action {
        model::ColorVerdict::Drop => ColorAction::Drop,
        model::ColorVerdict::Pass => ColorAction::Pass(Marks {
            dscp: action.dscp.map(|dscp| Dscp::from_low_bits(dscp.get())),
            pcp: action.pcp.and_then(|pcp| Pcp::new(pcp.get()).ok()),
            mpls_tc: action.mpls_tc.map(|tc| Tc::from_low_bits(tc.get())),
        }),
    }
}
