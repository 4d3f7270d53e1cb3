//! Writes the files to be sent, from a seed, and compares them with the files that arrived.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

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

/// Returns the number of bytes that differ, including a difference in size.
pub(super) fn differences(left: &Path, right: &Path) -> Result<u64, TransportBenchError> {
    let (mut a, mut b) = (
        File::open(left).map_err(file(left))?,
        File::open(right).map_err(file(right))?,
    );
    let (mut of_a, mut of_b) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut different = 0;
    loop {
        let read = |from: &mut File, buffer: &mut [u8], path: &Path| -> Result<usize, TransportBenchError> {
            let mut len = 0;
            while len < buffer.len() {
                match from.read(&mut buffer[len..]).map_err(file(path))? {
                    0 => break,
                    more => len += more,
                }
            }
            Ok(len)
        };
        let (first, second) = (read(&mut a, &mut of_a, left)?, read(&mut b, &mut of_b, right)?);
        let common = first.min(second);
        if of_a[..common] != of_b[..common] {
            let pairs = of_a[..common].iter().zip(&of_b[..common]);
            different += pairs.filter(|(a, b)| a != b).count() as u64;
        }
        different += first.abs_diff(second) as u64;
        if first < BLOCK && second < BLOCK {
            return Ok(different);
        }
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
}
