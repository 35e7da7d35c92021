//! A PUBLISH as it goes out again and again, and the bytes behind its stamp.
use crate::stamp;
use crate::wire::{write_bytes, write_user_property, write_variable};

/// Bytes of a key that change.
const KEY_END: usize = 9;

/// A PUBLISH up to its [`Body`]; packet id, key and stamp are filled in as it goes out.
pub(crate) struct Template {
    pub(crate) bytes: Vec<u8>,
    /// Where the packet id lies, at `QoS` 1 and 2.
    pub(crate) id: Option<usize>,
    /// Where the end of the key lies.
    pub(crate) key: Option<usize>,
    /// Where the payload begins, with its stamp.
    pub(crate) payload: usize,
}

impl Template {
    /// With a key, user property `partition-key`, where there is one; its last nine bytes change.
    pub(crate) fn new(
        version: u8,
        topic: &str,
        qos: u8,
        payload: usize,
        key: Option<&str>,
    ) -> Self {
        let mut head = Vec::with_capacity(topic.len() + 16);
        write_bytes(topic.as_bytes(), &mut head);
        let id = (qos > 0).then_some(head.len());
        if qos > 0 {
            head.extend([0, 0]);
        }
        let mut properties = Vec::new();
        if let Some(key) = key {
            write_user_property("partition-key", key.as_bytes(), &mut properties);
        }
        if version == 5 {
            write_variable(properties.len(), &mut head);
            head.extend(properties);
        }
        let mut bytes = vec![0x30 | qos << 1];
        write_variable(head.len() + payload, &mut bytes);
        let before = bytes.len();
        bytes.extend(&head);
        let start = bytes.len();
        bytes.extend([0; stamp::LENGTH]);
        Self {
            bytes,
            id: id.map(|at| at + before),
            key: key.map(|_| start - KEY_END),
            payload: start,
        }
    }
}

/// Different beginnings of a body: a prime, so that buffers cut at powers of two do not agree.
const PERIOD: usize = 251;

/// What follows the stamp of each payload of a run. It depends on the message, so that one
/// comparison finds bytes that have changed, and those of another message.
pub(crate) struct Body {
    bytes: Vec<u8>,
    length: usize,
}

impl Body {
    /// For payloads of so many bytes.
    pub(crate) fn new(payload: usize) -> Self {
        let length = payload - stamp::LENGTH;
        Self {
            bytes: (0..length + PERIOD)
                .map(|index| (index % PERIOD) as u8)
                .collect(),
            length,
        }
    }

    /// That of a message.
    pub(crate) fn of(&self, publisher: u32, sequence: u64) -> &[u8] {
        let start = (u64::from(publisher) * 97 + sequence) as usize % PERIOD;
        &self.bytes[start..start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::{Body, Template};
    use crate::wire::{scan, Packet};

    #[test]
    fn packets_are_read_when_they_are_whole() {
        let template = Template::new(5, "bench/0", 1, 300, None);
        let packet = [&template.bytes, Body::new(300).of(0, 0)].concat();
        let input = [&packet[..], b"\xd0\x00"].concat();
        for cut in 0..packet.len() {
            assert_eq!(scan(&input[..cut], 5), Ok(None), "{cut}");
        }
        let (read, length) = scan(&input, 5).unwrap().unwrap();
        assert_eq!(length, packet.len());
        let Packet::Publish {
            topic,
            payload,
            qos,
            id,
            ..
        } = read
        else {
            panic!("{read:?}");
        };
        assert_eq!((&input[topic], qos, id), (&b"bench/0"[..], 1, 0));
        assert_eq!(payload, template.payload..length);
        assert_eq!(scan(&input[length..], 5), Ok(Some((Packet::Pingresp, 2))));
    }

    #[test]
    fn packets_have_the_bytes_of_the_standard() {
        let template = Template::new(4, "t", 0, 16, None);
        assert_eq!(template.bytes[..5], *b"\x30\x13\x00\x01t");
        assert_eq!((template.id, template.payload), (None, 5));
        let template = Template::new(5, "t", 1, 16, Some("7-000000000"));
        let key = template.key.unwrap();
        assert_eq!(template.bytes[key - 2..template.payload], *b"7-000000000");
    }

    #[test]
    fn a_body_is_that_of_its_message() {
        let body = Body::new(16 + 1000);
        assert_eq!(body.of(3, 5).len(), 1000);
        assert_ne!(body.of(3, 5), body.of(3, 6));
        assert_ne!(body.of(3, 5), body.of(4, 5));
        assert_eq!(Body::new(16).of(1, 1), b"");
    }
}
