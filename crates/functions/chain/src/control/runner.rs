//! A function, in the worker or in a process of its own.

use std::path::Path;
use std::sync::Arc;

use millrace_nf::{Kind, Setup, SourceFile};
use millrace_wire::Packet;

use super::error::ChainError;
use crate::hop::Runner;
use crate::plan::{Class, HopPlan};
use crate::process::{self, Process};

/// Creates a function in the worker or in a process. Returns the function, and its process if it has one.
pub(super) fn make_runner<P: Packet + 'static>(
    program: &Path,
    kind: &'static Kind,
    plan: &HopPlan,
    setup: &Setup,
    source: Option<&SourceFile>,
) -> Result<(Runner<P>, Option<Arc<Process>>), ChainError> {
    let hop = || plan.name.clone();
    let make = || {
        let made = kind.make_function(setup);
        made.map_err(|source| ChainError::Make { hop: hop(), source })
    };
    match plan.class {
        Class::Inline => Ok((Runner::Inline(make()?), None)),
        Class::Isolated | Class::Ring => {
            // Creating a built-in function here shows errors in its settings at once. A loaded function was created by the
            // process that described it.
            if !plan.is_loaded_elsewhere() {
                drop(make()?);
            }
            let started = process::start(program, plan, setup, source);
            let (isolated, process) = started.map_err(|error| ChainError::Class {
                hop: hop(),
                reason: format!("its process cannot be started: {error}"),
            })?;
            Ok((Runner::Remote(Box::new(isolated)), Some(process)))
        }
    }
}
