//! Short troubles, as Babay and Amir and their colleagues found them on links between data centres
//! ("Timely, Reliable, and Cost-Effective Internet Transport Service Using Dissemination Graphs",
//! 2017): single links are bad for some seconds, and now and then all links of one site at once.

use std::time::Duration;

use whimbrel_event::Time;
use whimbrel_sim::random::Random;

use super::truth::{LinkTruth, Truth};
use crate::cores::wire::{WayCourse, WayTruth};

/// The mean length of a trouble.
const TROUBLE: Duration = Duration::from_secs(5);

/// The mean time from the end of a link's trouble to its next one: it is bad 2 % of the time.
const LINK_GOOD: Duration = Duration::from_secs(245);

/// The same of a broker, all links of which are bad: 0.5 % of the time.
const BROKER_GOOD: Duration = Duration::from_secs(995);

/// The least share of packets that is lost in a trouble with loss, and the most, thousandths.
const LOSS_PERMILLE: [u64; 2] = [200, 1_000];

/// In one trouble of this many packets take longer; in the others some are lost.
const LATE_ONE_IN: u64 = 2;

/// By how much longer they take.
const LATER: Duration = Duration::from_millis(100);

/// A span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TroubleSpan {
    /// Its beginning.
    pub from: Time,
    /// Its end.
    pub until: Time,
}

/// A trouble of a link.
#[derive(Clone, Copy, PartialEq, Debug)]
struct ShortTrouble {
    span: TroubleSpan,
    /// The share of packets that is lost.
    loss: f64,
    /// By how much longer the others take.
    later: Duration,
}

/// The troubles within a span, one after the other. `good`: the mean time between two.
fn drawn(span: TroubleSpan, good: Duration, random: &mut Random) -> Vec<ShortTrouble> {
    let mut troubles = Vec::new();
    let mut at = span.from + random.exponential(good);
    while at < span.until {
        let until = at + random.exponential(TROUBLE);
        let [least, most] = LOSS_PERMILLE;
        let (is_late, lost) = (random.below(LATE_ONE_IN) == 0, random.between(least, most));
        let (loss, later) = if is_late { (0.0, LATER) } else { (lost as f64 / 1_000.0, Duration::ZERO) };
        troubles.push(ShortTrouble { span: TroubleSpan { from: at, until: until.min(span.until) }, loss, later });
        at = until + random.exponential(good);
    }
    troubles
}

/// The truth of one direction with some troubles, which may overlap: each loses its share of what
/// the others leave, and packets take longer at most once.
fn course(good: WayTruth, from: Time, troubles: &[ShortTrouble]) -> WayCourse {
    let mut moments: Vec<Time> = troubles.iter().flat_map(|one| [one.span.from, one.span.until]).collect();
    moments.sort_unstable();
    moments.dedup();
    let at = |now: Time| {
        let present = troubles.iter().filter(|one| one.span.from <= now && now < one.span.until);
        let add = |way: WayTruth, one: &ShortTrouble| WayTruth {
            loss: 1.0 - (1.0 - way.loss) * (1.0 - one.loss),
            delay: way.delay.max(good.delay + one.later),
            ..way
        };
        (now, present.fold(good, add))
    };
    WayCourse([(from, good)].into_iter().chain(moments.into_iter().map(at)).collect())
}

