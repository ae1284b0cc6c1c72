//! The lines of a world: they carry bytes between clients and the broker.

use whimbrel_event::Time;
use whimbrel_mqtt::{ConnId, Input, LOW_WATER, Origin};

use super::{Event, Line, Seat, World};
use crate::cell::Way;
use crate::check::Seen;
use crate::client::Act;
use crate::link::{Arrival, Pipe};

impl World<'_> {
    /// The next piece that arrives over a line. Over a line in a cell it goes to the access link,
    /// which has room for it.
    pub(super) fn read(&mut self, line: usize, way: Way) -> Option<Arrival> {
        loop {
            let known = &mut self.lines[line];
            let pipe = if way == Way::Up { &mut known.up } else { &mut known.down };
            let Some(cell) = known.cell else { return pipe.read(self.now) };
            if !self.cells[cell].has_room(line, way) {
                return None;
            }
            let piece = pipe.read(self.now)?;
            self.cells[cell].push(self.now, line, way, piece);
            self.schedule_cell(cell);
        }
    }

    /// Delivers the pieces that a cell's access link has carried, and takes pieces that waited for
    /// room.
    pub(super) fn move_air(&mut self, cell: usize) {
        self.cells[cell].scheduled = None;
        while let Some((line, way, arrival)) = self.cells[cell].read(self.now) {
            match way {
                Way::Up => self.reach_broker(line, arrival),
                Way::Down => self.reach_client(line, arrival),
            }
        }
        for line in self.cells[cell].lines() {
            self.schedule_line(line);
        }
        self.schedule_cell(cell);
    }

    /// One direction of a line carries nothing any more.
    pub(super) fn leave_cell(&mut self, line: usize, way: Way) {
        if let Some(cell) = self.lines[line].cell {
            self.cells[cell].leave(line, way);
        }
    }

    pub(super) fn schedule_cell(&mut self, cell: usize) {
        let known = &mut self.cells[cell];
        let next = known.next_change().filter(|next| known.scheduled.is_none_or(|known| *next < known));
        if let Some(at) = next {
            known.scheduled = Some(at);
            self.schedule(at, Event::Air(cell));
        }
    }

    pub(super) fn reach_client(&mut self, line: usize, arrival: Arrival) {
        let Some(seat) = self.lines[line].client else { return };
        let mut acts = Vec::new();
        match arrival {
            Arrival::Bytes(bytes) => self.seats[seat].client.hear(self.now, &bytes, &mut acts),
            Arrival::End => {
                self.lines[line].client = None;
                self.seats[seat].line = None;
                self.seats[seat].client.closed(self.now);
            }
        }
        self.act(seat, acts);
    }

    /// Performs a client's acts.
    pub(super) fn act(&mut self, seat: usize, acts: Vec<Act>) {
        for act in acts {
            if act == Act::Open {
                self.open(seat);
                continue;
            }
            let Some(line) = self.seats[seat].line else { continue };
            let known = &mut self.lines[line];
            match &act {
                Act::Open => unreachable!("done above"),
                Act::Send(bytes) => known.up.write(self.now, bytes),
                Act::Finish => known.up.finish(self.now),
                Act::Reset => known.up.reset(self.now),
                Act::Vanish => {
                    known.up.die();
                    known.down.die();
                }
                Act::Stall => known.down.stall(),
                Act::Resume => known.down.resume(),
            }
            if act == Act::Vanish {
                self.leave_cell(line, Way::Up);
                self.leave_cell(line, Way::Down);
            }
            if matches!(act, Act::Finish | Act::Reset | Act::Vanish) {
                self.lines[line].client = None;
                self.seats[seat].line = None;
            }
            if act == Act::Finish || act == Act::Reset {
                // A client that has gone reads no more: arriving bytes are discarded.
                self.lines[line].down.resume();
                self.leave_cell(line, Way::Down);
            }
            self.schedule_line(line);
        }
        self.schedule_wake(seat);
    }

    pub(super) fn open(&mut self, seat: usize) {
        if let Some(old) = self.seats[seat].line.take() {
            self.lines[old].client = None;
            self.leave_cell(old, Way::Down);
        }
        let id = self.free.pop_first().expect("fewer connections than names");
        let conn = ConnId(id);
        let Seat { link, cell, .. } = self.seats[seat];
        if let Some(cell) = cell {
            self.cells[cell].join(self.lines.len());
        }
        self.names.insert(conn, self.lines.len());
        self.seats[seat].line = Some(self.lines.len());
        self.lines.push(Line {
            conn: Some(conn),
            client: Some(seat),
            cell,
            up: Pipe::new(link, self.random.fork()),
            down: Pipe::new(link, self.random.fork()),
            notify: false,
            up_scheduled: None,
            down_scheduled: None,
        });
        let origin = *self.random.pick(&Origin::ALL);
        self.call(Input::Opened { conn, origin }, Seen::Opened(conn));
    }

    /// The broker's end of a connection is closed, and its name is free.
    pub(super) fn let_go(&mut self, conn: ConnId) {
        if let Some(line) = self.names.remove(&conn) {
            self.lines[line].conn = None;
            self.lines[line].up.die();
            self.leave_cell(line, Way::Up);
            self.lines[line].down.finish(self.now);
            self.free.insert(conn.0);
            self.schedule_line(line);
        }
    }

    pub(super) fn tell_drained(&mut self, line: usize) {
        let known = &mut self.lines[line];
        let low = known.down.backlog() * self.scale <= LOW_WATER;
        if let Some(conn) = known.conn.filter(|_| low && known.notify) {
            known.notify = false;
            self.call(Input::Drained { conn }, Seen::Nothing);
        }
    }

    /// Schedules the next arrivals of both directions of a line.
    pub(super) fn schedule_line(&mut self, line: usize) {
        let held = self.holds_back();
        let known = &mut self.lines[line];
        let may = |way| known.cell.is_none_or(|cell| self.cells[cell].has_room(line, way));
        let (up, down) = (may(Way::Up) && !held, may(Way::Down));
        let sooner = |next: Option<Time>, known: &mut Option<Time>| {
            let next = next.filter(|next| known.is_none_or(|known| *next < known))?;
            *known = Some(next);
            Some(next)
        };
        let up = sooner(known.up.next_arrival().filter(|_| up), &mut known.up_scheduled);
        let down = sooner(known.down.next_arrival().filter(|_| down), &mut known.down_scheduled);
        if let Some(at) = up {
            self.schedule(at, Event::Up(line));
        }
        if let Some(at) = down {
            self.schedule(at, Event::Down(line));
        }
    }
}
