//! TODO
use crate::builder::Builder;
use crate::plan::Settings;
pub(crate) fn plan_filters(_: &millrace_ix_model::Exchange, _: &Settings, _: &mut Builder) {}
