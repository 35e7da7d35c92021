//! What telemetry messages say, for Python: Arrow buffers of readings and of typed rows.

use headrace_core::hash::Key;
use headrace_core::payload::{
    Column, Field, Format, Kind, Message, ReadingColumns, Readings, Rows,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::records::{Buffer, RecordColumns};

/// Validity bitmap, and the buffers of the layout.
type Buffers = (Option<Py<Buffer>>, Vec<Py<Buffer>>);

fn buffers(py: Python<'_>, column: Column) -> PyResult<Buffers> {
    let buffer = |bytes| Py::new(py, Buffer::new(bytes));
    let validity = column.validity.map(buffer).transpose()?;
    let rest = column.buffers.into_iter().map(buffer);
    Ok((validity, rest.collect::<PyResult<_>>()?))
}

/// Canonical name, id, unit, counter, integer, low, high.
type PyField = (String, Option<i32>, String, bool, bool, f64, f64);

/// Reads GPU telemetry of one partition, in its order.
#[pyclass(module = "headrace._native")]
struct ReadingDecoder(Readings);

/// Rows, the record to go on with, named columns, and lists, names and values of the labels.
type PyReadings = (usize, usize, Vec<(&'static str, Buffers)>, Vec<Buffers>);

#[pymethods]
impl ReadingDecoder {
    #[new]
    #[pyo3(signature = (fields, names, *, future_us, newest_us))]
    fn new(
        fields: Vec<PyField>,
        names: Vec<(String, usize)>,
        future_us: Option<i64>,
        newest_us: Option<i64>,
    ) -> PyResult<Self> {
        if let Some((name, _)) = names.iter().find(|(_, at)| *at >= fields.len()) {
            return Err(PyValueError::new_err(format!("{name} has no field")));
        }
        let fields = fields
            .into_iter()
            .map(|(name, id, unit, counter, integer, low, high)| Field {
                name,
                id,
                unit,
                counter,
                integer,
                low,
                high,
            });
        // The names are ours, and nobody adds to them: no key needs to be secret.
        let key = Key::default();
        Ok(Self(Readings::new(
            key,
            fields.collect(),
            names,
            future_us,
            newest_us,
        )))
    }

    fn read(
        &mut self,
        py: Python<'_>,
        records: &Bound<'_, RecordColumns>,
        start: usize,
        rows_max: usize,
    ) -> PyResult<PyReadings> {
        let records = records.get();
        let readings = &mut self.0;
        let (columns, next) = py.detach(|| {
            let mut columns = ReadingColumns::default();
            let mut next = start;
            while next < records.records && !columns.is_full(rows_max) {
                readings.read(&message(records, next), &mut columns);
                next += 1;
            }
            (columns, next)
        });
        let rows = columns.rows();
        let (named, labels) = columns.finish();
        let named = named
            .into_iter()
            .map(|(name, column)| Ok((name, buffers(py, column)?)))
            .collect::<PyResult<_>>()?;
        let labels = labels.into_iter().map(|column| buffers(py, column));
        Ok((rows, next, named, labels.collect::<PyResult<_>>()?))
    }
}

fn message(records: &RecordColumns, row: usize) -> Message<'_> {
    let mut message = Message {
        offset: records.offset(row),
        stored_us: records.timestamp_us(row),
        value: records.value(row),
        ..Message::default()
    };
    for (name, value) in records.headers(row) {
        match name {
            b"source" => message.source = message.source.or(value),
            b"epoch" => message.epoch = message.epoch.or(value),
            b"sequence" => message.sequence = message.sequence.or(value),
            _ => {}
        }
    }
    message
}

/// Reads JSON or CSV by a schema.
#[pyclass(frozen, module = "headrace._native")]
struct RowDecoder(Rows);

#[pymethods]
impl RowDecoder {
    #[new]
    fn new(format: &str, schema: Vec<(String, String)>) -> PyResult<Self> {
        let format = match format {
            "json" => Format::Json,
            "csv" => Format::Csv,
            other => return Err(unknown("format", other)),
        };
        let kind = |name: &str| match name {
            "string" => Ok(Kind::Text),
            "boolean" => Ok(Kind::Boolean),
            "int" => Ok(Kind::Int),
            "bigint" => Ok(Kind::Long),
            "double" => Ok(Kind::Double),
            "timestamp" => Ok(Kind::Timestamp),
            other => Err(unknown("kind", other)),
        };
        let schema = schema
            .into_iter()
            .map(|(name, of)| Ok((name, kind(&of)?)))
            .collect::<PyResult<Vec<_>>>()?;
        Ok(Self(Rows::new(format, schema)))
    }

    fn read(
        &self,
        py: Python<'_>,
        records: &Bound<'_, RecordColumns>,
    ) -> PyResult<(Vec<Buffers>, Buffers)> {
        let records = records.get();
        let rows = py.detach(|| {
            self.0
                .read((0..records.records).map(|row| records.value(row)))
        });
        let columns = rows.columns.into_iter().map(|column| buffers(py, column));
        Ok((
            columns.collect::<PyResult<_>>()?,
            buffers(py, rows.corrupt)?,
        ))
    }
}

fn unknown(what: &str, name: &str) -> PyErr {
    PyValueError::new_err(format!("no {what} {name:?}"))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ReadingDecoder>()?;
    module.add_class::<RowDecoder>()
}
