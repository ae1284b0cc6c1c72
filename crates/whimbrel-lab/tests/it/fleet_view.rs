//! The live view at the sizes of real terminals, drawn from a run that happens in memory.

use std::sync::Arc;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use whimbrel_lab::fleet::board::{Arrival, Board, Phase, ROLES, Role, Seat};
use whimbrel_lab::fleet::checker::{How, Interest};
use whimbrel_lab::fleet::crashes::End;
use whimbrel_lab::fleet::message::Outgoing;
use whimbrel_lab::fleet::regions::{Layout, LinkTrouble, Sites};
use whimbrel_lab::fleet::selection::{Content, Kind, Selection, Want, Watch};
use whimbrel_lab::fleet::summary::Summary;
use whimbrel_lab::fleet::trace::{LeftOut, Trace};
use whimbrel_lab::fleet::view::Titles;
use whimbrel_lab::fleet::view::screen::{Extent, Screen};
use whimbrel_lab::fleet::{attribution, city, view};

const VEHICLES: usize = 60;
const SEED: u64 = 5;

/// A run of some seconds over a broker that does everything right, except where `spoil` drops what
/// a subscriber would get.
fn flown(spoil: impl Fn(Role, u64) -> bool) -> Board {
    flown_to(|role, _, seq, wanted| wanted && !spoil(role, seq))
}

/// A run in which `arrives` decides what a subscriber gets of what it wants or not.
fn flown_to(arrives: impl Fn(Role, Interest, u64, bool) -> bool) -> Board {
    let trace = Arc::new(city::synthesize(SEED, VEHICLES, city::ATLANTIC).expect("the seed gives a city"));
    let selection = Selection::of(&trace, &[0, 1, 2], true);
    let selected = (0..selection.conditions.len()).map(|index| (Role::Watcher, Interest::Selected(index)));
    let board = Board::new(trace.clone(), &[0, 1, 2], selection.clone());
    let mut seats: Vec<(Seat, Role, Interest)> = Vec::new();
    let subscribers = [
        (Role::Viewer, Interest::All),
        (Role::Console, Interest::All),
        (Role::Watcher, Interest::Line(0)),
        (Role::Watcher, Interest::Line(1)),
    ];
    for (role, interest) in subscribers.into_iter().chain(selected) {
        board.connected(role);
        seats.push((board.subscribed(role, interest), role, interest));
    }
    for role in ROLES {
        board.want(role, if role == Role::Vehicle { VEHICLES as u32 } else { 2 });
    }
    board.enter(Phase::Running);
    let mut seqs = vec![0; VEHICLES];
    for (index, position) in trace.positions.iter().take(4_000).enumerate() {
        let seq = &mut seqs[position.fix.vehicle as usize];
        *seq += 1;
        let message = Outgoing::new(&trace, position, *seq);
        board.publishing(position, *seq, &message, board.now());
        for (seat, role, interest) in &seats {
            let content = Content { line: position.fix.line, place: position.fix.place, speed: message.speed };
            let wanted = match *interest {
                Interest::All => true,
                Interest::Line(line) => line == position.fix.line,
                Interest::Selected(index) => selection.want(selection.conditions[index], content) == Want::Yes,
            };
            if arrives(*role, *interest, *seq, wanted) {
                let attributes = message.attributes.iter().map(|(name, value)| (&**name, &**value));
                let (topic, body) = (&*message.topic, &*message.body);
                board.arrived(*seat, Arrival { topic, body, how: How::default() }, attributes);
            }
        }
        board.confirmed();
        if index % 40 == 0 {
            board.tick();
        }
    }
    board
}

fn titles(trace: &Trace, notice: Option<String>) -> Titles {
    Titles {
        trace: trace.name.clone(),
        lines: trace.lines.len(),
        vehicles: trace.vehicles.len(),
        speed_up: 10.0,
        broker: "own broker at 127.0.0.1:40001".to_owned(),
        address: "127.0.0.1:40001".to_owned(),
        console: None,
        notice,
    }
}

/// What is on a screen of this size, row by row.
fn drawn(board: &Board, width: u16, height: u16, notice: Option<String>) -> Vec<String> {
    let extent = Extent::of(board.trace.positions.iter().map(|position| position.fix.place));
    let mut screen = Screen::new(titles(&board.trace, notice), extent, &board.selection.fences);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
    terminal.draw(|frame| screen.draw(frame, &board.snapshot())).expect("drawing in memory");
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(row).collect()
}

