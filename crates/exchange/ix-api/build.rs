//! Embeds the built web page, if there is one.
//!
//! `MILLRACE_PORTAL` names the folder of the built page; the default is `portal/dist`, which `make portal`
//! fills. If there is no such folder, the crate builds too, and the server has only the API.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-env-changed=MILLRACE_PORTAL");
    let folder = env::var_os("MILLRACE_PORTAL").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../portal/dist"),
        PathBuf::from,
    );
    let mut files = Vec::new();
    // cargo would run this script at every build if a watched folder did not exist. A missing folder is
    // therefore not watched, and `make portal` touches this file instead.
    println!("cargo::rerun-if-changed=build.rs");
    if folder.is_dir() {
        println!("cargo::rerun-if-changed={}", folder.display());
        collect(&folder, &folder, &mut files)?;
    }
    files.sort();
    let mut table = String::from("&[\n");
    for (path, file) in &files {
        let _ = writeln!(table, "    ({path:?}, include_bytes!({file:?}).as_slice()),");
    }
    table.push(']');
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets no OUT_DIR"))?;
    fs::write(Path::new(&out).join("page.rs"), table)
}

/// Collects the files below `folder` as pairs of path in the page and path on disk.
fn collect(root: &Path, folder: &Path, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else if let Ok(relative) = path.strip_prefix(root) {
            files.push((relative.to_string_lossy().into_owned(), fs::canonicalize(&path)?));
        }
    }
    Ok(())
}
