//! What a check costs: a publish must hardly notice it.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use whimbrel_access::{Action, Actions, Principal, Rule, Rules};

fn check(criterion: &mut Criterion) {
    let topics = ["news/#", "fleet/%u/+/state", "fleet/%u/#", "jobs/%c", "$SYS/broker/#"];
    let rule = |topic: &str| Rule {
        principals: vec!["bus-*".into()],
        actions: Actions::of([Action::Publish, Action::Subscribe]),
        topics: vec![topic.into()],
        ..Rule::default()
    };
    let rules = Rules::new(&topics.map(rule)).expect("sound rules");
    let bus = Principal::new("bus-7").expect("a name");
    let grants = rules.grants(&bus, "bus-7");
    criterion.bench_function("publish, third of five rules", |bencher| {
        bencher.iter(|| grants.publish(black_box("fleet/bus-7/engine/temperature"), 5, None));
    });
    criterion.bench_function("publish, denied", |bencher| {
        bencher.iter(|| grants.publish(black_box("fleet/bus-8/engine/temperature"), 5, None));
    });
    criterion.bench_function("subscribe, third of five rules", |bencher| {
        bencher.iter(|| grants.subscribe(black_box("fleet/bus-7/engine/#")));
    });
    criterion.bench_function("grants", |bencher| bencher.iter(|| rules.grants(black_box(&bus), "bus-7")));
}

criterion_group!(benches, check);
criterion_main!(benches);
