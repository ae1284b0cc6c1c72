// Moving the map: by mouse, wheel, one finger, two fingers and keys.

/** A press that moves less than this (pixels) picks. */
const STILL = 5;
const WHEEL = 0.0016;
const STEP = 60;
const CLOSER = 1.6;

/** Tells `moved()` after each change of the view, and `pick(x, y)` when something is pressed. */
export function follow(canvas, view, { moved, pick }) {
  const fingers = new Map();
  let [travelled, wasMany] = [0, false];

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const spread = () => {
    const [a, b] = [...fingers.values()];
    return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, apart: Math.max(1, Math.hypot(a.x - b.x, a.y - b.y)) };
  };

  function move(event) {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const now = at(event);
    if (fingers.size === 2) {
      const from = spread();
      fingers.set(event.pointerId, now);
      const to = spread();
      view.pan(to.x - from.x, to.y - from.y);
      view.zoom(to.apart / from.apart, to.x, to.y);
    } else {
      fingers.set(event.pointerId, now);
      travelled += Math.hypot(now.x - before.x, now.y - before.y);
      if (travelled < STILL) return;
      view.pan(now.x - before.x, now.y - before.y);
    }
    moved();
  }

  function up(event) {
    if (!fingers.delete(event.pointerId)) return;
    const place = at(event);
    if (event.type === "pointerup" && fingers.size === 0 && travelled < STILL && !wasMany) pick(place.x, place.y);
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (fingers.size === 0) [travelled, wasMany] = [0, false];
    if (fingers.size >= 2) return;
    fingers.set(event.pointerId, at(event));
    if (fingers.size === 2) wasMany = true;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    const place = at(event);
    view.zoom(Math.exp(-Math.max(-400, Math.min(400, event.deltaY * lines)) * WHEEL), place.x, place.y);
    moved();
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => {
    const place = at(event);
    view.zoom(2, place.x, place.y);
    moved();
  });
}

/** Moves the view by a key; false if the key means something else. */
export function key(event, view) {
  const far = event.shiftKey ? 4 : 1;
  const step = STEP * far;
  switch (event.key) {
    case "ArrowLeft": view.pan(step, 0); break;
    case "ArrowRight": view.pan(-step, 0); break;
    case "ArrowUp": view.pan(0, step); break;
    case "ArrowDown": view.pan(0, -step); break;
    case "+": case "=": view.zoom(CLOSER); break;
    case "-": case "_": view.zoom(1 / CLOSER); break;
    default: return false;
  }
  return true;
}
