//! What must hold once everyone has come back to [`World`] and answered.

use std::collections::BTreeMap;

use super::{Device, World, QOS_0, QOS_1, QOS_2};

impl World {
    /// Everyone comes back and answers, and the disk is well.
    pub fn settle(&mut self) {
        self.fails = false;
        for index in 0..self.devices.len() {
            if self.devices[index].is_gone {
                self.connect(index);
            }
        }
        for round in 0..2_000 {
            for index in 0..self.devices.len() {
                self.credit(index, usize::MAX);
                self.answer(index);
                if self.devices[index].is_gone {
                    self.connect(index);
                }
            }
            while !self.disk.is_idle() {
                self.disk_works();
            }
            self.now.mono_ms += 20;
            self.board.tick(self.now);
            self.collect();
            let is_quiet = |device: &Device| device.sent.is_empty() && device.answers.is_empty();
            if round > 100 && self.disk.is_idle() && self.devices.iter().all(is_quiet) {
                break;
            }
        }
        let statistics: BTreeMap<_, _> = self.board.statistics().into_iter().collect();
        for gauge in [
            "mqtt_tickets",
            "mqtt_outbound_bytes",
            "mqtt_outbound_queued_messages",
            "mqtt_outbound_in_flight",
            "mqtt_outbound_kept_bytes",
            "mqtt_queued_bytes",
            "mqtt_inbound_unreleased",
        ] {
            assert_eq!(statistics[gauge], 0, "{gauge}");
        }
    }

    pub fn judge(&self) {
        for (index, device) in self.devices.iter().enumerate() {
            let mut copies: BTreeMap<&str, usize> = BTreeMap::new();
            let mut last: BTreeMap<String, u64> = BTreeMap::new();
            for payload in &device.taken {
                let copies = copies.entry(payload).or_default();
                *copies += 1;
                // What it missed at QoS 0 may come when it is sent again.
                let may_be_late = device.granted == QOS_0 || self.refused.contains(payload);
                if *copies > 1 || may_be_late {
                    continue;
                }
                let (number, rest) = payload.split_once(' ').unwrap();
                let number = number.parse().unwrap();
                let before = last.insert(rest.trim_end_matches('x').to_owned(), number);
                let in_order = before.is_none_or(|before| before < number);
                assert!(in_order || self.has_failed, "{index}: {payload} is late");
            }
            for (payload, qos) in &self.published {
                let copies = copies.get(payload.as_str()).copied().unwrap_or(0);
                let is_right = match (*qos).min(device.granted) {
                    _ if self.refused.contains(payload) => true,
                    // Live subscribers do not wait to hear whether it is stored.
                    QOS_0 => *qos == QOS_1 || copies <= 1 || self.is_sent_again(),
                    QOS_1 => copies >= 1,
                    QOS_2 => copies == 1,
                };
                assert!(is_right, "{index} was given {payload} {copies} times");
            }
        }
    }

    /// Live subscribers at `QoS` 0 may get a message twice that was not stored at first.
    fn is_sent_again(&self) -> bool {
        self.has_failed || self.has_crashed
    }
}
