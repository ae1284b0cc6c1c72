// Web Mercator, by d3-geo: the whole world is a square from 0 to 1, west to east and north to south, and beyond 0 and 1 it comes again: what lies at x lies at
// x ± 1 too, so the line at 180° is a place like any other.

const { geoBounds, geoMercator, geoMercatorRaw } = window.d3;
/** As far north as the square goes. */
const LAST_LATITUDE = 85.051129;
const EARTH_M = 40_075_016.7;
const CLOSEST = 2 ** 25;
const TURN = 2 * Math.PI;

const radians = (degrees) => (degrees * Math.PI) / 180;
const degrees = (angle) => (angle * 180) / Math.PI;

export const worldX = (lon) => geoMercatorRaw(radians(lon), 0)[0] / TURN + 0.5;
export const worldY = (lat) => 0.5 - geoMercatorRaw(0, radians(Math.max(-LAST_LATITUDE, Math.min(LAST_LATITUDE, lat))))[1] / TURN;

/** The same as a projection of d3-geo, whose shapes are cut at 180°. Straight lines between their points will do. */
export const projection = geoMercator().scale(1 / TURN).translate([0.5, 0.5]).precision(0);

/** The longitude of a place, from -180 to 180, in whichever of the worlds beside each other it is. */
export const lonOf = (x) => degrees(geoMercatorRaw.invert((x - Math.floor(x) - 0.5) * TURN, 0)[0]);
export const latOf = (y) => degrees(geoMercatorRaw.invert(0, (0.5 - y) * TURN)[1]);

/** The least part of the world with all these places, `[lon, lat]`; it may reach beyond x = 1. Null without any. */
export function around(places) {
  if (places.length === 0) return null;
  const [[west, south], [east, north]] = geoBounds({ type: "MultiPoint", coordinates: places });
  return { west: worldX(west), east: worldX(east) + (east < west ? 1 : 0), north: worldY(north), south: worldY(south) };
}

/** What of the world is seen: `scale` is the world's width in pixels. */
export class View {
  constructor(width = 1, height = 1) {
    this.x = 0.5;
    this.y = 0.36;
    this.scale = 512;
    this.resize(width, height);
  }

  copy() {
    return Object.assign(new View(), this);
  }

  /** The same picture of the world that lies so many worlds to the east. */
  ofWorld(number) {
    return Object.assign(this.copy(), { x: this.x - number });
  }

  resize(width, height) {
    this.width = width;
    this.height = height;
    this.#keepInside();
  }

  screenX(x) {
    return (x - this.x) * this.scale + this.width / 2;
  }

  screenY(y) {
    return (y - this.y) * this.scale + this.height / 2;
  }

  worldAt(px, py) {
    return [(px - this.width / 2) / this.scale + this.x, (py - this.height / 2) / this.scale + this.y];
  }

  /** The edges of the screen in the world; `west` may be less than 0 and `east` more than 1. */
  get west() {
    return this.x - this.width / 2 / this.scale;
  }

  get east() {
    return this.x + this.width / 2 / this.scale;
  }

  /** The numbers of the worlds beside each other of which something is seen. */
  worlds() {
    const first = Math.floor(this.west);
    return Array.from({ length: Math.floor(this.east) - first + 1 }, (_, at) => first + at);
  }

  /** Where a place at `x` is seen: at this x, and again after each world to the east. It is not seen if that is east of the screen. */
  first(x) {
    return x + Math.ceil(this.west - x);
  }

  /** Moves what is seen by so many pixels. */
  pan(dx, dy) {
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
    this.#keepInside();
  }

  /** Comes closer by a factor; what is at a point of the screen stays there. */
  zoom(factor, px = this.width / 2, py = this.height / 2) {
    const [x, y] = this.worldAt(px, py);
    this.scale *= factor;
    this.#keepInside();
    this.x = x - (px - this.width / 2) / this.scale;
    this.y = y - (py - this.height / 2) / this.scale;
    this.#keepInside();
  }

  /** Puts a place in the middle. */
  centre(x, y, scale = this.scale) {
    Object.assign(this, { x, y, scale });
    this.#keepInside();
  }

  /** Shows a part of the world with some room around. */
  fit({ west, east, north, south }) {
    const room = 0.82;
    const scale = Math.min((room * this.width) / Math.max(east - west, 1e-5), (room * this.height) / Math.max(south - north, 1e-5));
    this.centre((west + east) / 2, (north + south) / 2, scale);
  }

  /** What of the world is on the screen. */
  bounds() {
    const [west, north] = this.worldAt(0, 0);
    const [east, south] = this.worldAt(this.width, this.height);
    return { west, north, east, south };
  }

  /** Metres that a pixel stands for in the middle of the screen. */
  metresPerPixel() {
    return (EARTH_M * Math.cos(radians(latOf(this.y)))) / this.scale;
  }

  same(other) {
    return other && this.x === other.x && this.y === other.y && this.scale === other.scale && this.width === other.width && this.height === other.height;
  }

  #keepInside() {
    const farthest = Math.max(this.height, Math.min(this.width, 900) * 0.8);
    this.scale = Math.max(farthest, Math.min(CLOSEST, this.scale));
    this.x -= Math.floor(this.x);
    this.y = Math.max(0, Math.min(1, this.y));
  }
}
