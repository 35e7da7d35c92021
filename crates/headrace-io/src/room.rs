//! What a file system has left, and what people can do where it refuses.

use std::io;
use std::path::Path;

/// What this process may still use of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) bytes: u64,
    /// Inodes; None where these are made as they are needed.
    pub(crate) files: Option<u64>,
}

impl Room {
    /// That of `path`, where the file system tells.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
        let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the path is NUL-terminated; the kernel fills the struct where it returns 0.
        unsafe {
            (libc::statvfs(path.as_ptr(), found.as_mut_ptr()) == 0).then(|| {
                let found = found.assume_init();
                Self {
                    bytes: found.f_bavail * found.f_frsize,
                    files: (found.f_files > 0).then_some(found.f_favail),
                }
            })
        }
    }
}

/// What to do about `error`, met below `folder`.
pub(crate) fn remedy(error: &io::Error, room: Option<Room>, folder: &Path) -> String {
    let folder = folder.display();
    match error.raw_os_error() {
        Some(libc::ENOSPC) => match room {
            Some(Room { files: Some(0), .. }) => {
                format!("no inode of the file system of {folder} is left; remove files there")
            }
            Some(Room { bytes, .. }) => {
                format!("{folder} has {bytes} bytes free; free space there, or mend the quota")
            }
            None => format!("free space at {folder}"),
        },
        Some(libc::EDQUOT) => format!("raise the quota of this user, or free space at {folder}"),
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n)".into(),
        Some(libc::EACCES | libc::EPERM) => "give this user access to it".into(),
        Some(libc::EROFS) => "mount the file system writable".into(),
        Some(libc::ENOTDIR | libc::EISDIR) => {
            "what stands there is no part of a data folder; move it away".into()
        }
        _ => "check the disk and its mount".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_is_one_for_what_went_wrong() {
        let said = |code, room| remedy(&io::Error::from_raw_os_error(code), room, Path::new("/d"));
        let room = |bytes, files| Some(Room { bytes, files });
        let cases = [
            (
                libc::ENOSPC,
                room(0, Some(5)),
                "/d has 0 bytes free; free space there",
            ),
            (
                libc::ENOSPC,
                room(9, Some(0)),
                "no inode of the file system of /d is left",
            ),
            (libc::ENOSPC, None, "free space at /d"),
            (libc::EDQUOT, None, "quota"),
            (libc::EMFILE, None, "ulimit -n"),
            (libc::EACCES, None, "give this user access"),
            (libc::EROFS, None, "mount the file system writable"),
            (libc::ENOTDIR, None, "move it away"),
            (libc::EIO, None, "check the disk and its mount"),
        ];
        for (code, room, part) in cases {
            assert!(
                said(code, room).contains(part),
                "{code}: {}",
                said(code, room)
            );
        }
    }
}
