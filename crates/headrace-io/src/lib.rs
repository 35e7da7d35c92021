//! Performs what `headrace-core` decides: disk effects, on native threads, outside Python's lock.
//!
//! Owns: descriptors, the flusher and the keeper thread, the data folder's lock, the eventfd.
//! Must not know: what the bytes mean, which effect comes next, when something is durable.

mod files;
mod lock;
mod store;
mod wake;

pub use files::Files;
pub use store::Store;
