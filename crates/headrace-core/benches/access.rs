//! What a rule costs a publish: `cargo bench -p headrace-core --bench access`.

use std::hint::black_box;
use std::time::Instant;

use headrace_core::access::{Action, Draft, Principal, Rules};

const ROUNDS: u32 = 2_000_000;

fn main() {
    for count in [1, 5, 20, 100] {
        let rules = rules(count);
        let principal = Principal {
            username: Some("meter-1".into()),
            ..Principal::default()
        };
        let identity = rules.identify(principal, "meter-1");
        let ask = |topic| rules.decide(&identity, "meter-1", Action::Publish, topic);
        assert!(ask("fleet/node-1/gpu-1/power/meter-1").is_allowed);
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            black_box(ask(black_box("fleet/node-1/gpu-1/power/meter-1")));
        }
        let each = begun.elapsed() / ROUNDS;
        println!("publish, the last of {count:>3} rules allows it: {each:?}");
    }
    for count in [1, 5, 20, 100] {
        let rules = holes(count);
        let identity = rules.identify(Principal::default(), "meter-1");
        let ask = |topic| rules.decide(&identity, "meter-1", Action::Subscribe, topic);
        assert!(ask("#").hole.is_some() && ask("fleet/node-1/gpu-1/power").is_allowed);
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            black_box(ask(black_box("fleet/node-1/gpu-1/power")));
        }
        let each = begun.elapsed() / ROUNDS;
        println!("delivery, a subscription with holes of {count:>3} rules: {each:?}");
    }
}

/// Each denies a topic, and all others are allowed.
fn holes(count: usize) -> Rules {
    let mut rules = Rules::new(true);
    for number in 1..=count {
        let draft = Draft {
            actions: &["subscribe".to_owned()],
            topics: &[format!("fleet/secret-{number}/#")],
            ..Draft::default()
        };
        rules.add(&draft).expect("it is a rule");
    }
    rules
}

/// All but the last are about other topics.
fn rules(count: usize) -> Rules {
    let mut rules = Rules::new(false);
    for number in 1..=count {
        let topic = if number == count {
            "fleet/+/+/power/{username}".to_owned()
        } else {
            format!("fleet/other-{number}/#")
        };
        let draft = Draft {
            allows: true,
            topics: &[topic],
            ..Draft::default()
        };
        rules.add(&draft).expect("it is a rule");
    }
    rules
}
