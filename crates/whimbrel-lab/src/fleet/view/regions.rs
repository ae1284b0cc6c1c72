//! The regions: their clients, and the state of their brokers and links.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::grouped;
use super::roaming::{LOW, WIDE};
use super::screen::block;
use crate::fleet::board;
use crate::fleet::regions::{Class, Health, LinkRow, LinkTrouble, RegionRow, Snapshot};
use crate::fleet::roles::Role;

/// The room for names of regions.
const NAME: usize = 10;
/// The number of letters by which a link names its ends.
const SHORT: usize = 3;

/// The number of rows that are needed on this side.
pub fn height(snapshot: &board::Snapshot, side: Rect) -> u16 {
    match &snapshot.regions {
        None => 0,
        Some(_) if side.height < LOW => 3,
        Some(regions) => regions.regions.len() as u16 + 3,
    }
}

/// Shows the regions.
pub fn show(frame: &mut Frame<'_>, area: Rect, snapshot: &board::Snapshot) {
    let Some(regions) = snapshot.regions.as_ref().filter(|_| area.height >= 3) else { return };
    let is_wide = area.width >= WIDE;
    let title = if is_wide { format!(" {} moves ", grouped(regions.moves)) } else { " Regions ".to_owned() };
    let block = block(title).title_top(Line::from(health(regions)).right_aligned());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let lines: Vec<Line<'_>> = if usize::from(inner.height) > regions.regions.len() {
        let rows = regions.regions.iter().map(|region| row(region, is_wide));
        rows.chain([links(&regions.links)]).collect()
    } else {
        vec![
            regions
                .regions
                .iter()
                .flat_map(|region| [mark(region), Span::from(region.name.clone()), " ".into()])
                .collect(),
        ]
    };
    frame.render_widget(Paragraph::new(lines), inner);
}

/// The present disturbance, or how long the worst one took.
fn health(regions: &Snapshot) -> Span<'static> {
    let is_down = regions.regions.iter().find(|region| region.health != Health::Serves);
    let worst = regions.regions.iter().filter_map(|region| region.worst_served).chain(regions.worst_cut_served).max();
    match (is_down, trouble(&regions.links), worst) {
        (Some(region), ..) if region.health == Health::Down => format!(" {} is down ", region.name).red().bold(),
        (Some(region), ..) => format!(" {} returns ", region.name).yellow().bold(),
        (None, Some((link, trouble)), _) => {
            let text = format!(" {}–{} is {} ", link.between[0], link.between[1], trouble.name());
            if trouble == LinkTrouble::Cut { text.red().bold() } else { text.yellow().bold() }
        }
        (None, None, Some(worst)) => format!(" all served within {:.2} s ", worst.as_secs_f64()).green(),
        (None, None, None) => "".into(),
    }
}

/// The link that has a trouble now.
fn trouble(links: &[LinkRow]) -> Option<(&LinkRow, LinkTrouble)> {
    links.iter().find_map(|link| Some((link, link.trouble?)))
}

fn mark(region: &RegionRow) -> Span<'static> {
    match region.health {
        Health::Serves => "●".green(),
        Health::Returning => "◐".yellow(),
        Health::Down => "○".red(),
    }
}

fn row(region: &RegionRow, is_wide: bool) -> Line<'static> {
    let name: String = region.name.chars().take(NAME).collect();
    let vehicles = region.here[Class::Fleet(Role::Vehicle).index()];
    let mut spans = vec![
        mark(region),
        format!(" {name:<NAME$}").into(),
        format!("{vehicles:>5}").bold(),
        " buses ".dim(),
        format!("{:>4}", region.total() - vehicles).bold(),
        " others ".dim(),
    ];
    if is_wide {
        spans.extend([format!("{:>8}", grouped(region.published)).bold(), " sent ".dim()]);
    }
    if let Some((_, count)) = region.ends() {
        spans.push(format!(" †{count}").into());
    }
    Line::from(spans)
}

fn links(links: &[LinkRow]) -> Line<'static> {
    let short = |name: &str| name.chars().take(SHORT).collect::<String>();
    let link = |link: &LinkRow| {
        let state = link.trouble.map_or(format!("{:.0} ms", link.one_way_ms), |trouble| trouble.name().to_owned());
        let text = format!("{}–{} {state}", short(&link.between[0]), short(&link.between[1]));
        let count = |mark: &str, count: u64| if count > 0 { format!(" {mark}{count}") } else { String::new() };
        let text = format!("{text}{}{}  ", count("✂", link.cuts), count("≈", link.slow + link.lossy));
        match link.trouble {
            Some(LinkTrouble::Cut) => text.red().bold(),
            Some(LinkTrouble::Slow | LinkTrouble::Lossy) => text.yellow().bold(),
            None => text.dim(),
        }
    };
    links.iter().map(link).collect()
}
