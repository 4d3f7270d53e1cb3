//! Numbers of columns, and of `other_config`, where they are texts.

use millrace_model as model;
use millrace_types::BitRate;

use crate::fault::{Faults, RowName};
use crate::rows::View;

/// Returns the number of a column, or its default. One above the range is lowered to it, by name.
pub(crate) fn bounded(
    view: &View<'_>,
    column: &str,
    default: u32,
    max: u32,
    row: &RowName,
    faults: &mut Faults,
) -> u32 {
    let Some(value) = view.integer(column) else {
        return default;
    };
    let nearest = u32::try_from(value.max(0)).unwrap_or(u32::MAX).min(max);
    if i64::from(nearest) != value {
        faults.ignore(
            row,
            format!("{column}={value} is not available: {nearest} is in effect, the nearest"),
        );
    }
    nearest
}

/// Returns a number, brought into its range as Open vSwitch does.
///
/// # Errors
/// The expected form.
pub(crate) fn number(text: &str, min: u32, max: u32, expected: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(value) => Ok(u32::try_from(value.clamp(min.into(), max.into())).unwrap_or(max)),
        Err(_) => Err(format!("expected {expected}")),
    }
}

/// Returns a rate in bit/s as one of the model; a lower one becomes the lowest.
///
/// # Errors
/// The range.
pub(crate) fn rate(bps: u64) -> Result<model::Rate, String> {
    model::Rate::new(BitRate::from_bps(bps.max(1000))).map_err(|error| error.to_string())
}
