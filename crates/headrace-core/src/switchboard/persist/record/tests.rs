use crate::session::Ids;

use super::*;

fn copy() -> Copy {
    let mut ids = Ids::of(300);
    ids.add(7);
    Copy {
        qos: QoS::ExactlyOnce,
        retain: true,
        ids,
    }
}

fn cursor() -> Cursor {
    let sent = |claim| {
        Some(Sent {
            number: 1 << 40,
            copy: copy(),
            claim,
        })
    };
    Cursor {
        number: 9,
        places: Places::with_open(1000, [3, 500, 501]),
        unreleased: vec![1, 65_535],
        exchanges: vec![(4, None), (5, sent(Some((9, 3)))), (6, sent(None))],
    }
}

fn message(claims: &[u8]) -> Message<'_> {
    Message {
        qos: QoS::AtLeastOnce,
        retain: true,
        publisher: 77,
        arrived_ms: 1_700_000_000_000,
        expiry: Some(Expiry { seconds: 0, at: 2 }),
        head: b"\0\x03a/b\x05\x02\0\0\0\0",
        topic_bytes: 5,
        payload: b"21.5",
        claims,
    }
}

#[test]
fn keys_are_read_as_they_were_written() {
    for key in [
        Key::Head("client"),
        Key::Cursor(""),
        Key::Filter("client", "$share/g/a/+"),
        Key::Feed("client", "$stream/a/#"),
        Key::Group("$share/g/a/+"),
        Key::Message(u64::MAX),
    ] {
        assert_eq!(Key::read(&key.bytes()), Some(key));
    }
    for bytes in [&b""[..], b"x", b"fclient", b"m1234567", b"s\xFF"] {
        assert_eq!(Key::read(bytes), None);
    }
}

#[test]
fn values_are_read_as_they_were_written_and_cut_ones_are_refused() {
    let head = Head {
        number: 1 << 50,
        expiry_s: u32::MAX,
        left_ms: Some(0),
        user: Some(("ada".into(), true)),
        will: Some(Will {
            packet: [1, 2, 3].into(),
            delay_s: 5,
        }),
    };
    let bytes = head.write();
    assert_eq!(Head::read(&bytes), Some(head));
    assert_eq!(Head::read(&bytes[..bytes.len() - 1]), None);
    let filter = Filter {
        number: 3,
        qos: QoS::ExactlyOnce,
        no_local: true,
        retain_as_published: false,
        replays: true,
        id: 268_435_455,
        consumption: None,
    };
    assert_eq!(Filter::read(&filter.write()), Some(filter.clone()));
    for group in [None, Some("workers".into())] {
        let consumes = Filter {
            consumption: Some(Consumption {
                group,
                prefetch: 300,
                by_puback: true,
            }),
            ..filter.clone()
        };
        assert_eq!(Filter::read(&consumes.write()), Some(consumes));
    }
    assert_eq!(Filter::read(&[filter.write(), vec![0]].concat()), None);
    let feed = Feed {
        number: 3,
        stream: 1 << 40,
        positions: vec![0, i64::MAX, 5],
    };
    let bytes = feed.write();
    assert_eq!(Feed::read(&bytes), Some(feed));
    assert_eq!(Feed::read(&bytes[..bytes.len() - 1]), None);
    let bytes = cursor().write();
    assert_eq!(Cursor::read(&bytes), Some(cursor()));
    assert_eq!(Cursor::read(&bytes[..bytes.len() - 1]), None);
    let places = Places::with_open(5, [4]);
    assert_eq!(read_group(&write_group(2, &places)), Some((2, places)));
    let mut claims = Vec::new();
    write_claim(9, 500, &copy(), &mut claims);
    write_claim(10, 0, &copy(), &mut claims);
    let bytes = message(&claims).write();
    assert_eq!(Message::read(&bytes), Some(message(&claims)));
    let expected = vec![(9, 500, copy()), (10, 0, copy())];
    assert_eq!(read_claims(&claims), Some(expected));
    assert_eq!(read_claims(&claims[..claims.len() - 1]), None);
    assert_eq!(Head::read(&[2, 0, 0, 0]), None, "of a later version");
}
