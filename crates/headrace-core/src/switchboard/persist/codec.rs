//! The numbers, texts and options that records are made of.

use std::num::NonZeroU32;

use crate::leb128;
use crate::mqtt::packet::QoS;
use crate::session::{Ids, Places};

/// Begins each value.
pub const VERSION: u8 = 1;

/// Among the options, above the quality of service.
pub const RETAIN: u8 = 1 << 2;

/// What one copy of a message has of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    pub qos: QoS,
    pub retain: bool,
    pub ids: Ids,
}

/// The quality of service among options.
pub fn qos_of(options: u8) -> Option<QoS> {
    match options & 3 {
        0 => Some(QoS::AtMostOnce),
        1 => Some(QoS::AtLeastOnce),
        2 => Some(QoS::ExactlyOnce),
        _ => None,
    }
}

/// A value that is written.
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn new() -> Self {
        Self(vec![VERSION])
    }

    pub fn number(&mut self, number: u64) {
        leb128::write(&mut self.0, number);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Ranges as the gap before each and its length.
    pub fn places(&mut self, places: &Places) {
        self.number(places.next());
        self.number(places.ranges().len() as u64);
        let mut at = 0;
        for (from, to) in places.ranges() {
            self.number(from - at);
            self.number(to - from);
            at = to;
        }
    }

    pub fn copy(&mut self, copy: &Copy) {
        let ids = copy.ids.as_slice();
        let retain = if copy.retain { RETAIN } else { 0 };
        self.0.push(copy.qos as u8 | retain);
        self.number(ids.len() as u64);
        for id in ids {
            self.number((*id).into());
        }
    }
}

/// What is left of a value that is read.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(value: &'a [u8]) -> Option<Self> {
        let (version, rest) = value.split_first()?;
        (*version == VERSION).then_some(Self(rest))
    }

    pub const fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub fn over<T>(&self, read: T) -> Option<T> {
        self.is_over().then_some(read)
    }

    pub fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub fn number(&mut self) -> Option<u64> {
        leb128::read(&mut self.0)
    }

    pub fn number_32(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// The inner None where the session is nobody's.
    #[expect(clippy::option_option, reason = "malformed, and nobody")]
    pub fn user(&mut self) -> Option<Option<(Box<str>, bool)>> {
        let kind = self.byte()?;
        let name = std::str::from_utf8(self.bytes()?).ok()?;
        Some((kind > 0).then(|| (name.into(), kind > 1)))
    }

    /// A packet id, which is never 0.
    pub fn id(&mut self) -> Option<u16> {
        let id = u16::try_from(self.number()?).ok()?;
        (id > 0).then_some(id)
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub fn places(&mut self) -> Option<Places> {
        let next = self.number()?;
        let count = self.number()?;
        let (mut ranges, mut at) = (Vec::new(), 0_u64);
        for _ in 0..count {
            let from = at.checked_add(self.number()?)?;
            at = from.checked_add(self.number()?)?;
            ranges.push((from, at));
        }
        (at <= next).then(|| Places::with_ranges(next, ranges))
    }

    pub fn copy(&mut self) -> Option<Copy> {
        let options = self.byte()?;
        let mut ids = Ids::None;
        for _ in 0..self.number()? {
            ids.add(NonZeroU32::new(self.number_32()?)?.get());
        }
        Some(Copy {
            qos: qos_of(options)?,
            retain: options & RETAIN != 0,
            ids,
        })
    }
}
