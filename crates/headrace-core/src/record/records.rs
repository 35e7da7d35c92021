//! The records of one batch, borrowed from its (decompressed) body.

use super::header::BatchHeader;
use super::source::Source;
use super::varint::{take, take_i32};
use super::Fault;

/// One record.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// Its offset.
    pub offset: i64,
    /// Milliseconds since 1970-01-01T00:00:00Z; -1 for none.
    pub timestamp: i64,
    /// Key, or null.
    pub key: Option<&'a [u8]>,
    /// Value, or null.
    pub value: Option<&'a [u8]>,
    /// Headers, in order.
    pub headers: Headers<'a>,
}

impl<'a> Record<'a> {
    /// The value of the first header called `name`; None where it is missing or null.
    pub fn header(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.headers.clone().find(|(key, _)| *key == name)?.1
    }

    /// Who published the record, as its headers say; to be believed in a batch that was
    /// [published](BatchHeader::is_published) alone, for anybody may produce such headers.
    pub fn source(&self) -> Option<Source<'a>> {
        let headers = self.headers.clone();
        Source::find(headers.filter_map(|(name, value)| Some((name, value?))))
    }
}

/// The headers of a record; a record that was returned holds none that is malformed.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    data: &'a [u8],
    count: u32,
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        let name = take_bytes(&mut self.data).ok()??;
        let value = take_bytes(&mut self.data).ok()?;
        Some((name, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count as usize, Some(self.count as usize))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// Where a walk of a batch's records is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Records read.
    pub index: u32,
    /// Bytes of the body that were not.
    pub bytes_left: usize,
}

/// Walks the records of a body; ends after the first error.
///
/// A body holds exactly the records that its header counts: less and more are both errors.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    base_offset: i64,
    base_timestamp: i64,
    append_time: Option<i64>,
    index: u32,
    count: u32,
}

impl<'a> Records<'a> {
    /// The records of `body`, which is decompressed.
    pub fn new(header: &BatchHeader, body: &'a [u8]) -> Self {
        Self {
            rest: body,
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            append_time: header.is_log_append_time().then_some(header.max_timestamp),
            index: 0,
            count: header.count.max(0) as u32,
        }
    }

    /// Those behind the first `index`, of which `rest` of the body has not been read.
    pub(crate) fn resume(header: &BatchHeader, rest: &'a [u8], index: u32) -> Self {
        let records = Self::new(header, rest);
        Self {
            index: index.min(records.count),
            ..records
        }
    }

    /// Where a walk is, for one that goes on with it.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            index: self.index,
            bytes_left: self.rest.len(),
        }
    }

    /// Bytes of the body that were not read yet.
    pub(crate) fn bytes_left(&self) -> usize {
        self.rest.len()
    }

    fn wrong(&mut self, part: &'static str) -> Fault {
        let index = self.index;
        self.index = self.count;
        self.rest = &[];
        Fault::Record { index, part }
    }

    #[inline]
    fn parse(&mut self) -> Result<Record<'a>, &'static str> {
        let length = take_i32(&mut self.rest).ok_or("length")?;
        let length = usize::try_from(length).map_err(|_| "length")?;
        if length > self.rest.len() {
            return Err("length");
        }
        let (mut record, rest) = self.rest.split_at(length);
        self.rest = rest;
        // The attributes of a record are unused (KIP-98).
        record = record.split_first().ok_or("attributes")?.1;
        let timestamp_delta = take(&mut record).ok_or("timestamp")?;
        let offset_delta = take_i32(&mut record).ok_or("offset")?;
        let key = take_bytes(&mut record).map_err(|_| "key")?;
        let value = take_bytes(&mut record).map_err(|_| "value")?;
        let headers = take_headers(record)?;
        let timestamp = self.base_timestamp.wrapping_add(timestamp_delta);
        Ok(Record {
            offset: self.base_offset.wrapping_add(i64::from(offset_delta)),
            timestamp: self.append_time.unwrap_or(timestamp),
            key,
            value,
            headers,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Fault>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.index == self.count {
            return (!self.rest.is_empty()).then(|| Err(self.wrong("end of the batch")));
        }
        match self.parse() {
            Ok(record) => {
                self.index += 1;
                Some(Ok(record))
            }
            Err(part) => Some(Err(self.wrong(part))),
        }
    }
}

struct Malformed;

/// Takes a varint length, then so many bytes; a length of -1 is a null.
#[inline]
fn take_bytes<'a>(data: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
    let length = take_i32(data).ok_or(Malformed)?;
    if length < 0 {
        return if length == -1 {
            Ok(None)
        } else {
            Err(Malformed)
        };
    }
    let (bytes, rest) = data.split_at_checked(length as usize).ok_or(Malformed)?;
    *data = rest;
    Ok(Some(bytes))
}

/// The headers that fill the rest of a record, each checked once so that a walk cannot fail.
#[inline]
fn take_headers(mut data: &[u8]) -> Result<Headers<'_>, &'static str> {
    let count = take_i32(&mut data).ok_or("header count")?;
    let headers = Headers {
        data,
        count: u32::try_from(count).map_err(|_| "header count")?,
    };
    for _ in 0..headers.count {
        take_bytes(&mut data).ok().flatten().ok_or("header name")?;
        take_bytes(&mut data).map_err(|_| "header value")?;
    }
    if data.is_empty() {
        Ok(headers)
    } else {
        Err("length")
    }
}
