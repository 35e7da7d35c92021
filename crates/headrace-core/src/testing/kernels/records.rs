//! Record batches: made and read again as MQTT's are, and checked as Kafka's are.

use std::hint::black_box;

use super::{Kernel, NOW};
use crate::record::{validate, BatchBuilder, Batches, Compressed, Records};

/// Makes batches, and reads each.
pub struct Codec {
    builder: BatchBuilder,
    records: u32,
    payload: Vec<u8>,
}

impl Codec {
    /// So many records in a batch.
    pub fn new(records: u32, payload: usize) -> Self {
        Self {
            builder: BatchBuilder::new(),
            records,
            payload: vec![b'x'; payload],
        }
    }

    fn build(&mut self) -> Vec<u8> {
        let topic = b"dcgm/node-1/GPU-5f2a/power";
        for number in 0..self.records {
            let headers = [
                (&b"mqtt.topic"[..], Some(&topic[..])),
                (b"unit", Some(b"watt")),
            ];
            let time = NOW.wall_ms + i64::from(number);
            let key = Some(&b"GPU-5f2a"[..]);
            self.builder.push(time, key, Some(&self.payload), headers);
        }
        self.builder.finish()
    }
}

impl Kernel for Codec {
    fn run(&mut self, operations: u64) -> u64 {
        let mut done = 0;
        while done < operations {
            let built = black_box(self.build());
            let batches = Batches::new(&built).map(|batch| batch.expect("it is whole"));
            for batch in batches {
                batch.check_crc().expect("it is whole");
                for record in Records::new(&batch.header, batch.body()) {
                    let record = record.expect("it is well formed");
                    let topic = record.header(b"mqtt.topic");
                    black_box((record.offset, record.key, record.value, topic));
                    done += 1;
                }
            }
        }
        done
    }
}

/// A batch as a producer sends it.
pub struct Produced {
    batch: Vec<u8>,
}

impl Produced {
    /// So many records in it.
    pub fn new(records: u32, payload: usize) -> Self {
        let batch = Codec::new(records, payload).build();
        Self { batch }
    }
}

impl Kernel for Produced {
    fn run(&mut self, operations: u64) -> u64 {
        let mut done = 0;
        while done < operations {
            let summary = validate(black_box(&self.batch), Compressed::Closed);
            done += black_box(summary).expect("it is well formed").records;
        }
        done
    }
}
