//! Fields and properties, appended.

use crate::mqtt::property;

/// The largest Remaining Length (2.1.4).
const REMAINING_LENGTH_MAX: usize = 268_435_455;

/// Appends the fields of one packet.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Appends one packet: the fixed header, then what `body` writes. `least` is how many bytes
    /// that is at least; a body whose length needs no more digits than `least` is never moved.
    #[inline]
    pub fn packet(
        header: u8,
        least: usize,
        out: &'a mut Vec<u8>,
        body: impl FnOnce(&mut Writer<'_>),
    ) {
        out.push(header);
        let length = measured(least, out, |out| body(&mut Writer { out }));
        assert!(
            length <= REMAINING_LENGTH_MAX,
            "2.1.4: a packet of {length} bytes"
        );
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    pub fn truncate(&mut self, length: usize) {
        self.out.truncate(length);
    }

    #[inline]
    pub fn byte(&mut self, value: u8) {
        self.out.push(value);
    }

    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    #[inline]
    pub fn short(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    #[inline]
    pub fn long(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    #[inline]
    pub fn variable(&mut self, value: u32) {
        let (digits, length) = variable(value as usize);
        self.bytes(&digits[..length]);
    }

    #[inline]
    pub fn binary(&mut self, bytes: &[u8]) {
        let length = u16::try_from(bytes.len()).expect("1.5.6: binary data above 65,535 bytes");
        self.short(length);
        self.bytes(bytes);
    }

    #[inline]
    pub fn text(&mut self, text: &str) {
        self.binary(text.as_bytes());
    }

    /// Appends the property section that `write` fills (2.2.2).
    #[inline]
    pub fn properties(&mut self, write: impl FnOnce(&mut Properties<'_>)) {
        measured(0, self.out, |out| {
            let out = Writer { out };
            write(&mut Properties { out });
        });
    }
}

/// Appends properties; one that is None is left out.
pub struct Properties<'a> {
    out: Writer<'a>,
}

impl<'a> Properties<'a> {
    /// Begins a property; its value follows.
    fn id(&mut self, id: u32) -> &mut Writer<'a> {
        self.out.byte(id as u8);
        &mut self.out
    }

    pub fn byte(&mut self, id: u32, value: Option<u8>) {
        if let Some(value) = value {
            self.id(id).byte(value);
        }
    }

    pub fn flag(&mut self, id: u32, value: Option<bool>) {
        if let Some(value) = value {
            self.id(id).byte(value.into());
        }
    }

    pub fn short(&mut self, id: u32, value: Option<u16>) {
        if let Some(value) = value {
            self.id(id).short(value);
        }
    }

    pub fn long(&mut self, id: u32, value: Option<u32>) {
        if let Some(value) = value {
            self.id(id).long(value);
        }
    }

    pub fn variable(&mut self, id: u32, value: Option<u32>) {
        if let Some(value) = value {
            self.id(id).variable(value);
        }
    }

    pub fn text(&mut self, id: u32, value: Option<&str>) {
        if let Some(value) = value {
            self.id(id).text(value);
        }
    }

    pub fn binary(&mut self, id: u32, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.id(id).binary(value);
        }
    }

    pub fn user(&mut self, pairs: &[(&str, &str)]) {
        for (name, value) in pairs {
            let out = self.id(property::USER_PROPERTY);
            out.text(name);
            out.text(value);
        }
    }
}

/// Appends a property section of 5.0: properties as they were encoded, and user properties more.
pub fn section(encoded: &[u8], more: &[(&str, &str)], out: &mut Vec<u8>) {
    let more_bytes: usize = more
        .iter()
        .map(|pair| 5 + pair.0.len() + pair.1.len())
        .sum();
    let length = encoded.len() + more_bytes;
    out.reserve(4 + length);
    measured(length, out, |out| {
        out.extend_from_slice(encoded);
        let out = Writer { out };
        Properties { out }.user(more);
    });
}

/// Appends the length of what `write` appends, as a variable byte integer, and then that;
/// returns the length. Room is made for the digits of `least`, and more is found by moving.
#[inline]
fn measured(least: usize, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> usize {
    let (digits, room) = variable(least);
    let start = out.len();
    out.extend_from_slice(&digits[..room]);
    write(out);
    let length = out.len() - start - room;
    let (digits, needed) = variable(length);
    if needed == room {
        out[start..start + room].copy_from_slice(&digits[..room]);
    } else {
        out.splice(start..start + room, digits[..needed].iter().copied());
    }
    length
}

/// The digits of a variable byte integer (1.5.5) and how many there are.
#[inline]
fn variable(mut value: usize) -> ([u8; 4], usize) {
    let mut digits = [0; 4];
    for (index, digit) in digits.iter_mut().enumerate() {
        *digit = (value & 0x7F) as u8;
        value >>= 7;
        if value == 0 {
            return (digits, index + 1);
        }
        *digit |= 0x80;
    }
    (digits, 4)
}
