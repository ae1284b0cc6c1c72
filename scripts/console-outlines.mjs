// Turns Natural Earth's countries, as the npm package world-atlas has them (TopoJSON), into the compact file that the console's map reads:
//   npm install world-atlas@2.0.2 d3-geo@3.1.2
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
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [source, target] = process.argv.slice(2);
if (!source || !target) {
  console.error("usage: node scripts/console-outlines.mjs countries-50m.json outlines.bin");
  process.exit(2);
}
// It stands beside the atlas.
const { geoArea, geoBounds, geoCentroid } = await import(pathToFileURL(createRequire(resolve(source)).resolve("d3-geo")));
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

// By d3-geo, on the sphere: a country on both sides of the line at 180° has its middle within it.
const countries = atlas.objects.countries.geometries.flatMap((country) => {
  const shapes = polygons(country).map((rings) => ({ type: "Polygon", coordinates: rings.map(points) }));
  if (shapes.length === 0) return [];
  const largest = shapes.reduce((best, shape) => (geoArea(shape) > geoArea(best) ? shape : best));
  const [[west], [east]] = geoBounds(largest);
  const [x, y] = geoCentroid(largest);
  return [{ name: country.properties.name, x, y, wide: east < west ? east - west + 360 : east - west }];
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
