//! A drawing of the brokers: the one that answers in the middle, the others on rings by the links on the way to them.

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::fmt::Write;

use whimbrel_server::control::answers::Broker;

use crate::topology::in_order;

/// Between two rings at least.
const RING: f64 = 120.0;

/// Along a ring, for each broker on it.
const ROOM: f64 = 90.0;

/// Around everything.
const MARGIN: f64 = 90.0;

/// A broker is a dot of this radius.
const DOT: f64 = 9.0;

/// Links whose delay is written beside them; in larger drawings it is found by pointing at them.
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

/// Where a broker is.
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

/// Draws brokers as SVG. What is drawn depends on the brokers alone.
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
    for edge in &edges {
        put_edge(edge, &places, brokers, edges.len() <= LABELS_MAX, &mut out);
    }
    for (broker, _) in &order {
        put_broker(broker, places[&*broker.name], &mut out);
    }
    out + "</svg>\n"
}

/// Each broker has a sector of its ring that is as wide as all that lies beyond it needs.
fn places<'a>(order: &[(&'a Broker, usize)]) -> BTreeMap<&'a str, Place> {
    let depth_max = order.iter().map(|(_, depth)| *depth).max().unwrap_or(0);
    // Those that cannot be reached stand on a ring outside of all others.
    let depths: Vec<usize> =
        order.iter().map(|(broker, depth)| if broker.own || *depth > 0 { *depth } else { depth_max + 1 }).collect();
    let leaves: Vec<usize> = (0..order.len())
        .map(|at| {
            let beyond = depths[at + 1..].iter().take_while(|depth| **depth > depths[at]);
            let is_leaf = |place: usize| depths.get(place + 1).is_none_or(|next| *next <= depths[place]);
            let count = if order[at].0.own { order.len() } else { at + 1 + beyond.count() };
            (at..count).filter(|place| is_leaf(*place)).count().max(1)
        })
        .collect();
    let mut rings = BTreeMap::<usize, usize>::new();
    for depth in &depths {
        *rings.entry(*depth).or_default() += 1;
    }
    let mut radius = BTreeMap::new();
    let mut last = -RING;
    for (depth, count) in rings {
        last = if depth == 0 { 0.0 } else { (last + RING).max(count as f64 * ROOM / TAU) };
        radius.insert(depth, last);
    }
    let total = leaves.first().copied().unwrap_or(1) as f64;
    // Where the next leaf begins; a broker stands in the middle of its leaves.
    let mut begun = 0_usize;
    let mut places = BTreeMap::new();
    for (at, (broker, _)) in order.iter().enumerate() {
        let middle = (begun as f64 + leaves[at] as f64 / 2.0) / total * TAU;
        let radius = radius[&depths[at]];
        places.insert(&*broker.name, Place { x: radius * middle.sin(), y: -radius * middle.cos() });
        let is_leaf = depths.get(at + 1).is_none_or(|next| *next <= depths[at]);
        begun += usize::from(is_leaf && !(broker.own && order.len() > 1));
    }
    places
}

/// All links between brokers that are known; of what the two ends say of one, the worse.
fn edges(brokers: &[Broker]) -> Vec<Edge<'_>> {
    let mut edges = BTreeMap::<(&str, &str), (u64, u64)>::new();
    for broker in brokers {
        for end in &broker.links {
            let (one, other): (&str, &str) = (&broker.name, &end.name);
            if one == other || !brokers.iter().any(|broker| broker.name == *other) {
                continue;
            }
            let known = edges.entry((one.min(other), one.max(other))).or_default();
            *known = (known.0.max(end.delay_us), known.1.max(end.loss_permille));
        }
    }
    let edge = |(ends, (delay_us, loss_permille))| Edge { ends, delay_us, loss_permille };
    edges.into_iter().map(edge).collect()
}

fn put_edge(edge: &Edge<'_>, places: &BTreeMap<&str, Place>, brokers: &[Broker], labelled: bool, out: &mut String) {
    let (from, to) = (places[edge.ends.0], places[edge.ends.1]);
    let is_step = |path: &[String]| path == [edge.ends.0, edge.ends.1] || path == [edge.ends.1, edge.ends.0];
    let is_way = brokers.iter().any(|broker| broker.path.windows(2).next_back().is_some_and(is_step));
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

/// A text within markup.
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
    use whimbrel_server::control::answers::Neighbour;

    use super::*;

    fn broker(path: &[&str], ends: &[&str]) -> Broker {
        let end = |name: &&str| Neighbour { name: name.to_string(), delay_us: 1500, loss_permille: 0 };
        Broker {
            name: path.last().expect("it has a name").to_string(),
            host: "10".into(),
            incarnation: 1,
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
            // A tree in which each has three below it.
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
