//! Lines of the CSV in which GPU telemetry circulates.
//!
//! Source: the columns as dcgm-exporter's users keep them; RFC 4180 for the quotes.

use ::csv::{ByteRecord, Reader, ReaderBuilder};

/// Columns of a line without a header of its own.
const COLUMNS: [&str; 12] = [
    "timestamp",
    "metric_name",
    "gpu_id",
    "device",
    "uuid",
    "modelName",
    "Hostname",
    "container",
    "pod",
    "namespace",
    "value",
    "labels_raw",
];

/// One line: its fields, by the names of the columns.
pub struct Line<'a> {
    /// The line as it came, without its end.
    pub text: &'a str,
    names: &'a ByteRecord,
    fields: &'a ByteRecord,
}

impl Line<'_> {
    /// The field in the column `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self
            .names
            .iter()
            .position(|known| known == name.as_bytes())?;
        let field = self.fields.get(at)?;
        std::str::from_utf8(field).ok()
    }

    /// Whether the line has a field for each column, and none beyond.
    pub fn is_whole(&self) -> bool {
        self.names.len() == self.fields.len()
    }
}

/// Calls `each` with the lines of `text`, which may begin with a header.
pub fn lines(text: &str, mut each: impl FnMut(&Line)) {
    let mut names = ByteRecord::from(COLUMNS.to_vec());
    let mut reader = reader(text);
    let mut fields = ByteRecord::new();
    let mut start = 0;
    // Any text is records of some kind, and reading from memory does not fail.
    while reader.read_byte_record(&mut fields).is_ok_and(|more| more) {
        let end = reader.position().byte() as usize;
        let is_header = start == 0 && fields.iter().any(|field| field == b"metric_name");
        if is_header {
            names = fields.clone();
        } else {
            each(&Line {
                // The reader takes the line feed of CRLF to the next line.
                text: text[start..end].trim_matches(['\r', '\n']),
                names: &names,
                fields: &fields,
            });
        }
        start = end;
    }
}

/// The fields of the first record of `text`; empty where there is none.
pub fn fields(text: &str) -> ByteRecord {
    let mut fields = ByteRecord::new();
    // As above: it does not fail, and what is not there leaves no field.
    let _ = reader(text).read_byte_record(&mut fields);
    fields
}

fn reader(text: &str) -> Reader<&[u8]> {
    ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(text.as_bytes())
}
