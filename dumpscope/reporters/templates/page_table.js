/* A table that can be sorted, filtered, paged and looked into. Data is only ever set as text. */

const PAGE_ROWS = 100;
const PRINTED_ROWS = 1000;
const MOST_CHOICES = 300;
const UNKNOWN = "?";
const NUMBERS = new Set(["id", "count", "real"]);
const ORDER = new Intl.Collator(undefined, { numeric: true });

function make(tag, options, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options || {})) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function compare(a, b, kind) {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  if (NUMBERS.has(kind) || typeof a === "boolean") {
    const left = Number(a), right = Number(b);
    if (!Number.isNaN(left) && !Number.isNaN(right)) return left - right;
  }
  return ORDER.compare(String(a), String(b));
}

class Listing {
  constructor(section, rows, tensors) {
    this.section = section;
    this.name = section.dataset.table;
    this.rows = rows;
    this.tensors = tensors;
    this.shown = rows.columns.map((column, at) => at).filter((at) => rows.columns[at].shown);
    this.table = section.querySelector("table");
    this.filters = new Map();
    this.sort = null;
    this.page = 0;
    this.open = new Set();
    this.target = -1;
    this.perPage = PAGE_ROWS;
    this.expands = rows.whole && rows.columns.some((column, at) => !column.shown
      && rows.values[at].some((value) => value !== null && value !== undefined && value !== ""));
    this.makeHead();
    this.makeFilters();
    this.makePager();
    this.refresh();
  }

  /* --- the parts around the rows ---------------------------------------------------------- */

  makeHead() {
    const line = this.table.tHead.rows[0];
    for (const head of line.cells) {
      const at = this.rows.column(head.dataset.column);
      const text = head.textContent;
      head.textContent = "";
      head.append(make("button", {
        type: "button", text, title: word("sort_by", { column: text }),
        onclick: () => this.sortBy(at, head),
      }));
    }
    if (this.expands) {
      line.prepend(make("td", { class: "toggle-cell" }));
    }
  }

  makeFilters() {
    const form = this.section.querySelector(".filters");
    this.search = make("input", {
      type: "search", name: "search", placeholder: word("search_hint"), autocomplete: "off",
      spellcheck: "false", oninput: () => this.filterSoon(),
    });
    form.append(make("label", { text: word("search") }, this.search));
    for (const name of META.tables[this.name].facets) {
      const at = this.rows.column(name);
      const choice = at < 0 ? null : this.makeChoice(at);
      if (choice) form.append(choice);
    }
    this.clear = make("button", {
      type: "button", class: "button", text: word("clear"), onclick: () => this.clearFilters(),
    });
    this.status = make("span", { role: "status", "aria-live": "polite", class: "note" });
    form.append(this.clear, this.status);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
  }

  makeChoice(at) {
    const { name, head, kind } = this.rows.columns[at];
    const counts = new Map();
    for (let row = 0; row < this.rows.count; row++) {
      const key = this.key(row, at);
      counts.set(key, (counts.get(key) || 0) + 1);
      if (counts.size > MOST_CHOICES) return null;
    }
    if (counts.size < 2) return null;
    const select = make("select", { name, onchange: () => this.choose(at, select.value) });
    select.append(make("option", { value: "", text: word("every") }));
    const keys = [...counts.keys()].sort((a, b) => compare(a, b, kind));
    for (const key of keys) {
      const shown = key === UNKNOWN ? word("unknown_value") : this.keyText(key, at);
      select.append(make("option", { value: key, text: `${shown} (${grouped(counts.get(key))})` }));
    }
    return make("label", { text: head }, select);
  }

  makePager() {
    const pager = this.section.querySelector(".pager");
    const button = (key, step) => make("button", {
      type: "button", class: "button", text: word(key), onclick: () => this.turn(step),
    });
    this.previous = button("previous", -1);
    this.next = button("next", 1);
    this.place = make("span", { role: "status", "aria-live": "polite" });
    pager.append(this.previous, this.place, this.next);
    this.pager = pager;
  }

  /* --- what is asked ---------------------------------------------------------------------- */

  key(row, at) {
    const value = this.rows.at(row, at);
    return value === null || value === "" ? UNKNOWN : String(value);
  }

