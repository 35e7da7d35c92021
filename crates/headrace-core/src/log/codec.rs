//! Big-endian integers in and out of buffers, and the frame of small side files.

/// Appends integers and counted bytes.
pub(super) trait Put {
    fn put_u8(&mut self, value: u8);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    fn put_i64(&mut self, value: i64);
    /// A number that may be missing, which the least number stands for.
    fn put_maybe(&mut self, value: Option<i64>);
    fn put_text(&mut self, text: &str);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_i64(&mut self, value: i64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_maybe(&mut self, value: Option<i64>) {
        self.put_i64(value.unwrap_or(i64::MIN));
    }

    fn put_text(&mut self, text: &str) {
        self.put_u32(text.len() as u32);
        self.extend_from_slice(text.as_bytes());
    }
}

/// Takes integers off the front; None where the bytes end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Take<'a>(pub(super) &'a [u8]);

impl<'a> Take<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = self.u32()?;
        std::str::from_utf8(self.bytes(length as usize)?).ok()
    }
}

/// What [`Put::put_maybe`] put.
pub(super) fn maybe(value: i64) -> Option<i64> {
    (value != i64::MIN).then_some(value)
}

/// A side file: magic, CRC-32C of the body, body.
pub(super) fn seal(magic: [u8; 8], body: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(12 + body.len());
    file.extend_from_slice(&magic);
    file.put_u32(crc32c::crc32c(body));
    file.extend_from_slice(body);
    file
}

/// The body of a side file, or None where it is not whole.
pub(super) fn unseal(magic: [u8; 8], file: &[u8]) -> Option<&[u8]> {
    let mut take = Take(file);
    let found = take.array::<8>()?;
    let crc = take.u32()?;
    (found == magic && crc == crc32c::crc32c(take.0)).then_some(take.0)
}
