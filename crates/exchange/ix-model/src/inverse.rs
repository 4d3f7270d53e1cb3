//! Operations that undo other operations. While an order waits for its confirmation, it must be possible to
//! undo it at any time.

use crate::exchange::{Exchange, ObjectId};
use crate::operation::Operation;

impl Operation {
    /// Returns the operation that undoes this operation, and the object that it changes. `exchange` is the
    /// state before this operation. Returns `None` for operations that cannot be undone at any time: a
    /// deleted object is gone, and somebody else may use numbers, VLANs or capacity that were released.
    pub fn inverse(&self, exchange: &Exchange) -> Option<(Operation, ObjectId)> {
        match self {
            Operation::DrainTrunk { trunk, .. } => {
                let drained = exchange.trunks.get(trunk)?.drained;
                Some((
                    Operation::DrainTrunk {
                        trunk: *trunk,
                        drained,
                    },
                    (*trunk).into(),
                ))
            }
            Operation::ShutDown { config, .. } => {
                let shut_down = exchange.configs.get(config)?.shut_down;
                let inverse = Operation::ShutDown {
                    config: *config,
                    shut_down,
                };
                Some((inverse, (*config).into()))
            }
            Operation::UpdatePolicy { id, .. } => {
                let policy = exchange.policies.get(id)?.clone();
                Some((Operation::UpdatePolicy { id: *id, policy }, (*id).into()))
            }
            _ => None,
        }
    }
}
