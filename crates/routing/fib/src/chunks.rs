//! A vector that grows while others read it: elements never move, and are never freed before the vector is.

use std::sync::OnceLock;

/// The number of elements in a chunk.
pub(crate) const CHUNK_LEN: usize = 4096;
/// The maximum number of chunks. An index has 24 bits.
const CHUNKS: usize = 4096;

/// The index of an element: 24 bits.
pub(crate) const INDEX_MAX: u32 = (CHUNK_LEN * CHUNKS - 1) as u32;

#[derive(Debug)]
pub(crate) struct Chunks<T> {
    chunks: Box<[OnceLock<Box<[T; CHUNK_LEN]>>]>,
}

impl<T: Default> Chunks<T> {
    pub(crate) fn new() -> Chunks<T> {
        Chunks {
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Returns an element; `None` if its chunk has not been made.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let chunk = self.chunks.get(index as usize / CHUNK_LEN)?.get()?;
        Some(&chunk[index as usize % CHUNK_LEN])
    }

    /// Returns the chunk of an element, and the position of the element in it.
    #[inline(always)]
    pub(crate) fn chunk(&self, index: u32) -> Option<(&[T; CHUNK_LEN], usize)> {
        let chunk = self.chunks.get(index as usize / CHUNK_LEN)?.get()?;
        Some((chunk, index as usize % CHUNK_LEN))
    }

    /// Makes the chunk of an element, if it is not there.
    pub(crate) fn make(&self, index: u32) {
        if let Some(chunk) = self.chunks.get(index as usize / CHUNK_LEN) {
            chunk.get_or_init(|| {
                let elements: Vec<T> = (0..CHUNK_LEN).map(|_| T::default()).collect();
                // The vector has the length of the array, so the second form is never made.
                elements
                    .into_boxed_slice()
                    .try_into()
                    .unwrap_or_else(|_| Box::new(core::array::from_fn(|_| T::default())))
            });
        }
    }

    /// Returns the memory of the elements and of the directory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let made = self.chunks.iter().filter(|chunk| chunk.get().is_some()).count();
        made * CHUNK_LEN * size_of::<T>() + size_of_val(&*self.chunks)
    }
}