#[test]
fn a_small_and_a_large_terminal_show_everything_that_matters() {
    let board = flown(|_, _| false);
    let notice = attribution::notice(attribution::RECORDING.as_ref()).expect("the recording has a notice");
    for (width, height) in [(80, 24), (140, 40)] {
        let rows = drawn(&board, width, height, Some(notice.to_owned()));
        let text = rows.join("\n");
        for part in
            ["Whimbrel", "published", "delivered", "p50", "p99", "0 lost", "0 twice", "0 out of order", "altered"]
        {
            assert!(text.contains(part), "{part} is missing at {width}x{height}:\n{text}");
        }
        for part in ["all as promised", "60 vehicles", "QoS 0:", "buses", "127.0.0.1", "-p 40001"] {
            assert!(text.contains(part), "{part} is missing at {width}x{height}:\n{text}");
        }
        // The whole notice, wherever its lines break.
        let words: Vec<&str> = text.split_whitespace().collect();
        let notice: Vec<&str> = notice.split_whitespace().collect();
        assert!(words.windows(notice.len()).any(|some| some == notice), "at {width}x{height}:\n{text}");
        let marks = text.chars().filter(|c| *c == '•' || ('\u{2801}'..='\u{28ff}').contains(c)).count();
        assert!(marks > 30, "{marks} marks on the map at {width}x{height}:\n{text}");
    }
}

#[test]
fn losses_are_shown_and_those_of_qos_0_are_shown_apart() {
    let reliable = flown(|role, seq| role == Role::Console && seq == 3);
    let text = drawn(&reliable, 80, 24, None).join("\n");
    assert!(text.contains(&format!("{VEHICLES} lost")) && text.contains("promises broken"), "{text}");
    assert_eq!(view::faults(&reliable.snapshot()), VEHICLES as u64);
    let best_effort = flown(|role, seq| role == Role::Viewer && seq == 3);
    let text = drawn(&best_effort, 80, 24, None).join("\n");
    assert!(text.contains(" 0 lost") || text.contains("│0 lost"), "{text}");
    assert!(text.contains(&format!("{VEHICLES} lost")) && text.contains("all as promised"), "{text}");
}

#[test]
fn the_summary_says_what_its_numbers_mean() {
    let summary = |board: &Board| {
        board.close();
        Summary::new(&board.trace, &titles(&board.trace, None), board.snapshot(), Default::default()).text()
    };
    let flawless = summary(&flown(|_, _| false));
    for words in ["told as missing", "lost at QoS 0:", "sent again", "not confirmed", "left out"] {
        assert!(!flawless.contains(words), "{words}:\n{flawless}");
    }
    let best_effort = summary(&flown(|role, seq| role == Role::Viewer && seq == 3));
    let meaning = "lost at QoS 0: what was under way when a connection or a broker went; QoS 0 promises no more";
    assert!(best_effort.contains(&format!("{VEHICLES} lost")) && best_effort.ends_with(meaning), "{best_effort}");
}

