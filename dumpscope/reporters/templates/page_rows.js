"use strict";
/* The rows of the page: unpacked where the browser can, else read from the tables as they stand. */

const META = JSON.parse(document.getElementById("meta").textContent);

function word(key, values) {
  let text = META.words[key];
  for (const name in values || {}) text = text.split("{" + name + "}").join(String(values[name]));
  return text;
}

function grouped(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/* At most six digits, without an exponent where it reads well: as the tables on paper. */
function real(value) {
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size && (size < 1e-4 || size >= 1e9)) return short(value);
  if (Number.isInteger(value)) return (value < 0 ? "-" : "") + grouped(size);
  if (size >= 1e5) return (value < 0 ? "-" : "") + grouped(Math.round(size));
  return short(value);
}

function short(value) {
  let [digits, power] = value.toPrecision(6).split("e");
  if (digits.includes(".")) digits = digits.replace(/\.?0+$/, "");
  if (power === undefined) return digits;
  const sign = power[0] === "-" ? "-" : "+";
  return digits + "e" + sign + power.replace(/^[+-]/, "").padStart(2, "0");
}

function written(value, kind) {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return META.labels[value ? "yes" : "no"];
  if (kind === "real") return real(value);
  if (kind === "count") return typeof value === "number" ? grouped(value) : String(value);
  if (kind === "verdict" || kind === "word") {
    return Object.hasOwn(META.labels, value) ? META.labels[value] : String(value);
  }
  return String(value);
}

/* One table: a list of values per column. */
class Rows {
  constructor(name) {
    this.columns = META.tables[name].columns;
    this.values = this.columns.map(() => []);
    this.count = 0;
    this.whole = true;
  }

  add(block) {
    block.columns.forEach((column, at) => {
      const list = this.values[at];
      for (let row = 0; row < block.rows; row++) {
        list.push(column === 0 ? null : Array.isArray(column) ? column[row] : column.from + row);
      }
    });
    const name = this.values[this.column("op_name")];
    const file = this.values[this.column("file")];
    for (let row = this.count; name && file && row < this.count + block.rows; row++) {
      /* \x01 stands for the operator's name, in which the file has _ for /. */
      if (file[row] && name[row]) {
        file[row] = file[row].split("\x01").join(name[row].replace(/\//g, "_"));
      }
    }
    this.count += block.rows;
  }

  column(name) {
    return this.columns.findIndex((column) => column.name === name);
  }

  get(row, name) {
    const at = this.column(name);
    return at < 0 ? null : this.at(row, at);
  }

  at(row, column) {
    const value = this.values[column][row];
    return value === undefined ? null : value;
  }
}

/* Resolves to the tables by name, and is never refused: what does not unpack is not there. */
async function unpackRows() {
  const tables = new Map();
  if (typeof DecompressionStream === "undefined") return tables;
  try {
    const packed = atob(document.getElementById("packed").textContent);
    const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const text = await new Response(stream).text();
    for (const line of text.split("\n")) {
      if (!line) continue;
      const block = JSON.parse(line);
      if (!tables.has(block.table)) tables.set(block.table, new Rows(block.table));
      tables.get(block.table).add(block);
    }
  } catch (error) {
    return new Map();
  }
  return tables;
}

/* Rows out of the HTML table: only what is seen, and only the first ones. */
function readRows(name, table) {
  const rows = new Rows(name);
  rows.whole = false;
  const heads = [...table.tHead.rows[0].cells].map((head) => rows.column(head.dataset.column));
  for (const line of table.tBodies[0].rows) {
    [...line.cells].forEach((cell, at) => {
      const column = rows.columns[heads[at]];
      rows.values[heads[at]].push(parsed(cell.textContent, column.kind));
    });
    rows.count += 1;
  }
  return rows;
}

function parsed(text, kind) {
  if (text === "") return null;
  if (kind === "id" || kind === "count" || kind === "real") {
    const number = Number(text.replace(/,/g, ""));
    return Number.isNaN(number) ? text : number;
  }
  if (kind === "verdict" || kind === "word") {
    const known = Object.keys(META.labels).find((key) => META.labels[key] === text);
    return known === undefined ? text : known;
  }
  return text;
}
