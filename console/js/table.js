// Tables that are renewed in place: rows keep their elements, so the focus, a selection and a screen reader's place stay. Where there is
// little room each row becomes a card (css/parts.css), and the roles are told outright, as a table that is laid out otherwise loses them.
import { el, putNew, reconcile, text } from "./dom.js";

function order(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return a < b ? -1 : 1;
}

export class Table {
  #columns;
  #key;
  #body = el("tbody", { role: "rowgroup" });
  #heads = [];
  #items = [];
  #sorted;
  #isDown;
  #empty;
  #onsort;

  /**
   * `columns`: `{ title, value(item), show(item), numeric, first }`: `value` is what is sorted by, `show` gives a text or a
   * node. `sort`: index of the first column to
   * sort by, downwards if `down`. `onsort` is told that the order is another one, for those who show a part only.
   */
  constructor({ caption, columns, key, sort = 0, down = false, empty = "Nothing here.", onsort }) {
    this.#columns = columns;
    this.#key = key;
    this.#sorted = sort;
    this.#isDown = down;
    this.#onsort = onsort;
    this.#empty = el("p", { class: "quiet empty" }, empty);
    const row = el("tr", { role: "row" }, ...columns.map((column, index) => this.#head(column, index)));
    this.table = el("table", { role: "table" }, el("caption", { class: "hidden" }, caption), el("thead", { role: "rowgroup" }, row), this.#body);
    this.root = el("div", { class: "table" }, el("div", { class: "frame" }, this.table, this.#empty));
    this.#mark();
  }

  #head(column, index) {
    const title = column.value ? el("button", { type: "button", class: "sort", onclick: () => this.#sortBy(index) }, column.title) : column.title;
    const head = el("th", { scope: "col", role: "columnheader", class: column.numeric && "number" }, title);
    this.#heads.push(head);
    return head;
  }

  #sortBy(index) {
    this.#isDown = index === this.#sorted ? !this.#isDown : Boolean(this.#columns[index].numeric);
    this.#sorted = index;
    this.#mark();
    if (this.#onsort) this.#onsort();
    else this.show(this.#items);
  }

  #mark() {
    this.#heads.forEach((head, index) => {
      if (index === this.#sorted) head.setAttribute("aria-sort", this.#isDown ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  /** The items in the chosen order; what has no value is last. */
  inOrder(items) {
    const { value } = this.#columns[this.#sorted];
    if (!value) return items;
    const keyed = items.map((item) => [value(item), item]);
    const isNone = (one) => one === null || one === undefined;
    keyed.sort(([a], [b]) => (this.#isDown && !isNone(a) && !isNone(b) ? order(b, a) : order(a, b)));
    return keyed.map(([, item]) => item);
  }

  /** Shows these; `isOrdered` if they are in order already. */
  show(items, isOrdered = false) {
    this.#items = items;
    const rows = isOrdered ? items : this.inOrder(items);
    reconcile(this.#body, rows, this.#key, (item) => this.#make(item), (row, item) => this.#renew(row, item));
    this.#empty.hidden = rows.length > 0;
    this.table.hidden = rows.length === 0;
  }

  #make(item) {
    return el("tr", { role: "row" }, ...this.#columns.map((column) => {
      const name = column.first ? "th" : "td";
      return el(name, { role: column.first ? "rowheader" : "cell", scope: column.first && "row", class: column.numeric && "number", "data-title": column.title });
    }));
  }

  #renew(row, item) {
    this.#columns.forEach((column, index) => {
      const cell = row.children[index];
      const shown = column.show(item);
      if (shown instanceof Node) putNew(cell, shown);
      else text(cell, shown);
    });
  }
}