/// The truth of links that have short troubles within a span, both directions of a link the same.
/// It depends on the seed only.
pub fn short_troubles(good: &Truth, brokers: usize, span: TroubleSpan, seed: u64) -> Truth {
    let mut random = Random::new(seed);
    let of_brokers: Vec<_> = (0..brokers).map(|_| drawn(span, BROKER_GOOD, &mut random.fork())).collect();
    let link = |link: &LinkTruth| {
        let mut troubles = drawn(span, LINK_GOOD, &mut random.fork());
        link.ends.iter().for_each(|end| troubles.extend(&of_brokers[*end]));
        let courses = link.courses.each_ref().map(|known| {
            let (from, way) = known.0[0];
            course(way, from, &troubles)
        });
        LinkTruth { ends: link.ends, courses }
    };
    Truth { links: good.links.iter().map(link).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::START;

    const DAY: TroubleSpan =
        TroubleSpan { from: START, until: Time::from_nanos(START.as_nanos() + 86_400_000_000_000) };

    /// The share of a span in which troubles last, and their number.
    fn share(troubles: &[ShortTrouble], span: TroubleSpan) -> (f64, usize) {
        let sum: Duration = troubles.iter().map(|one| one.span.until.since(one.span.from)).sum();
        (sum.as_secs_f64() / span.until.since(span.from).as_secs_f64(), troubles.len())
    }

    #[test]
    fn links_are_bad_two_percent_of_the_time_and_brokers_half_a_percent_for_five_seconds_on_average() {
        for (good, wanted) in [(LINK_GOOD, 0.02), (BROKER_GOOD, 0.005)] {
            let mut random = Random::new(1);
            let all: Vec<_> = (0..100).flat_map(|_| drawn(DAY, good, &mut random.fork())).collect();
            let (sum, count) = share(&all, DAY);
            let each = sum / 100.0;
            assert!((each / wanted - 1.0).abs() < 0.05, "{each} of the time");
            let mean = sum * 86_400.0 / count as f64;
            assert!((4.8..5.2).contains(&mean), "{mean} s");
            let late = all.iter().filter(|one| one.later > Duration::ZERO).count();
            assert!((0.45..0.55).contains(&(late as f64 / count as f64)), "{late} of {count}");
            let lossy = all.iter().filter(|one| one.later == Duration::ZERO).map(|one| one.loss);
            let mean = lossy.clone().sum::<f64>() / (count - late) as f64;
            assert!(lossy.clone().all(|loss| (0.2..=1.0).contains(&loss)) && (0.57..0.63).contains(&mean), "{mean}");
        }
    }

    #[test]
    fn a_seed_is_all_that_the_truth_depends_on_and_a_broker_in_trouble_has_all_its_links_bad() {
        let truth = |seed| short_troubles(&Truth::mesh(), 5, DAY, seed);
        let one = truth(1);
        assert_eq!(one, truth(1));
        assert_ne!(one, truth(2));
        let is_bad = |link: &LinkTruth, at: Time| {
            let (now, good) = (link.courses[0].at(at), link.courses[0].0[0].1);
            assert_eq!(now, link.courses[1].at(at));
            now.loss > 0.0 || now.delay > good.delay
        };
        // Of single links at least four are never bad at once by chance.
        let (mut at, mut of_a_broker, mut looks) = (DAY.from, 0, 0);
        while at < DAY.until {
            let all_bad = |node: usize| one.links.iter().filter(|it| it.ends.contains(&node)).all(|it| is_bad(it, at));
            of_a_broker += (0..5).filter(|node| all_bad(*node)).count();
            looks += 5;
            at = at + Duration::from_secs(1);
        }
        let share = of_a_broker as f64 / f64::from(looks);
        assert!((0.003..0.007).contains(&share), "{share} of the time");
    }

    #[test]
    fn troubles_that_overlap_add_up() {
        let second = |number: u64| START + Duration::from_secs(number);
        let trouble = |from, until, loss, later| ShortTrouble {
            span: TroubleSpan { from: second(from), until: second(until) },
            loss,
            later: Duration::from_millis(later),
        };
        let good = WayTruth::steady(Duration::from_millis(10));
        let all = [trouble(1, 4, 0.5, 0), trouble(2, 3, 0.5, 0), trouble(2, 5, 0.0, 100)];
        let course = course(good, START, &all);
        let at = |number| {
            let way = course.at(second(number));
            (way.loss, way.delay.as_millis())
        };
        assert_eq!([0, 1, 2, 3, 4, 5].map(at), [(0.0, 10), (0.5, 10), (0.75, 110), (0.5, 110), (0.0, 110), (0.0, 10)]);
    }
}
