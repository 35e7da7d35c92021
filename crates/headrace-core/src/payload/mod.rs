//! What telemetry messages say: their values to Arrow columns, one row for each reading or message.
//!
//! [`Readings`] takes the payloads of GPU telemetry in any form that an exporter or collector
//! sends (JSON, narrow or wide; Prometheus text; CSV) and judges each value from its text.
//! [`Rows`] takes JSON or CSV of any kind apart by a schema. Nothing is ever dropped: what cannot
//! be read comes out as a row that says so.
//!
//! Knows no field of any device: names, units and ranges are handed in.

mod arrow;
mod csv;
mod instant;
mod json;
mod number;
mod prometheus;
mod readings;
mod rows;
mod text;

pub use arrow::{Bytes, Column, Flags, Numbers};
pub use instant::instant;
pub use readings::{Field, Message, ReadingColumns, Readings};
pub use rows::{Format, Kind, RowColumns, Rows};
