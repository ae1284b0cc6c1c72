// Web Mercator: the whole world is a square from 0 to 1, west to east and north to south.

/** As far north as the square goes. */
const LAST_LATITUDE = 85.051129;
const EARTH_M = 40_075_016.7;
const CLOSEST = 2 ** 25;

export const worldX = (lon) => (lon + 180) / 360;

export function worldY(lat) {
  const sin = Math.sin((Math.max(-LAST_LATITUDE, Math.min(LAST_LATITUDE, lat)) * Math.PI) / 180);
  return 0.5 - Math.log((1 + sin) / (1 - sin)) / (4 * Math.PI);
}

export const lonOf = (x) => x * 360 - 180;
export const latOf = (y) => (Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) * 180) / Math.PI;

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

  /** Shows a part of the world with some room around. */
  fit({ west, east, north, south }) {
    this.x = (west + east) / 2;
    this.y = (north + south) / 2;
    const room = 0.82;
    this.scale = Math.min((room * this.width) / Math.max(east - west, 1e-5), (room * this.height) / Math.max(south - north, 1e-5));
    this.#keepInside();
  }

  /** What of the world is on the screen. */
  bounds() {
    const [west, north] = this.worldAt(0, 0);
    const [east, south] = this.worldAt(this.width, this.height);
    return { west, north, east, south };
  }

  /** Metres that a pixel stands for in the middle of the screen. */
  metresPerPixel() {
    return (EARTH_M * Math.cos((latOf(this.y) * Math.PI) / 180)) / this.scale;
  }

  same(other) {
    return other && this.x === other.x && this.y === other.y && this.scale === other.scale && this.width === other.width && this.height === other.height;
  }

  #keepInside() {
    const farthest = Math.max(this.height, Math.min(this.width, 900) * 0.8);
    this.scale = Math.max(farthest, Math.min(CLOSEST, this.scale));
    this.x = Math.max(0, Math.min(1, this.x));
    this.y = Math.max(0, Math.min(1, this.y));
  }
}
