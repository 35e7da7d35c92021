//! What is kept beside a log in files `<offset>.<kind>`, each true of all records below its offset.
//!
//! Invariants. A file has its name only when it is whole and durable, in a folder that is durable:
//! a young log's folder is else the journal's to make again, without it. An older one goes only
//! then. What a crash kept from its name goes with the next start. A file says of which offset it is, so that one under another name is never believed.

use super::codec::{seal, unseal, Put, Take};
use super::disk::{Disk, DiskOp, Path};
use super::error::Error;
use super::layout;
use super::partition::{replace, Log};
use super::scan;

/// One kind of such files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// As their names end.
    pub(super) name: &'static str,
    pub(super) magic: [u8; 8],
}

/// Those of one log.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    kind: Kind,
    folder: Path,
    /// The folder above it.
    stream: Path,
}

impl Kind {
    /// What a file tells that is of `offset`; None where it is not whole.
    pub(super) fn body(self, file: &[u8], offset: i64) -> Option<&[u8]> {
        let mut take = Take(unseal(self.magic, file)?);
        (take.i64()? == offset).then_some(take.0)
    }
}

impl Kept {
    pub(super) fn beside(log: &Log, kind: Kind) -> Self {
        Self {
            kind,
            folder: log.folder.clone(),
            stream: layout::stream_folder(&log.stream),
        }
    }

    pub(super) fn file(&self, offset: i64) -> Path {
        layout::file(&self.folder, offset, self.kind.name)
    }

    /// Of which there are files, ascending.
    pub(super) fn offsets(&self, disk: &impl Disk) -> Result<Vec<i64>, Error> {
        Ok(layout::offsets(&disk.list(&self.folder)?, self.kind.name))
    }

    /// What the file of `offset` tells; None where that is damaged or missing.
    pub(super) fn get(&self, disk: &impl Disk, offset: i64) -> Result<Option<Vec<u8>>, Error> {
        let file = scan::side_file(disk, &self.file(offset))?;
        Ok(self.kind.body(&file, offset).map(<[u8]>::to_vec))
    }

    /// The effects that keep `body`, whereupon what is kept of `older` offsets goes.
    pub(super) fn put(
        &self,
        offset: i64,
        body: &[u8],
        older: impl IntoIterator<Item = i64>,
    ) -> Vec<DiskOp> {
        let mut sealed = Vec::with_capacity(8 + body.len());
        sealed.put_i64(offset);
        sealed.extend_from_slice(body);
        // Not the name of another: a power cut may have left both of its names.
        let fresh = layout::unfinished(&self.file(offset));
        let mut ops = Vec::new();
        replace(&mut ops, fresh.clone(), seal(self.kind.magic, &sealed));
        ops.push(DiskOp::Sync {
            path: fresh.clone(),
        });
        ops.push(DiskOp::Close {
            path: fresh.clone(),
        });
        ops.push(DiskOp::Rename {
            from: fresh,
            to: self.file(offset),
        });
        let folders = [
            layout::STREAMS.into(),
            self.stream.clone(),
            self.folder.clone(),
        ];
        ops.extend(folders.map(|path| DiskOp::SyncFolder { path }));
        let older = older.into_iter().map(|offset| self.file(offset));
        ops.extend(older.map(|path| DiskOp::LetGo { path }));
        ops
    }
}
