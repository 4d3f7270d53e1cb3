//! Lookup of Millrace's programs: in the build directory, or where `make install` installs them.

use std::path::PathBuf;

/// Returns the path of a program of Millrace. Searches the directory of this program, its parent directory
/// (for tests and examples), the directory `sbin` in that parent directory, and `$PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap_or_default();
    let folders = own.ancestors().skip(1).take(2).map(PathBuf::from);
    let sbin = own.ancestors().nth(2).map(|folder| folder.join("sbin"));
    let search = std::env::var_os("PATH").unwrap_or_default();
    folders
        .chain(sbin)
        .chain(std::env::split_paths(&search))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_beside_above_and_in_the_path() {
        let own = std::env::current_exe().unwrap();
        let name = own.file_name().unwrap().to_str().unwrap();
        assert_eq!(find_program(name), Some(own.clone()));
        let in_path = find_program("sh").unwrap();
        assert!(in_path.is_absolute() && in_path.ends_with("sh"), "{in_path:?}");
        assert_eq!(find_program("millrace-of-nobody"), None);
    }
}