#[test]
fn the_summary_says_what_was_left_out_of_the_recording() {
    let mut board = flown(|_, _| false);
    let mut trace = Trace::clone(&board.trace);
    let left_out = |count, example: &str| LeftOut { count, examples: vec![example.to_owned()] };
    trace.malformed = left_out(3, "a.csv:7: not UTF-8");
    trace.stray = left_out(2, "bus 7 at 1970-01-01T00:00:00Z");
    (trace.deleted, trace.repeats) = (4, 5);
    board.trace = Arc::new(trace);
    let text = Summary::new(&board.trace, &titles(&board.trace, None), board.snapshot(), Default::default()).text();
    for words in [
        "5  repeated in the recording, left out\n",
        "4  deleted by the recording itself, left out\n",
        "2  more than 30 days from the rest of the recording, left out; the first:\n",
        " bus 7 at 1970-01-01T00:00:00Z\n",
        "3  malformed in the recording, left out; the first:\n",
        " a.csv:7: not UTF-8",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
}

#[test]
fn watchers_by_content_are_shown_with_what_they_lost_and_what_they_should_not_have_got() {
    let board = flown(|_, _| false);
    let watches = board.snapshot().watches;
    let sums = [Kind::Fence, Kind::Speed].map(|kind| Watch::sum(&watches, kind));
    for sum in &sums {
        assert!(sum.watchers >= 4 && sum.delivered > 100 && sum.delivered == sum.expected, "{sum:?}");
        assert_eq!((sum.lost, sum.wrong), (0, 0), "{sum:?}");
    }
    let small = drawn(&board, 80, 24, None).join("\n");
    assert!(small.contains("in fences: ") && small.contains("by speed: ") && small.contains("0 wrong"), "{small}");
    let large = drawn(&board, 140, 50, None).join("\n");
    assert!(watches.iter().all(|watch| large.contains(&watch.selector)), "{large}");
    assert!(large.contains("in fences, 7 watchers") && large.contains("by speed, 4 watchers"), "{large}");
    assert!(large.contains("within('centre') AND speed > ") && large.contains("AND speed > "), "{large}");

    let first = |interest| interest == Interest::Selected(0);
    let lossy = flown_to(|_, interest, seq, wanted| wanted && !(first(interest) && seq % 10 == 0));
    let snapshot = lossy.snapshot();
    assert!(view::faults(&snapshot) > 0 && snapshot.watches[0].wrong == 0, "{:?}", snapshot.watches[0]);
    lossy.close();
    let watch = &lossy.snapshot().watches[0];
    assert!(watch.lost > 0 && watch.delivered + watch.lost == watch.expected, "{watch:?}");
    let generous = flown_to(|_, interest, seq, wanted| wanted || (first(interest) && seq == 5));
    let watch = &generous.snapshot().watches[0];
    assert!(watch.wrong > 30 && watch.lost == 0, "{watch:?}");
    let text = drawn(&generous, 140, 50, None).join("\n");
    assert!(text.contains("promises broken"), "{text}");
}

#[test]
fn no_size_is_too_small() {
    let board = flown(|_, _| false);
    for (width, height) in [(1, 1), (5, 3), (30, 10), (41, 8), (300, 5)] {
        drawn(&board, width, height, Some("a notice of some length, longer than a line".to_owned()));
    }
}

#[test]
fn consoles_without_a_signal_are_shown_with_what_they_recovered_and_missed() {
    let board = flown(|_, _| false);
    let [semi_durable, nondurable] = [Role::SemiDurable, Role::Nondurable].map(|role| {
        board.want(role, 30);
        let seat = |_| board.subscribed(role, Interest::All);
        (0..30).map(seat).collect::<Vec<Seat>>()
    });
    board.signal(semi_durable[3], false);
    board.signal(nondurable[5], false);
    let trace = board.trace.clone();
    let publish = |seq| {
        // A vehicle that has not published in this run would be told apart by its number.
        let position = trace.positions.iter().find(|position| position.fix.vehicle == 0).expect("a vehicle");
        let message = Outgoing::new(&trace, position, seq);
        board.publishing(position, seq, &message, board.now());
        message
    };
    let next = |board: &Board| board.snapshot().published.sent;
    assert!(next(&board) > 0);
    let of_first = trace.positions.iter().take(4_000).filter(|position| position.fix.vehicle == 0).count() as u64;
    let message = publish(of_first + 1);
    let arrive = |seat: Seat| {
        let attributes = message.attributes.iter().map(|(name, value)| (&**name, &**value));
        let arrival = Arrival { topic: &message.topic, body: &message.body, how: How::default() };
        board.arrived(seat, arrival, attributes);
    };
    semi_durable.iter().enumerate().filter(|(index, _)| *index != 3).for_each(|(_, seat)| arrive(*seat));
    nondurable.iter().enumerate().filter(|(index, _)| *index != 5).for_each(|(_, seat)| arrive(*seat));
    let text = drawn(&board, 140, 60, None).join("\n");
    assert!(
        text.contains("2 without signal") && text.contains("○") && text.contains("nothing lost silently"),
        "{text}"
    );
    assert!(text.contains("0 recovered") && text.contains("1 missed"), "{text}");
    board.signal(semi_durable[3], true);
    board.signal(nondurable[5], true);
    assert!(drawn(&board, 140, 60, None).join("\n").contains("◐"), "what it missed is still coming");
    arrive(semi_durable[3]);
    let text = drawn(&board, 140, 60, None).join("\n");
    assert!(text.contains("1 recovered") && !text.contains("◐"), "{text}");
    let small = drawn(&board, 80, 24, None).join("\n");
    for part in
        ["1 recovered", "1 missed by nondurable", "in fences: ", "by speed: ", "0 away", "nothing lost silently"]
    {
        assert!(small.contains(part), "{part} is missing:\n{small}");
    }
}

#[test]
fn regions_are_shown_with_what_goes_on_in_them() {
    let board = flown(|_, _| false);
    let plain = |board: &Board| view::plain::status(&board.snapshot());
    assert!(!drawn(&board, 140, 50, None).join("\n").contains("warsaw") && !plain(&board).contains("moves"));
    let layout = Layout::load(&"3".parse().expect("a number"), "nowhere".as_ref()).expect("cities");
    board.regions.open(&layout, &["a:1", "b:2", "c:3"].map(str::to_owned));
    let large = drawn(&board, 140, 50, None).join("\n");
    for part in ["0 moves", "● warsaw", "● frankfurt", "● stockholm", "war–fra 8 ms", "buses", "others"] {
        assert!(large.contains(part), "{part} is missing:\n{large}");
    }
    board.regions.ends(1, End::Killed, board.now());
    board.regions.goes_bad(2, LinkTrouble::Cut, board.now());
    for (width, height) in [(140, 50), (80, 24)] {
        let text = drawn(&board, width, height, None).join("\n");
        assert!(text.contains("frankfurt is down") && text.contains("○"), "{text}");
    }
    assert!(plain(&board).contains("frankfurt 0 (down)") && plain(&board).contains("frankfurt–stockholm is cut"));
    board.regions.is_up(1);
    board.regions.all_served(board.now());
    assert!(drawn(&board, 140, 50, None).join("\n").contains("frankfurt–stockholm is cut"));
    board.regions.is_mended(2);
    board.regions.goes_bad(0, LinkTrouble::Slow, board.now());
    for (width, height) in [(140, 50), (80, 24)] {
        assert!(drawn(&board, width, height, None).join("\n").contains("warsaw–frankfurt is slow"));
    }
    assert!(plain(&board).contains("warsaw–frankfurt is slow") && plain(&board).contains("frankfurt–stockholm cut 1"));
    board.regions.is_mended(0);
    assert!(drawn(&board, 140, 50, None).join("\n").contains("war–fra 8 ms ≈1"));
    let text = drawn(&board, 140, 50, None).join("\n");
    assert!(text.contains("all served within 0.0") && text.contains("†1") && text.contains("✂1"), "{text}");
    assert!(plain(&board).contains("frankfurt 0 (killed 1, served after 0.0 s)"), "{}", plain(&board));
}

#[test]
fn alarms_in_time_are_shown_beside_positions() {
    let board = flown(|_, _| false);
    assert!(!drawn(&board, 140, 50, None).join("\n").contains("alarms") && board.snapshot().alarms.is_none());
    board.alarms.open(Duration::from_millis(70), 3);
    for late in 0..400 {
        let delay = Duration::from_millis(if late < 3 { 71 } else { 70 });
        board.alarms.ordinary(Sites::one(1), 0, delay, Duration::from_secs(9));
    }
    for (width, height, line) in
        [(140, 50, " in 70 ms: alarms –, positions 99.25 % "), (80, 24, "70 ms: alarms – buses 99.25 %")]
    {
        let text = drawn(&board, width, height, None).join("\n");
        assert!(text.contains(line), "{text}");
    }
    let status = view::plain::status(&board.snapshot());
    assert!(status.contains("alarms – within 70 ms (positions 99.25 %) lost 0"), "{status}");
    board.close();
    let summary = Summary::new(&board.trace, &titles(&board.trace, None), board.snapshot(), Default::default());
    let row = "alarms                 0  – within 70 ms (positions: 99.25 %), 0 late, 0 lost";
    assert!(summary.text().contains(row), "{}", summary.text());
    assert_eq!((summary.faults, summary.failure()), (0, None));
}
