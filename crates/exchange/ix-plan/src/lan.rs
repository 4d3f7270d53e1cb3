//! TODO
use crate::builder::Builder;
use crate::plan::ServiceContext;
pub(crate) fn plan_lan(_: &ServiceContext<'_>, _: &mut Builder) {}
