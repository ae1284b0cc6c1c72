// Turns Natural Earth's countries, as the npm package world-atlas has them (TopoJSON), into the compact file that the console's map reads:
//   node scripts/console-outlines.mjs node_modules/world-atlas/countries-50m.json console/vendor/outlines.bin
//
// The file, numbers as varints (LEB128, signed ones zigzag) unless said otherwise:
//   "WOL1"; 4 doubles (little-endian): longitude and latitude of one step, longitude and latitude of the origin
//   number of arcs; for each: number of points × 2, plus 1 if it is a border between countries and not a coast; then signed steps
//     from point to point in x and y, the first from the origin
//   number of rings of land; for each: number of arcs, then which, signed: ~n is arc n backwards
//   number of countries; for each: signed longitude and latitude of its middle and its extent, in hundredths of a degree; length of its
//     name in bytes; the name, UTF-8
import { readFileSync, writeFileSync } from "node:fs";

const [source, target] = process.argv.slice(2);
if (!source || !target) {
  console.error("usage: node scripts/console-outlines.mjs countries-50m.json outlines.bin");
  process.exit(2);
}
const atlas = JSON.parse(readFileSync(source, "utf8"));
const bytes = [];

function unsigned(value) {
  while (value > 127) {
    bytes.push((value & 127) | 128);
    value >>>= 7;
  }
  bytes.push(value);
}

function signed(value) {
  unsigned(value < 0 ? -value * 2 - 1 : value * 2);
}

function double(value) {
  const buffer = Buffer.alloc(8);
  buffer.writeDoubleLE(value);
  bytes.push(...buffer);
}

function polygons(geometry) {
  if (geometry.type === "GeometryCollection") return geometry.geometries.flatMap(polygons);
  return geometry.type === "MultiPolygon" ? geometry.arcs : geometry.type === "Polygon" ? [geometry.arcs] : [];
}

const number = (arc) => (arc < 0 ? ~arc : arc);
const land = polygons(atlas.objects.land).flat();
const coasts = new Set(land.flat().map(number));

bytes.push(...Buffer.from("WOL1"));
[...atlas.transform.scale, ...atlas.transform.translate].forEach(double);

unsigned(atlas.arcs.length);
atlas.arcs.forEach((arc, index) => {
  unsigned(arc.length * 2 + (coasts.has(index) ? 0 : 1));
  for (const [x, y] of arc) {
    signed(x);
    signed(y);
  }
});

unsigned(land.length);
for (const ring of land) {
  unsigned(ring.length);
  ring.forEach(signed);
}

// Points of a ring in degrees.
function points(ring) {
  const { scale, translate } = atlas.transform;
  return ring.flatMap((index) => {
    let [x, y] = [0, 0];
    const arc = atlas.arcs[number(index)].map(([dx, dy]) => {
      x += dx;
      y += dy;
      return [x * scale[0] + translate[0], y * scale[1] + translate[1]];
    });
    return index < 0 ? arc.reverse() : arc;
  });
}

function extent(ring) {
  const [xs, ys] = [ring.map(([x]) => x), ring.map(([, y]) => y)];
  return [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
}

// The centre of gravity of a ring, and its area.
function middle(ring) {
  let [area, x, y] = [0, 0, 0];
  ring.forEach(([x0, y0], index) => {
    const [x1, y1] = ring[(index + 1) % ring.length];
    const cross = x0 * y1 - x1 * y0;
    area += cross;
    x += (x0 + x1) * cross;
    y += (y0 + y1) * cross;
  });
  return area === 0 ? { x: ring[0][0], y: ring[0][1], area } : { x: x / 3 / area, y: y / 3 / area, area: Math.abs(area) };
}

const countries = atlas.objects.countries.geometries.flatMap((country) => {
  const outer = polygons(country).map(([ring]) => points(ring));
  if (outer.length === 0) return [];
  const largest = outer.reduce((best, ring) => (middle(ring).area > middle(best).area ? ring : best));
  const [west, east] = extent(largest);
  return [{ name: country.properties.name, ...middle(largest), wide: east - west }];
});
unsigned(countries.length);
for (const { name, x, y, wide } of countries) {
  [x, y, wide].forEach((degrees) => signed(Math.round(degrees * 100)));
  const text = Buffer.from(name);
  unsigned(text.length);
  bytes.push(...text);
}

writeFileSync(target, Buffer.from(bytes));
console.log(`${target}: ${bytes.length} bytes, ${atlas.arcs.length} arcs, ${land.length} rings, ${countries.length} countries`);
