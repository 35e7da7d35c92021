//! Somebody without a session among those who consume.

use std::collections::BTreeMap;

use headrace_core::switchboard::PullTerms;

use super::super::depot::*;
use super::{place_of, Life, GROUPS};

/// Who pulls for the first group, has no session, and settles as the first consumer.
#[derive(Default)]
pub struct Puller {
    waiting: Vec<u64>,
    /// Pulls that are not answered yet, and what they have got.
    unanswered: Vec<(u64, Vec<Handed>)>,
}

impl Life {
    /// Somebody pulls, waits no longer, or is gone before it was answered.
    pub fn pull(&mut self) {
        let switchboard = &mut self.depot.stage.switchboard;
        let group = (GROUPS[0], None);
        match self.random.below(4) {
            0 | 1 => {
                let terms = PullTerms {
                    messages_max: self.random.pick(&[1, 3]),
                    bytes_max: 1_000,
                    deadline_ms: self.random.pick(&[None, Some(2_000)]),
                    waits: self.random.chance(50),
                };
                let number = switchboard.pull_queue(JOBS, group, terms).unwrap();
                self.puller.waiting.push(number);
            }
            2 => {
                let number = self.puller.waiting.first();
                if let Some(number) = number {
                    switchboard.end_pull(*number);
                }
            }
            _ => {
                let number = if self.random.chance(50) {
                    self.puller.waiting.pop()
                } else {
                    self.puller.unanswered.pop().map(|(number, _)| number)
                };
                if let Some(number) = number {
                    switchboard.return_pull(JOBS, group, number);
                    self.puller.unanswered.retain(|(each, _)| *each != number);
                }
            }
        }
    }

    /// Answers pulls; what they got is held as if the first consumer had it.
    pub fn answer_pulls(&mut self) {
        for pulled in self.depot.stage.switchboard.pulled() {
            let place = self
                .puller
                .waiting
                .iter()
                .position(|each| *each == pulled.number);
            self.puller.waiting.remove(place.expect("it waits"));
            let handed = pulled.messages.iter().map(|message| {
                let publish = message.publish();
                let (partition, offset, attempt) =
                    (message.partition, message.offset, message.attempt);
                let own = publish.properties.user.iter();
                let own = own.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
                let mut user: BTreeMap<String, String> = own.collect();
                user.insert("attempt".into(), attempt.to_string());
                user.insert(
                    "message-id".into(),
                    format!("{partition}:{offset}:{attempt}"),
                );
                Handed {
                    packet_id: 0,
                    topic: publish.topic.to_owned(),
                    payload: String::from_utf8(publish.payload.to_vec()).unwrap(),
                    user,
                }
            });
            let handed = handed.collect();
            self.puller.unanswered.push((pulled.number, handed));
        }
        let answered = self.random.below(self.puller.unanswered.len() + 1);
        for (_, handed) in self.puller.unanswered.split_off(answered) {
            for each in handed {
                let attempt: u32 = each.user["attempt"].parse().unwrap();
                let last = self.groups[0].attempts.get(&place_of(&each));
                if last.is_none_or(|last| *last < attempt) {
                    self.take(0, each); // else its deadline has passed before the answer
                }
            }
        }
    }
}
