//! A drawing of the brokers: the one that answers in the middle, the others on rings by the number
//! of links on the route to them.

use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::TAU;
use std::fmt::Write;

use whimbrel_server::api::answers::Broker;

use crate::topology::in_order;

/// Least distance between two rings.
const RING: f64 = 120.0;

/// Length on the innermost ring for each broker without others beyond it.
const ROOM: f64 = 60.0;

/// Margin around the drawing.
const MARGIN: f64 = 90.0;

/// Radius of a broker's dot.
const DOT: f64 = 9.0;

/// Links whose delay is written beside them, at most; larger drawings show it when pointed at.
const LABELS_MAX: usize = 60;

const STYLE: &str = "\
<style>
  text { font: 12px sans-serif; fill: #223; text-anchor: middle; }
  .delay { font-size: 10px; fill: #667; }
  .link { stroke: #b8c0cc; stroke-width: 1.2; }
  .way { stroke: #2f6f9f; stroke-width: 2.6; }
  .loss { stroke-dasharray: 5 3; }
  .broker { fill: #2f6f9f; }
  .own { fill: #d9822b; }
  .far { fill: #fff; stroke: #b03030; stroke-width: 2; }
</style>
";

/// Position of a broker in the drawing.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    x: f64,
    y: f64,
}

/// A link, once for both of its ends.
struct Edge<'a> {
    ends: (&'a str, &'a str),
    delay_us: u64,
    loss_permille: u64,
}

/// Draws brokers as SVG. The drawing depends on the brokers alone.
pub fn draw(brokers: &[Broker]) -> String {
    let order = in_order(brokers);
    let places = places(&order);
    let reach = places.values().map(|place| place.x.abs().max(place.y.abs())).fold(RING, f64::max) + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{:.0} {:.0} {:.0} {:.0}\">\n{STYLE}\
         <rect x=\"{:.0}\" y=\"{:.0}\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        -reach,
        -reach,
        2.0 * reach,
        2.0 * reach,
        -reach,
        -reach
    );
    let edges = edges(brokers);
    let steps = steps(brokers);
    for edge in &edges {
        let is_way = steps.contains(&edge.ends);
        put_edge(edge, &places, (is_way, edges.len() <= LABELS_MAX), &mut out);
    }
    for (broker, _) in &order {
        put_broker(broker, places[&*broker.name], &mut out);
    }
    out + "</svg>\n"
}

/// Positions of the brokers. Each has a sector of its ring, as wide as the brokers beyond it need.
/// Unreachable ones are on a ring outside of all others.
fn places<'a>(order: &[(&'a Broker, usize)]) -> BTreeMap<&'a str, Place> {
    let outside = order.iter().map(|(_, depth)| *depth).max().unwrap_or(0) + 1;
    let depths: Vec<usize> = order.iter().map(|(broker, depth)| if broker.own { 0 } else { (*depth).max(1) }).collect();
    let is_leaf = |at: usize| depths.get(at + 1).is_none_or(|next| *next <= depths[at]);
    let leaves_of = |at: usize| {
        let beyond = depths[at + 1..].iter().take_while(|depth| **depth > depths[at]).count();
        (at..=at + beyond).filter(|at| is_leaf(*at)).count()
    };
    let all = (0..order.len()).filter(|at| is_leaf(*at)).count() as f64;
    let radius = |ring: usize| match ring {
        0 => 0.0,
        _ => (all * ROOM / TAU).max(RING) + (ring - 1) as f64 * RING,
    };
    // Number of leaves so far; a broker is in the middle of its own leaves.
    let mut begun = 0_usize;
    let mut places = BTreeMap::new();
    for (at, (broker, depth)) in order.iter().enumerate() {
        let middle = (begun as f64 + leaves_of(at) as f64 / 2.0) / all * TAU;
        let radius = radius(if broker.own || *depth > 0 { *depth } else { outside });
        places.insert(&*broker.name, Place { x: radius * middle.sin(), y: -radius * middle.cos() });
        begun += usize::from(is_leaf(at));
    }
    places
}

/// All links between known brokers. If the two ends of a link differ, the worse value counts.
fn edges(brokers: &[Broker]) -> Vec<Edge<'_>> {
    let names: BTreeSet<&str> = brokers.iter().map(|broker| &*broker.name).collect();
    let mut edges = BTreeMap::<(&str, &str), (u64, u64)>::new();
    for broker in brokers {
        for end in &broker.links {
            let (one, other): (&str, &str) = (&broker.name, &end.name);
            if one == other || !names.contains(other) {
                continue;
            }
            let known = edges.entry((one.min(other), one.max(other))).or_default();
            *known = (known.0.max(end.delay_us), known.1.max(end.loss_permille));
        }
    }
    let edge = |(ends, (delay_us, loss_permille))| Edge { ends, delay_us, loss_permille };
    edges.into_iter().map(edge).collect()
}

/// The links that best routes take.
fn steps(brokers: &[Broker]) -> BTreeSet<(&str, &str)> {
    fn step(broker: &Broker) -> Option<(&str, &str)> {
        let at = broker.path.len().checked_sub(2)?;
        let (one, other): (&str, &str) = (&broker.path[at], &broker.path[at + 1]);
        Some((one.min(other), one.max(other)))
    }
    brokers.iter().filter_map(step).collect()
}

