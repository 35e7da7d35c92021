//! Python bindings: conversions only. One file per machine; `errors` maps Rust errors once.
use pyo3::prelude::*;

mod access;
mod batches;
mod bench;
mod errors;
mod facts;
mod folder;
mod frames;
mod kernels;
mod payload;
mod records;
mod sessions;
mod spread;
mod store;
mod switchboard;
mod testing;
mod trace;

/// The compiled part of headrace; `headrace.native` re-exports it with types.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    batches::register(module)?;
    bench::register(module)?;
    access::register(module)?;
    errors::register(module)?;
    facts::register(module)?;
    folder::register(module)?;
    frames::register(module)?;
    kernels::register(module)?;
    payload::register(module)?;
    records::register(module)?;
    sessions::register(module)?;
    spread::register(module)?;
    store::register(module)?;
    switchboard::register(module)?;
    testing::register(module)?;
    trace::register(module)
}
