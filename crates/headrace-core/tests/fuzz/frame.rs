//! Target: bytes of a producer of frames. What is taken is record batches that any broker would
//! take, and comes out again as the frames that went in; however bytes are cut, the same is taken.

use headrace_core::frame::{parse, Intake, Outflow, Rules, Taken};
use headrace_core::record::{validate, Codec, Compressed};

use super::engine::{Corpus, Input, Words};

pub const CORPUS: Corpus = Corpus {
    target: run,
    lines: include_str!("frame.txt"),
    file: "frame.txt",
};

/// Bytes that a frame may have.
const LENGTH_MAX: usize = 300;

/// A piece is a byte that says what is done with it, a byte and the digits of a length, which the
/// engine writes and nobody reads, and the bytes of a frame from its magic on, or any bytes.
fn run(input: &Input) -> Words {
    let mut words = Words::default();
    let mut sent = Vec::new();
    let mut pieces = Vec::new();
    for piece in input {
        let Some((&how, rest)) = piece.split_first() else {
            continue;
        };
        let digits = rest.iter().skip(1).take(4);
        let digits = digits.take_while(|byte| **byte >= 0x80).count() + 1;
        let body = rest.get(1 + digits..).unwrap_or(&[]);
        let mut bytes = Vec::new();
        if how & 1 == 1 {
            bytes.extend((body.len() as u32 + 4).to_be_bytes());
            bytes.extend(crc32fast::hash(body).to_be_bytes());
        }
        bytes.extend(body);
        sent.extend(&bytes);
        pieces.push(bytes);
    }
    let first = input.first().and_then(|piece| piece.first()).copied();
    let rules = rules(first.unwrap_or(0));
    let taken = receive(&pieces, &rules, &mut words);
    assert_eq!(
        taken,
        receive(&[sent.clone()], &rules, &mut Words::default())
    );
    assert_eq!(
        taken,
        receive(
            &sent.chunks(1).collect::<Vec<_>>(),
            &rules,
            &mut Words::default()
        )
    );
    words
}

fn rules(how: u8) -> Rules {
    Rules {
        partitions: 3,
        partition: (how & 2 == 0).then_some(1),
        message_bytes_max: LENGTH_MAX + 61,
        needs_key: how & 4 != 0,
        codec: if how & 8 == 0 {
            Codec::None
        } else {
            Codec::Lz4
        },
        wall_ms: 1_700_000_000_000,
    }
}

/// How many frames were taken, and what was wrong with the next.
fn receive<B: AsRef<[u8]>>(pieces: &[B], rules: &Rules, words: &mut Words) -> (u64, String) {
    let mut intake = Intake::new(0);
    let mut frames = 0;
    for piece in pieces {
        let taken = intake.receive(piece.as_ref(), rules);
        assert!(intake.kept_bytes() <= piece.as_ref().len() + LENGTH_MAX + 4);
        check(&taken, rules, words);
        frames += u64::from(taken.frames);
        if let Some((number, fault)) = taken.fault {
            assert_eq!(number, frames);
            let text = fault.to_string();
            words.say((fault.reason(), fault.code()));
            words.say(
                text.trim_matches(|character: char| character.is_ascii_hexdigit())
                    .len(),
            );
            return (frames, text);
        }
    }
    words.say((intake.kept_bytes() > 0, frames.min(3)));
    (frames, String::new())
}

fn check(taken: &Taken, rules: &Rules, words: &mut Words) {
    let mut frames = 0;
    for batch in &taken.batches {
        let opened = Compressed::Opened { bytes_max: 1 << 20 };
        let summary = validate(&batch.bytes, opened).expect("a batch is right");
        assert!(!(rules.needs_key && summary.keyless));
        assert!(batch.partition < rules.partitions);
        frames += summary.records;
        let mut outflow = Outflow::new(&batch.bytes, 0);
        let out = outflow.write(usize::MAX).expect("what came in goes out");
        assert_eq!(outflow.frames(), summary.records);
        let mut rest = &out[..];
        while let Some((_, frame)) = rest.split_first_chunk::<8>() {
            let read = parse(frame, LENGTH_MAX)
                .expect("it is right")
                .expect("it is whole");
            words.say((
                read.key.is_some(),
                read.value.is_some(),
                read.headers.len().min(3),
            ));
            words.say((
                batch.partition,
                read.headers.clone().any(|(_, value)| value.is_none()),
            ));
            rest = &frame[read.bytes..];
        }
    }
    assert_eq!(frames, u64::from(taken.frames));
    let (acknowledged, all) = taken.acknowledge(&vec![Some(7); taken.batches.len()]);
    assert_eq!(all, taken.frames);
    assert_eq!(acknowledged.len() % 16, 0);
    words.say((taken.batches.len().min(4), acknowledged.len().min(64)));
}
