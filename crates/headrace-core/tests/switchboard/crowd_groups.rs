//! Shared subscriptions among very many that get a publish, and very many of them.

use headrace_core::switchboard::{Limits, Strategy};

use super::crowd::{crowd, heard, put, small, turn};
use super::groups::payloads;
use super::stage::*;

#[test]
fn groups_take_part_in_a_crowd() {
    let mut stage = Stage::new(small());
    let clients = crowd(&mut stage, 5, QOS_1);
    let workers = ["$share/a/#", "$share/b/t/+"].map(|filter| {
        let worker = stage.client(V5, filter);
        stage.subscribe(worker, filter, QOS_1);
        worker
    });
    let publisher = stage.client(V5, "p");
    stage.publish(publisher, "t/1", QOS_1, 1, "x");
    assert_eq!(heard(&mut stage, &clients), 5);
    assert_eq!(heard(&mut stage, &workers), 2);
}

#[test]
fn very_many_groups_are_a_crowd_too() {
    for qos in [QOS_0, QOS_1] {
        let mut stage = Stage::new(small());
        let workers: Vec<u64> = (0..9)
            .map(|number| {
                let worker = stage.client(V5, &format!("w{number}"));
                stage.subscribe(worker, &format!("$share/g{number}/t/#"), QOS_1);
                worker
            })
            .collect();
        let publisher = stage.client(V5, "p");
        put(&mut stage, publisher, "t/1", qos, qos as u16, "x");
        let mut served = 0;
        while served < 9 {
            turn(&mut stage);
            let share = heard(&mut stage, &workers);
            assert!(share <= 2, "{share}");
            served += share;
        }
        stage.run();
        assert_eq!(heard(&mut stage, &workers), 0);
        let answer: &[&str] = if qos == QOS_0 { &[] } else { &["PUBACK 1"] };
        assert_eq!(stage.hears(publisher), answer);
    }
}

#[test]
fn members_of_a_group_that_asks_for_the_publisher_get_what_a_crowd_gets() {
    let mut stage = Stage::new(Limits {
        shared_strategy: Strategy::HashClient,
        ..small()
    });
    let clients = crowd(&mut stage, 5, QOS_0);
    let members: Vec<u64> = (0..8)
        .map(|number| {
            let member = stage.client(V5, &format!("m{number}"));
            stage.subscribe(member, "$share/g/#", QOS_1);
            member
        })
        .collect();
    let publisher = stage.client(V5, "p");
    for topic in ["t/1", "u/1"] {
        stage.publish(publisher, topic, QOS_1, 1, topic);
    }
    assert_eq!(heard(&mut stage, &clients), 5);
    let got: Vec<_> = members
        .iter()
        .map(|member| payloads(&mut stage, *member))
        .filter(|got| !got.is_empty())
        .collect();
    assert_eq!(got, [["t/1", "u/1"]], "the same member");
}
