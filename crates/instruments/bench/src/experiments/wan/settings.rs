//! Emulated paths from their settings, for the rows of the experiment `wan`.

use millrace_wan_emulator::PathConfig;

use super::error::WanBenchError;

/// Returns a path with these settings.
pub(super) fn path(settings: &[(&str, &str)]) -> Result<PathConfig, WanBenchError> {
    let mut config = PathConfig::default();
    for (key, text) in settings {
        config.set(key, text)?;
    }
    Ok(config)
}