fn put_edge(edge: &Edge<'_>, places: &BTreeMap<&str, Place>, (is_way, labelled): (bool, bool), out: &mut String) {
    let (from, to) = (places[edge.ends.0], places[edge.ends.1]);
    let class = match (is_way, edge.loss_permille > 0) {
        (true, true) => "way loss",
        (true, false) => "way",
        (false, true) => "link loss",
        (false, false) => "link",
    };
    let delay = crate::table::delay(edge.delay_us);
    let loss = match edge.loss_permille {
        0 => String::new(),
        permille => format!(", {}.{} % lost", permille / 10, permille % 10),
    };
    let (one, other) = (escaped(edge.ends.0), escaped(edge.ends.1));
    writeln!(
        out,
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"><title>{one} - {other}: {delay}{loss}</title></line>",
        from.x, from.y, to.x, to.y
    )
    .expect("a string takes everything");
    if labelled {
        let (x, y) = ((from.x + to.x) / 2.0, (from.y + to.y) / 2.0 - 4.0);
        writeln!(out, "<text class=\"delay\" x=\"{x:.1}\" y=\"{y:.1}\">{delay}</text>")
            .expect("a string takes everything");
    }
}

fn put_broker(broker: &Broker, place: Place, out: &mut String) {
    let class = match (broker.own, broker.reachable) {
        (true, _) => "own",
        (false, true) => "broker",
        (false, false) => "far",
    };
    let name = escaped(&broker.name);
    let cost = match (broker.own, broker.cost_us) {
        (true, _) => "this broker".to_owned(),
        (false, Some(cost)) if broker.reachable => format!("cost {}", crate::table::delay(cost)),
        _ => "cannot be reached".to_owned(),
    };
    let Place { x, y } = place;
    writeln!(
        out,
        "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{DOT}\"><title>{name}: {cost}</title></circle>\n<text x=\"{x:.1}\" y=\"{:.1}\">{name}</text>",
        y + DOT + 14.0
    )
    .expect("a string takes everything");
}

/// Escapes a text for markup.
fn escaped(text: &str) -> String {
    let plain = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        c if c.is_control() => c.escape_unicode().to_string(),
        c => c.to_string(),
    };
    text.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use whimbrel_server::api::answers::Neighbour;

    use super::*;

    fn broker(path: &[&str], ends: &[&str]) -> Broker {
        let end = |name: &&str| Neighbour { name: name.to_string(), delay_us: 1500, loss_permille: 0 };
        Broker {
            name: path.last().expect("it has a name").to_string(),
            host: "10".into(),
            incarnation: 1,
            addresses: Vec::new(),
            domains: Vec::new(),
            own: path.len() == 1,
            reachable: true,
            path: path.iter().map(ToString::to_string).collect(),
            cost_us: Some(7),
            age_ms: 0,
            links: ends.iter().map(end).collect(),
        }
    }

    #[test]
    fn every_broker_has_a_place_of_its_own() {
        let name = |number: usize| format!("b{number}");
        for count in [1, 2, 3, 40, 400] {
            // A tree in which each broker has three below it.
            let mut brokers = Vec::new();
            for number in 0..count {
                let mut path = vec![name(number)];
                let mut at = number;
                while at > 0 {
                    at = (at - 1) / 3;
                    path.insert(0, name(at));
                }
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                brokers.push(broker(&path, &[]));
            }
            for number in 0..3 {
                let name = format!("far{number}");
                brokers.push(Broker {
                    name,
                    path: Vec::new(),
                    own: false,
                    reachable: false,
                    ..broker(&["x", "y"], &[])
                });
            }
            let places = places(&in_order(&brokers));
            assert_eq!(places.len(), brokers.len());
            let all: Vec<Place> = places.into_values().collect();
            for (at, one) in all.iter().enumerate() {
                for other in &all[at + 1..] {
                    let apart = (one.x - other.x).hypot(one.y - other.y);
                    assert!(apart > 2.0 * DOT, "{count} brokers: {one:?} and {other:?}");
                }
            }
        }
    }

    #[test]
    fn links_are_drawn_once_and_ways_stand_out() {
        let brokers =
            [broker(&["a"], &["b", "c"]), broker(&["a", "b"], &["a", "c"]), broker(&["a", "c"], &["a", "b", "gone"])];
        let drawing = draw(&brokers);
        assert_eq!(drawing.matches("<line class=\"way\"").count(), 2);
        assert_eq!(drawing.matches("<line class=\"link\"").count(), 1);
        assert_eq!(drawing.matches("<circle").count(), 3);
        assert!(drawing.contains("<title>b - c: 1.5 ms</title>") && drawing.contains("a: this broker"), "{drawing}");
        assert_eq!(drawing, draw(&brokers));
    }

    #[test]
    fn names_are_no_markup() {
        let drawing = draw(&[broker(&["<&\">"], &[])]);
        assert!(drawing.contains("&lt;&amp;&quot;&gt;") && !drawing.contains("<&"), "{drawing}");
    }
}
