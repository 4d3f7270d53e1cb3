//! The way from one engine with a file to engines that share a PostgreSQL database, while no engine runs.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use millrace_ix_store::{Sqlite, Store as _};

use crate::control;
use crate::serve;
use crate::settings::Settings;

/// Copies a file into the empty database of the settings. Returns the text for the operator.
pub(crate) fn copy(settings: &Settings, file: &Path) -> Result<String> {
    control::check_free(&settings.control.socket).context("stop the engine before the copy")?;
    if settings.database.postgres.is_none() {
        bail!("database.postgres is not set: expected the settings of an engine with a PostgreSQL database");
    }
    let name = file.display().to_string();
    let from = Sqlite::open_read_only(file).with_context(|| name.clone())?;
    from.check().with_context(|| name.clone())?;
    let mut to = serve::open_postgres(settings)?;
    to.copy_from(&from)?;
    let contents = to.load()?;
    Ok(format!(
        "{name}: {} objects and revision {} are in the database\nstart the engine. Its keys must be those of the file's engine: {} and \
         {}\n",
        contents.objects.len(),
        contents.revision,
        settings.database.audit_key().display(),
        settings.database.seal_key().display()
    ))
}
