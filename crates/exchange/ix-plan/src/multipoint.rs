//! TODO
use crate::builder::Builder;
use crate::plan::ServiceContext;
pub(crate) fn plan_multipoint(_: &ServiceContext<'_>, _: &mut Builder) {}
