//! Shared mappings.
//!
//! # Argument
//! A [`Mapping`] is made at an address that was free, so it overlaps no other memory of the process, and is unmapped
//! only on drop. The module never accesses the mapped bytes: its users do so through raw pointers, and keep the mapping
//! as long as a pointer into it.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use std::ffi::c_void;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping, readable and writable, of a part of a file.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; the type itself accesses no byte of it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `size` bytes of a file from an offset, which is a multiple of the page size. Pages are allocated when they
    /// are accessed first.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(file: impl AsFd, offset: u64, size: usize) -> Result<Mapping, Errno> {
        Mapping::map(core::ptr::null_mut(), file, offset, size, MapFlags::SHARED)
    }

    /// Maps the first `size` bytes of a file and allocates all pages, so that no access waits for a page fault.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn populated(file: impl AsFd, size: usize) -> Result<Mapping, Errno> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        Mapping::map(core::ptr::null_mut(), file, 0, size, flags)
    }

    /// Maps `size` bytes of a file from an offset at an address that must be free.
    ///
    /// # Errors
    /// The kernel's error; `EEXIST` if the address range is in use.
    pub fn at(address: usize, file: impl AsFd, offset: u64, size: usize) -> Result<Mapping, Errno> {
        let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
        let wanted = core::ptr::without_provenance_mut(address);
        let mapping = Mapping::map(wanted, file, offset, size, flags)?;
        // Kernels before 4.17 take the address as a hint.
        if mapping.start.addr().get() != address {
            return Err(Errno::EXIST);
        }
        Ok(mapping)
    }

    fn map(
        address: *mut c_void,
        file: impl AsFd,
        offset: u64,
        size: usize,
        flags: MapFlags,
    ) -> Result<Mapping, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without MAP_FIXED the kernel replaces no mapping, so the new one overlaps no other memory.
        let start = unsafe { mmap(address, size, protection, flags, file, offset) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Mapping { start, size })
    }

    /// Returns the address of the first byte.
    #[inline(always)]
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the size in bytes.
    #[inline(always)]
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let start: *mut c_void = self.start.as_ptr().cast();
        // SAFETY: `map` mapped exactly these bytes; users keep the mapping as long as a pointer into it.
        let _unmapped = unsafe { munmap(start, self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create;

    #[test]
    fn a_mapping_replaces_no_other_and_its_address_is_free_afterwards() {
        let file = create("test", 8192).unwrap();
        let first = Mapping::new(&file, 4096, 4096).unwrap();
        let address = first.start().addr().get();
        assert_eq!(first.size(), 4096);
        assert_eq!(
            Mapping::at(address, &file, 0, 4096).err(),
            Some(Errno::EXIST),
            "the address is in use"
        );
        drop(first);
        let again = Mapping::at(address, &file, 0, 4096).unwrap();
        assert_eq!(again.start().addr().get(), address);
        assert!(Mapping::populated(&file, 8192).is_ok());
        assert!(Mapping::new(&file, 0, 0).is_err(), "nothing to map");
    }
}
