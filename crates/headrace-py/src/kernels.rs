//! Paths of the core alone, for `headrace.bench.suite`.
use headrace_core::testing::kernels::{self, kernel};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A loop over one path.
#[pyclass(module = "headrace._native")]
struct Kernel(Box<dyn kernels::Kernel>);

#[pymethods]
impl Kernel {
    #[classattr]
    const OPTIMISED: bool = !cfg!(debug_assertions);

    #[new]
    fn new(name: &str, of: u32, payload: usize) -> PyResult<Self> {
        let made = kernel(name, of, payload).map(Self);
        made.ok_or_else(|| PyValueError::new_err(format!("there is no kernel {name:?}")))
    }

    fn run(&mut self, py: Python<'_>, operations: u64) -> u64 {
        py.detach(|| self.0.run(operations))
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Kernel>()
}