  keyText(key, at) {
    const kind = this.rows.columns[at].kind;
    if (kind === "flag") return META.labels[key === "true" ? "yes" : "no"];
    return written(key, kind);
  }

  text(row) {
    if (!this.texts) this.texts = [];
    if (this.texts[row] === undefined) {
      const words = [];
      this.rows.columns.forEach((column, at) => {
        const value = this.rows.at(row, at);
        if (typeof value === "string") words.push(value, written(value, column.kind));
        else if (column.name === "rank") words.push("#" + value);
      });
      this.texts[row] = words.join("\n").toLowerCase();
    }
    return this.texts[row];
  }

  filterSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { this.page = 0; this.refresh(); }, 120);
  }

  choose(at, key) {
    if (key === "") this.filters.delete(at);
    else this.filters.set(at, key);
    this.page = 0;
    this.refresh();
  }

  /* Filter by name and key, as a chart does; the controls follow. */
  chooseAll(wanted) {
    this.resetControls();
    for (const [name, key] of Object.entries(wanted)) {
      const select = this.section.querySelector(`select[name="${name}"]`);
      if (!select) continue;
      select.value = key;
      if (select.value === key) this.filters.set(this.rows.column(name), key);
    }
    this.page = 0;
    this.refresh();
  }

  clearFilters() {
    this.resetControls();
    this.page = 0;
    this.refresh();
    this.search.focus();
  }

  resetControls() {
    this.filters.clear();
    this.search.value = "";
    for (const select of this.section.querySelectorAll("select")) select.value = "";
  }

  sortBy(at, head) {
    const down = this.sort && this.sort.at === at && !this.sort.down;
    this.sort = { at, down: Boolean(down) };
    for (const other of this.table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    this.page = 0;
    this.refresh();
  }

  turn(step) {
    this.page += step;
    this.draw();
    this.table.closest(".scroll").scrollTop = 0;
  }

  /* --- rows ------------------------------------------------------------------------------- */

  refresh() {
    const wanted = this.search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const filters = [...this.filters];
    this.order = [];
    for (let row = 0; row < this.rows.count; row++) {
      if (filters.every(([at, key]) => this.key(row, at) === key)
        && (!wanted.length || wanted.every((part) => this.text(row).includes(part)))) {
        this.order.push(row);
      }
    }
    if (this.sort) {
      const { at, down } = this.sort;
      const kind = this.rows.columns[at].kind;
      this.order.sort((a, b) => {
        const left = this.rows.at(a, at), right = this.rows.at(b, at);
        const known = left !== null && right !== null;
        const result = compare(left, right, kind);
        return (down && known ? -result : result) || a - b;
      });
    }
    this.draw();
  }

  draw() {
    const total = this.order.length;
    const pages = Math.max(1, Math.ceil(total / this.perPage));
    this.page = Math.min(Math.max(this.page, 0), pages - 1);
    const first = this.page * this.perPage;
    const here = this.order.slice(first, first + this.perPage);
    const lines = [];
    for (const row of here) {
      lines.push(this.makeLine(row));
      if (this.open.has(row)) lines.push(this.makeDetail(row));
    }
    if (!total) {
      const cell = make("td", { colspan: this.shown.length + 1, text: word("no_match") });
      lines.push(make("tr", {}, cell));
    }
    this.table.tBodies[0].replaceChildren(...lines);
    this.status.textContent = word("shown_of", {
      shown: grouped(total), total: grouped(this.rows.count),
    });
    this.clear.disabled = !this.filters.size && !this.search.value;
    this.pager.hidden = pages < 2;
    this.previous.disabled = this.page === 0;
    this.next.disabled = this.page === pages - 1;
    this.place.textContent = word("rows_from", {
      first: grouped(first + 1), last: grouped(first + here.length), total: grouped(total),
    });
  }

  makeLine(row) {
    const line = make("tr", { "data-row": row });
    if (row === this.target) line.classList.add("target");
    if (this.expands) line.append(make("td", { class: "toggle-cell" }, this.makeToggle(row)));
    for (const at of this.shown) line.append(makeCell(this.rows.columns[at], this.rows.at(row, at)));
    return line;
  }

  makeToggle(row) {
    const open = this.open.has(row);
    return make("button", {
      type: "button", class: "toggle", text: open ? "−" : "+", "aria-expanded": String(open),
      "aria-label": word("expand", { number: row + 1 }),
      onclick: () => this.toggle(row),
    });
  }

  toggle(row) {
    if (!this.open.delete(row)) this.open.add(row);
    this.draw();
    const line = this.table.querySelector(`tr[data-row="${row}"]`);
    if (line) line.querySelector(".toggle").focus();
  }

  makeDetail(row) {
    const list = make("dl");
    this.rows.columns.forEach((column, at) => {
      const value = this.rows.at(row, at);
      if (value === null || value === "" || column.shown) return;
      const text = written(value, column.kind);
      const told = make("dd", { text });
      if (column.name === "caused_by") {
        told.textContent = "";
        told.append(make("button", {
          type: "button", class: "link", text: word("go_to", { rank: value }),
          onclick: () => this.goTo(value),
        }));
      }
      list.append(make("div", { class: text.length > 40 ? "wide" : null },
        make("dt", { text: column.head }), told));
    });
    const cell = make("td", { colspan: this.shown.length + 1 }, list);
    const rank = this.rows.get(row, "rank");
    if (rank !== null) cell.append(...this.makeTensors(rank));
    return make("tr", { class: "detail" }, cell);
  }

  makeTensors(rank) {
    if (!this.tensors) return [];
    if (!this.tensorsOf) {
      this.tensorsOf = new Map();
      for (let row = 0; row < this.tensors.count; row++) {
        const key = this.tensors.get(row, "rank");
        if (!this.tensorsOf.has(key)) this.tensorsOf.set(key, []);
        this.tensorsOf.get(key).push(row);
      }
    }
    const rows = this.tensorsOf.get(rank);
    if (!rows) {
      return rank <= META.detailed ? [] : [make("p", {
        class: "note", text: word("no_detail", { count: grouped(META.detailed) }),
      })];
    }
    const columns = this.tensors.columns.map((column, at) => at).filter(
      (at) => this.tensors.columns[at].shown
        && rows.some((row) => ![null, 0].includes(this.tensors.at(row, at))),
    );
    const heads = columns.map((at) => {
      const column = this.tensors.columns[at];
      return make("th", {
        scope: "col", text: column.head, class: NUMBERS.has(column.kind) ? "n" : null,
      });
    });
    const body = rows.map((row) => make("tr", {}, ...columns.map(
      (at) => makeCell(this.tensors.columns[at], this.tensors.at(row, at)),
    )));
    return [
      make("h4", { text: word("all_tensors") }),
      make("div", { class: "scroll" }, make("table", {},
        make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body))),
    ];
  }

  /* Show the finding of a rank with its details, whatever was filtered before. */
  goTo(rank) {
    const at = this.rows.column("rank");
    const row = this.rows.values[at].indexOf(rank);
    if (row < 0) return;
    if (!this.order.includes(row)) this.resetControls();
    this.target = row;
    if (this.expands) this.open.add(row);
    this.refresh();
    this.page = Math.floor(this.order.indexOf(row) / this.perPage);
    this.draw();
    const line = this.table.querySelector(`tr[data-row="${row}"]`);
    line.scrollIntoView({ block: "center" });
    const toggle = line.querySelector(".toggle");
    if (toggle) toggle.focus();
  }

  /* Paper cannot be paged: it gets as many rows as the page has without a script. */
  prepareForPaper(on) {
    this.perPage = on ? PRINTED_ROWS : PAGE_ROWS;
    this.draw();
  }
}

function makeCell(column, value) {
  const text = written(value, column.kind);
  const number = NUMBERS.has(column.kind) ? " n" : "";
  const cell = make("td", { class: `c-${column.name}${number}` });
  if (column.kind === "verdict" && text) {
    const group = Object.hasOwn(META.groups, value) ? META.groups[value] : "passed";
    cell.append(make("span", { class: `badge g-${group}`, text }));
  } else {
    cell.textContent = text;
  }
  return cell;
}
