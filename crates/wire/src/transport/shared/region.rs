//! Memory that several processes of one machine map.
//!
//! It is an anonymous file (`memfd`): it has no name that could be left behind, and it goes away with
//! its last user, however that ends. Another process opens it through the owner's `/proc` entry, which
//! the system allows to the same user only. Its size is sealed, so that no process can shrink it while
//! another reads. A random token at its beginning shows whether the right memory was opened: in
//! another container the same process number is another process.

#![allow(unsafe_code)]

use crate::handshake::Offer;
use crate::key::random;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;

/// Bytes before the payload: the token, and nothing else, so that the payload begins on a page.
const FRONT: usize = 4096;

/// When memory takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// When it is mapped: a fault in the middle of a sum costs more.
    AtOnce,
    /// When it is touched. A hundred workers have 4,950 links, and would take gigabytes for the few that carry much.
    WhenUsed,
}

/// A mapped piece of shared memory.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    /// Bytes mapped, `FRONT` included.
    mapped: usize,
}

// SAFETY: a region is an address and a length; what threads do with the memory is up to those who take
// pointers from it.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// A region of our own, and what others need to find it, as long as its file is open.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) region: Region,
    token: [u8; 16],
    file: File,
}

/// Which machine this is, as far as shared memory goes: the same kernel and the same process numbers.
pub(crate) fn machine() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let processes = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), processes.display()))
}

impl Region {
    /// New memory of that many bytes, all zero.
    pub(crate) fn create(bytes: usize, pages: Pages) -> io::Result<Owned> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a string with an end; the call gives a new descriptor or an error.
        let descriptor = unsafe { libc::memfd_create(c"paceline".as_ptr(), flags) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        let file = unsafe { File::from_raw_fd(descriptor) };
        let mapped = FRONT + bytes;
        file.set_len(mapped as u64)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: a plain call on an open descriptor.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let region = Self::map(&file, mapped, pages)?;
        let token: [u8; 16] = random().map_err(io::Error::other)?;
        // SAFETY: the mapping has at least `FRONT` bytes, and no other process knows it yet.
        unsafe { region.start.copy_from_nonoverlapping(NonNull::from(&token).cast(), 16) };
        Ok(Owned { region, token, file })
    }

    /// Memory of another process, which must have that many bytes.
    pub(crate) fn open(offer: &Offer, bytes: usize, pages: Pages) -> io::Result<Self> {
        let path = format!("/proc/{}/fd/{}", offer.process, offer.descriptor);
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mapped = FRONT + bytes;
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        if file.metadata()?.len() != mapped as u64 {
            return Err(wrong("shared memory of another size"));
        }
        // SAFETY: a plain call on an open descriptor; on anything but a memfd it is an error.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(wrong("shared memory that another process could shrink"));
        }
        let region = Self::map(&file, mapped, pages)?;
        let mut token = [0; 16];
        // SAFETY: the mapping has at least `FRONT` bytes, and the token is never written again.
        unsafe { region.start.copy_to_nonoverlapping(NonNull::from(&mut token).cast(), 16) };
        if token != offer.token {
            return Err(wrong("shared memory of another process than expected"));
        }
        Ok(region)
    }

    fn map(file: &File, mapped: usize, pages: Pages) -> io::Result<Self> {
        let flags = match pages {
            Pages::AtOnce => libc::MAP_SHARED | libc::MAP_POPULATE,
            Pages::WhenUsed => libc::MAP_SHARED,
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the system's choice; the file is as long.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), mapped, access, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, mapped })
    }

    /// First byte of the payload; on a page boundary.
    pub(crate) fn payload(&self) -> NonNull<u8> {
        // SAFETY: the mapping has at least `FRONT` bytes.
        unsafe { self.start.add(FRONT) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped; every holder of pointers into it holds the region too.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

impl Owned {
    /// What another process needs to map it, good until the file is dropped.
    pub(crate) fn offer(&self) -> Offer {
        Offer { process: std::process::id(), descriptor: self.file.as_raw_fd(), token: self.token }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_see_the_same_bytes_and_only_the_right_memory_is_taken() {
        let owned = Region::create(10_000, Pages::AtOnce).unwrap();
        let offer = owned.offer();
        let other = Region::open(&offer, 10_000, Pages::WhenUsed).unwrap();
        // SAFETY: within both mappings; one thread.
        unsafe {
            owned.region.payload().add(9_999).write(42);
            assert_eq!(other.payload().add(9_999).read(), 42);
        }
        assert!(Region::open(&offer, 10_001, Pages::WhenUsed).is_err());
        let wrong = Offer { token: [1; 16], ..offer.clone() };
        assert!(Region::open(&wrong, 10_000, Pages::WhenUsed).is_err());
        let descriptor = owned.file.as_raw_fd();
        // SAFETY: a plain call; the seal refuses it.
        assert!(unsafe { libc::ftruncate(descriptor, 10) } < 0, "memory can be taken away");
    }

    #[test]
    fn an_ordinary_file_is_not_taken_for_memory() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(FRONT as u64 + 100).unwrap();
        let (process, descriptor) = (std::process::id(), file.as_raw_fd());
        let offer = Offer { process, descriptor, token: [0; 16] };
        assert!(Region::open(&offer, 100, Pages::WhenUsed).is_err());
    }
}
