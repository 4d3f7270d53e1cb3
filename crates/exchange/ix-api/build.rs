//! Embeds the built web page, if there is one.
//!
//! `MILLRACE_PORTAL` names the folder of the built page; the default is `portal/dist`, which `make portal` fills.
//! Without it the crate builds, too: the server then has the API only.

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
    // A path that does not exist would make cargo run this at every build; `make portal` touches this file instead.
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

/// Collects the files below `folder` as pairs of the path in the page and the path on the disk.
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
