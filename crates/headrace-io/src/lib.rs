//! Performs what `headrace-core` decides: disk effects, on native threads, outside Python's lock.
//!
//! Owns: descriptors, the flusher, the keeper and the reader threads, the pace of a compaction, the
//! data folder's lock, the eventfd.
//! Must not know: what the bytes mean, which effect comes next, when something is durable.

mod calls;
mod compactor;
mod descriptors;
mod files;
mod folder;
mod keeping;
mod leftovers;
mod lock;
mod reading;
mod room;
mod shared;
mod store;
mod together;
mod turns;
mod wake;
mod warm;

pub use files::Files;
pub use folder::Folder;
pub use reading::{Found, ReadEnd};
pub use store::Store;
