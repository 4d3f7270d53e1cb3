//! The documents of the NIC interface, written from the tables of the crate `nic`.

use std::path::Path;

use anyhow::{Context, Result};
use millrace_nic::document::{PACKAGE, PAGE, markdown, package};

/// Writes the SystemVerilog package and docs/nic-interface.md. A test of `nic` fails where they differ from the tables.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (path, text) in [(PACKAGE, package()), (PAGE, markdown())] {
        let path = root.join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        println!("{}", path.display());
    }
    Ok(())
}
