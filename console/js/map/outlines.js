// Outlines of countries: reads the file that scripts/console-outlines.mjs makes (see there), and draws them.
import { worldX, worldY } from "./projection.js";

const MAGIC = "WOL1";
/** Points nearer than this to the one before (pixels) are left out. */
const FINE = 0.8;
/** The map is cut open at 180°: lines along the cut are nobody's coast. */
const CUT = 1e-4;

class Reader {
  #bytes;
  #at = 0;

  constructor(buffer) {
    this.#bytes = new Uint8Array(buffer);
    this.view = new DataView(buffer);
  }

  text(length) {
    this.#at += length;
    return new TextDecoder().decode(this.#bytes.subarray(this.#at - length, this.#at));
  }

  double() {
    this.#at += 8;
    return this.view.getFloat64(this.#at - 8, true);
  }

  unsigned() {
    let [value, shift] = [0, 0];
    for (;;) {
      const byte = this.#bytes[this.#at];
      this.#at += 1;
      value |= (byte & 127) << shift;
      if (byte < 128) return value >>> 0;
      shift += 7;
    }
  }

  signed() {
    const value = this.unsigned();
    return value & 1 ? -(value + 1) / 2 : value / 2;
  }
}

function readArc(reader, scale, origin) {
  const head = reader.unsigned();
  const length = head >> 1;
  const points = new Float64Array(length * 2);
  const box = { west: 1, east: 0, north: 1, south: 0 };
  let [x, y] = [0, 0];
  for (let at = 0; at < length; at += 1) {
    x += reader.signed();
    y += reader.signed();
    const [px, py] = [worldX(x * scale[0] + origin[0]), worldY(y * scale[1] + origin[1])];
    points[at * 2] = px;
    points[at * 2 + 1] = py;
    box.west = Math.min(box.west, px);
    box.east = Math.max(box.east, px);
    box.north = Math.min(box.north, py);
    box.south = Math.max(box.south, py);
  }
  return { points, box, isBorder: (head & 1) === 1 };
}

const list = (reader, read) => Array.from({ length: reader.unsigned() }, read);

function ringOf(indices, arcs) {
  const boxes = indices.map((index) => arcs[index < 0 ? ~index : index].box);
  return {
    indices,
    box: {
      west: Math.min(...boxes.map((box) => box.west)), east: Math.max(...boxes.map((box) => box.east)),
      north: Math.min(...boxes.map((box) => box.north)), south: Math.max(...boxes.map((box) => box.south)),
    },
  };
}

/** Reads the file; throws if it is another one. */
export function decode(buffer) {
  const reader = new Reader(buffer);
  if (reader.text(4) !== MAGIC) throw new Error("the file of outlines is damaged");
  const [scale, origin] = [[reader.double(), reader.double()], [reader.double(), reader.double()]];
  const arcs = list(reader, () => readArc(reader, scale, origin));
  const rings = list(reader, () => ringOf(list(reader, () => reader.signed()), arcs));
  const countries = list(reader, () => {
    const [lon, lat, wide] = [reader.signed() / 100, reader.signed() / 100, reader.signed() / 100];
    return { x: worldX(lon), y: worldY(lat), wide: wide / 360, name: reader.text(reader.unsigned()) };
  });
  return { arcs, rings, countries };
}

const meets = (box, seen) => box.west <= seen.east && box.east >= seen.west && box.north <= seen.south && box.south >= seen.north;
const isSmall = (box, view) => (box.east - box.west) * view.scale < FINE && (box.south - box.north) * view.scale < FINE;

/** Adds an arc to the path; `begin` if it does not go on from the one before. */
function trace(context, view, { points }, isBackwards, begin) {
  const count = points.length / 2;
  let [lastX, lastY] = [Infinity, Infinity];
  for (let step = 0; step < count; step += 1) {
    const at = (isBackwards ? count - 1 - step : step) * 2;
    const [x, y] = [view.screenX(points[at]), view.screenY(points[at + 1])];
    const isEnd = step === 0 || step === count - 1;
    if (!isEnd && Math.abs(x - lastX) < FINE && Math.abs(y - lastY) < FINE) continue;
    if (step === 0 && begin) context.moveTo(x, y);
    else context.lineTo(x, y);
    [lastX, lastY] = [x, y];
  }
}

function strokeArc(context, view, arc) {
  const { points, box } = arc;
  if (box.west > CUT && box.east < 1 - CUT) return trace(context, view, arc, false, true);
  let isDown = false;
  for (let at = 0; at < points.length; at += 2) {
    const isCut = points[at] < CUT || points[at] > 1 - CUT;
    if (isDown && !isCut) context.lineTo(view.screenX(points[at]), view.screenY(points[at + 1]));
    else context.moveTo(view.screenX(points[at]), view.screenY(points[at + 1]));
    isDown = !isCut;
  }
}

/** Draws land, coasts, borders and the names that have room. */
export function draw(context, view, { arcs, rings, countries }, colours) {
  const seen = view.bounds();
  context.beginPath();
  for (const { indices, box } of rings) {
    if (!meets(box, seen) || isSmall(box, view)) continue;
    indices.forEach((index, at) => trace(context, view, arcs[index < 0 ? ~index : index], index < 0, at === 0));
    context.closePath();
  }
  context.fillStyle = colours.land;
  context.fill("evenodd");
  for (const isBorder of [true, false]) {
    context.beginPath();
    for (const arc of arcs) {
      if (arc.isBorder === isBorder && meets(arc.box, seen) && !isSmall(arc.box, view)) strokeArc(context, view, arc);
    }
    context.strokeStyle = isBorder ? colours.border : colours.coast;
    context.lineWidth = isBorder ? 0.7 : 0.9;
    context.stroke();
  }
  names(context, view, countries, colours);
}

function names(context, view, countries, colours) {
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  context.fillStyle = colours.label;
  for (const { x, y, wide, name } of countries) {
    const [px, py] = [view.screenX(x), view.screenY(y)];
    if (px < 0 || py < 0 || px > view.width || py > view.height) continue;
    if (context.measureText(name).width * 1.25 < wide * view.scale) context.fillText(name, px, py);
  }
}
