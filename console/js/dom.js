// Making and renewing elements. Text goes in as text nodes only: names, topics and payloads come
// from anybody, so that what is not seen in them, or turns text around, is written out, as the
// commands do.

const SVG = "http://www.w3.org/2000/svg";

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** A child as it is put into an element: a node, or text in which all can be seen. */
function seen(child) {
  if (child instanceof Node) return child;
  return String(child).replace(UNSEEN, (unseen) => `\\u{${unseen.codePointAt(0).toString(16)}}`);
}

/** Children as they are put into an element. */
function nodes(children) {
  return children.flat().filter((child) => child !== null && child !== undefined).map(seen);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "htmlFor") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...nodes(children));
  return node;
}

/** An element: `el("button", { class: "plain", onclick: act }, "Do it")`. */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/** Sets the text of an element if it is another one; selections and screen readers are left in peace otherwise. */
export function text(node, value) {
  const next = seen(value);
  if (node.textContent !== next) node.textContent = next;
}

/** Replaces what is in an element. */
export function put(node, ...children) {
  node.replaceChildren(...nodes(children));
}

/** The same unless it is there already, so that a selection, the focus and a screen reader's place stay. */
export function putNew(node, child) {
  if (!node.firstChild?.isEqualNode(child) || node.childNodes.length !== 1) put(node, child);
}

/** Makes the children of `parent` those of `items`, in their order: `make(item)` once per key, `renew(node, item)` each time. */
export function reconcile(parent, items, keyOf, make, renew) {
  const known = (parent.known ??= new Map());
  const wanted = new Set();
  let before = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    if (wanted.has(key)) continue;
    wanted.add(key);
    let node = known.get(key);
    if (!node) {
      node = make(item);
      known.set(key, node);
    }
    renew(node, item);
    if (node === before) before = before.nextSibling;
    else parent.insertBefore(node, before);
  }
  for (const [key, node] of known) {
    if (wanted.has(key)) continue;
    node.remove();
    known.delete(key);
  }
}

/** A list of facts: pairs of a name and a text or node. */
export function facts(pairs, className = "facts") {
  const rows = pairs.filter(Boolean).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
  return el("dl", { class: className }, ...rows);
}
