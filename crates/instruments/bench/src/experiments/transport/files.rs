//! Writes the files to be sent, from a seed, and compares them with the files that arrived.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

use super::error::TransportBenchError;
use crate::file_error::file;
use crate::random::Random;

/// Bytes written at a time.
const BLOCK: usize = 1 << 20;
/// The number of small files in a directory.
const PER_DIRECTORY: usize = 1_000;

/// Writes a file of random bytes.
pub(super) fn write(path: &Path, bytes: u64, seed: u64) -> Result<(), TransportBenchError> {
    let mut random = Random::new(seed);
    let mut out = File::create(path).map_err(file(path))?;
    let mut left = bytes;
    while left > 0 {
        let block: Vec<u8> = (0..BLOCK / 8).flat_map(|_| random.word().to_le_bytes()).collect();
        let len = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        out.write_all(&block[..len]).map_err(file(path))?;
        left -= len as u64;
    }
    Ok(())
}

/// Writes a file of `size` bytes that has `bytes` bytes of data, in runs of 16 MiB with holes between them.
pub(super) fn write_sparse(path: &Path, size: u64, bytes: u64) -> Result<(), TransportBenchError> {
    let run = 16 << 20;
    let runs = (bytes / run).max(1);
    let mut out = File::create(path).map_err(file(path))?;
    let mut random = Random::new(15);
    for index in 0..runs {
        let block: Vec<u8> = (0..run / 8).flat_map(|_| random.word().to_le_bytes()).collect();
        out.seek(SeekFrom::Start(index * (size / runs)))
            .and_then(|_| out.write_all(&block))
            .map_err(file(path))?;
    }
    Ok(out.set_len(size).map_err(file(path))?)
}

/// Writes files of 4 KiB in directories of 1,000 files.
pub(super) fn write_small(root: &Path, count: usize) -> Result<(), TransportBenchError> {
    let mut random = Random::new(10);
    for index in 0..count {
        let directory = root.join(format!("{}", index / PER_DIRECTORY));
        if index % PER_DIRECTORY == 0 {
            fs::create_dir_all(&directory).map_err(file(&directory))?;
        }
        let path = directory.join(format!("{index}"));
        let bytes: Vec<u8> = (0..512).flat_map(|_| random.word().to_le_bytes()).collect();
        fs::write(&path, bytes).map_err(file(&path))?;
    }
    Ok(())
}

/// Returns the number of bytes that differ between a file or directory and its copy, including a difference in size. A
/// file that the copy lacks counts with its size, at least as one byte; further files of the copy do not count.
pub(super) fn differences(left: &Path, right: &Path) -> Result<u64, TransportBenchError> {
    let of_left = fs::metadata(left).map_err(file(left))?;
    if of_left.is_dir() {
        let mut different = 0;
        for entry in fs::read_dir(left).map_err(file(left))? {
            let name = entry.map_err(file(left))?.file_name();
            different += differences(&left.join(&name), &right.join(&name))?;
        }
        return Ok(different);
    }
    match File::open(right) {
        Ok(copy) => {
            let original = File::open(left).map_err(file(left))?;
            Ok(differing_bytes(&original, &copy).map_err(file(right))?)
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(of_left.len().max(1))
        }
        Err(error) => Err(file(right)(error).into()),
    }
}

/// Returns the number of bytes in which two files differ. Holes that both have are not read.
fn differing_bytes(a: &File, b: &File) -> io::Result<u64> {
    let (of_a, of_b) = (a.metadata()?.len(), b.metadata()?.len());
    let common = of_a.min(of_b);
    let mut different = of_a.abs_diff(of_b);
    let (mut bytes_of_a, mut bytes_of_b) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut at = 0;
    while let Some(start) = [next_data(a, at)?, next_data(b, at)?].into_iter().flatten().min() {
        let len = usize::try_from(common.saturating_sub(start)).map_or(BLOCK, |left| left.min(BLOCK));
        if len == 0 {
            break;
        }
        let (bytes_of_a, bytes_of_b) = (&mut bytes_of_a[..len], &mut bytes_of_b[..len]);
        a.read_exact_at(bytes_of_a, start)?;
        b.read_exact_at(bytes_of_b, start)?;
        if bytes_of_a != bytes_of_b {
            let pairs = bytes_of_a.iter().zip(bytes_of_b.iter());
            different += pairs.filter(|(a, b)| a != b).count() as u64;
        }
        at = start + len as u64;
    }
    Ok(different)
}

/// Returns the offset of the first data at `from` or later; `None` if no data follow.
fn next_data(of: &File, from: u64) -> io::Result<Option<u64>> {
    let from = i64::try_from(from).map_err(io::Error::other)?;
    match lseek(of, from, Whence::SeekData) {
        Ok(at) => Ok(u64::try_from(at).ok()),
        Err(Errno::ENXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_bytes_and_missing_ones_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        write(&a, (2 << 20) + 17, 1).unwrap();
        fs::copy(&a, &b).unwrap();
        assert_eq!(differences(&a, &b).unwrap(), 0);
        let mut bytes = fs::read(&a).unwrap();
        bytes[5] ^= 1;
        bytes[(2 << 20) + 3] ^= 1;
        bytes.pop();
        fs::write(&b, bytes).unwrap();
        assert_eq!(differences(&a, &b).unwrap(), 3);
    }

    #[test]
    fn files_of_a_directory_that_differ_or_are_missing_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        write_small(&a, 3).unwrap();
        write_small(&b, 3).unwrap();
        assert_eq!(differences(&a, &b).unwrap(), 0);
        let mut bytes = fs::read(b.join("0/1")).unwrap();
        bytes[7] ^= 1;
        fs::write(b.join("0/1"), bytes).unwrap();
        fs::remove_file(b.join("0/2")).unwrap();
        assert_eq!(differences(&a, &b).unwrap(), 4_097);
        fs::remove_dir_all(&b).unwrap();
        assert_eq!(differences(&a, &b).unwrap(), 3 * 4_096);
    }

    #[test]
    fn a_byte_in_the_hole_of_a_sparse_file_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let size = 1 << 40;
        write_sparse(&a, size, 16 << 20).unwrap();
        write_sparse(&b, size, 16 << 20).unwrap();
        assert_eq!(differences(&a, &b).unwrap(), 0);
        let out = File::options().write(true).open(&b).unwrap();
        out.write_all_at(b"x", size - 5).unwrap();
        assert_eq!(differences(&a, &b).unwrap(), 1);
        assert_eq!(differences(&b, &a).unwrap(), 1);
    }
}
