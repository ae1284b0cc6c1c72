// Outlines of countries: reads the file that scripts/console-outlines.mjs makes (see there), and draws them.
import { projection, worldX, worldY } from "./projection.js";

const { geoArea, geoPath } = window.d3;

const MAGIC = "WOL1";
/** Points nearer than this to the one before (pixels) are left out. */
const FINE = 0.8;

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

/** The points of an arc in degrees, and whether it is a border between countries. */
function readArc(reader, scale, origin) {
  const head = reader.unsigned();
  let [x, y] = [0, 0];
  const points = Array.from({ length: head >> 1 }, () => {
    x += reader.signed();
    y += reader.signed();
    return [x * scale[0] + origin[0], y * scale[1] + origin[1]];
  });
  return { points, isBorder: (head & 1) === 1 };
}

const list = (reader, read) => Array.from({ length: reader.unsigned() }, read);

/** What d3-geo draws, as lists of points of the world's square. */
class Paths {
  all = [];

  moveTo(x, y) {
    this.all.push([x, y]);
  }

  lineTo(x, y) {
    this.all.at(-1).push(x, y);
  }

  closePath() {}
}

/** Points, and the part of the world that they are in. */
function shape(points, isBorder = false) {
  const box = { west: 1, east: 0, north: 1, south: 0 };
  for (let at = 0; at < points.length; at += 2) {
    box.west = Math.min(box.west, points[at]);
    box.east = Math.max(box.east, points[at]);
    box.north = Math.min(box.north, points[at + 1]);
    box.south = Math.max(box.south, points[at + 1]);
  }
  return { points: Float64Array.from(points), box, isBorder };
}

/** Projects a shape, cut at 180° and closed around the poles as it has to be. */
function projected(type, coordinates) {
  const paths = new Paths();
  geoPath(projection, paths)({ type, coordinates });
  return paths.all;
}

/** A ring of land; one around a sea in it would be all the world but that sea. */
function ring(points) {
  const isAround = geoArea({ type: "Polygon", coordinates: [points] }) > 2 * Math.PI;
  return projected("Polygon", [isAround ? points.reverse() : points]).map((path) => shape(path));
}

/** Reads the file; throws if it is another one. */
export function decode(buffer) {
  const reader = new Reader(buffer);
  if (reader.text(4) !== MAGIC) throw new Error("the file of outlines is damaged");
  const [scale, origin] = [[reader.double(), reader.double()], [reader.double(), reader.double()]];
  const arcs = list(reader, () => readArc(reader, scale, origin));
  const pointsOf = (index) => (index < 0 ? [...arcs[~index].points].reverse() : arcs[index].points);
  const rings = list(reader, () => ring(list(reader, () => reader.signed()).flatMap(pointsOf))).flat();
  const lines = arcs.flatMap(({ points, isBorder }) => projected("LineString", points).map((path) => shape(path, isBorder)));
  const countries = list(reader, () => {
    const [lon, lat, wide] = [reader.signed() / 100, reader.signed() / 100, reader.signed() / 100];
    return { x: worldX(lon), y: worldY(lat), wide: wide / 360, name: reader.text(reader.unsigned()) };
  });
  return { rings, lines, countries };
}

const meets = (box, seen) => box.west <= seen.east && box.east >= seen.west && box.north <= seen.south && box.south >= seen.north;
const isSmall = (box, view) => (box.east - box.west) * view.scale < FINE && (box.south - box.north) * view.scale < FINE;

/** Adds a shape to the path. */
function trace(context, view, { points }) {
  let [lastX, lastY] = [Infinity, Infinity];
  for (let at = 0; at < points.length; at += 2) {
    const [x, y] = [view.screenX(points[at]), view.screenY(points[at + 1])];
    const isEnd = at === 0 || at === points.length - 2;
    if (!isEnd && Math.abs(x - lastX) < FINE && Math.abs(y - lastY) < FINE) continue;
    if (at === 0) context.moveTo(x, y);
    else context.lineTo(x, y);
    [lastX, lastY] = [x, y];
  }
}

/** Draws land, coasts, borders and the names that have room, of all worlds beside each other that are seen. */
export function draw(context, view, { rings, lines, countries }, colours) {
  const worlds = view.worlds().map((world) => view.ofWorld(world));
  const each = (shapes, visit) => {
    for (const world of worlds) {
      const seen = world.bounds();
      for (const one of shapes) if (meets(one.box, seen) && !isSmall(one.box, view)) visit(world, one);
    }
  };
  // Of all worlds at once: where land goes on in the next one there is no seam.
  context.beginPath();
  each(rings, (world, one) => {
    trace(context, world, one);
    context.closePath();
  });
  context.fillStyle = colours.land;
  context.fill("evenodd");
  for (const isBorder of [true, false]) {
    context.beginPath();
    each(lines.filter((line) => line.isBorder === isBorder), (world, line) => trace(context, world, line));
    context.strokeStyle = isBorder ? colours.border : colours.coast;
    context.lineWidth = isBorder ? 0.7 : 0.9;
    context.stroke();
  }
  for (const world of worlds) names(context, world, countries, colours);
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
