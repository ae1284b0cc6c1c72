// Places for the brokers of an overlay: distances on paper follow the ways through the overlay (stress majorization, SMACOF).
// The same brokers and links always give the same picture.

const STEPS = 150;
/** Beyond so many, places are on a circle: the work grows with the square. */
const MOST = 250;

/** How long a link is drawn: delays differ by powers of ten, so by their logarithm. */
const length = ({ delay }) => 1 + 0.35 * Math.log10(1 + (delay ?? 0) / 1000);

function distances(names, links) {
  const index = new Map(names.map((name, at) => [name, at]));
  const size = names.length;
  const far = names.map((_, from) => names.map((__, to) => (from === to ? 0 : Infinity)));
  for (const link of links) {
    const [a, b] = [index.get(link.a), index.get(link.b)];
    far[a][b] = far[b][a] = Math.min(far[a][b], length(link));
  }
  for (let via = 0; via < size; via += 1) {
    for (let from = 0; from < size; from += 1) {
      for (let to = 0; to < size; to += 1) far[from][to] = Math.min(far[from][to], far[from][via] + far[via][to]);
    }
  }
  const most = Math.max(1, ...far.flat().filter(Number.isFinite));
  return far.map((row) => row.map((value) => (Number.isFinite(value) ? value : most * 1.3)));
}

function circle(names) {
  return names.map((_, at) => [Math.cos((2 * Math.PI * at) / names.length), Math.sin((2 * Math.PI * at) / names.length)]);
}

/** One step of majorization: each place becomes the mean of where the others would have it, near ones counting more. */
function improve(places, far) {
  return places.map(([x, y], i) => {
    let [sumX, sumY, sum] = [0, 0, 0];
    places.forEach(([ox, oy], j) => {
      if (i === j) return;
      const wanted = far[i][j];
      const weight = 1 / (wanted * wanted);
      const apart = Math.hypot(x - ox, y - oy) || 1e-6;
      sumX += weight * (ox + (wanted * (x - ox)) / apart);
      sumY += weight * (oy + (wanted * (y - oy)) / apart);
      sum += weight;
    });
    return sum > 0 ? [sumX / sum, sumY / sum] : [x, y];
  });
}

/** Turned so that the longest extent lies across, as the paper is wider than high. */
function turn(places) {
  const [mx, my] = [0, 1].map((axis) => places.reduce((sum, place) => sum + place[axis], 0) / places.length);
  const centred = places.map(([x, y]) => [x - mx, y - my]);
  const sum = (value) => centred.reduce((total, [x, y]) => total + value(x, y), 0);
  const angle = 0.5 * Math.atan2(2 * sum((x, y) => x * y), sum((x, y) => x * x - y * y));
  const [cos, sin] = [Math.cos(-angle), Math.sin(-angle)];
  return centred.map(([x, y]) => [x * cos - y * sin, x * sin + y * cos]);
}

/** Places of `names` within a box, given `links` (`{ a, b, delay }`, microseconds), as a map from name to `[x, y]`. */
export function layout(names, links, { width, height, margin }) {
  let places = circle(names);
  if (names.length <= MOST && names.length > 1) {
    const far = distances(names, links);
    for (let step = 0; step < STEPS; step += 1) places = improve(places, far);
    places = turn(places);
  }
  const range = (axis) => [Math.min(...places.map((place) => place[axis])), Math.max(...places.map((place) => place[axis]))];
  const spread = ([low, high], size) => (value) => (high - low < 0.3 ? size / 2 + (value - (low + high) / 2) * 100 : margin + ((value - low) / (high - low)) * (size - 2 * margin));
  const [x, y] = [spread(range(0), width), spread(range(1), height)];
  return new Map(names.map((name, at) => [name, [x(places[at][0]), y(places[at][1])]]));
}
