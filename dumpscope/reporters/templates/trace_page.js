"use strict";
(() => {
  // Columns of the operators; every text was made printable and is only ever set as text.
  const data = JSON.parse(document.getElementById("trace-data").textContent);
  const columns = data.columns;
  const count = columns.name.length;
  const page = 200;
  const byId = (id) => document.getElementById(id);
  const [rank, step, verdict, text] = ["rank", "step", "verdict", "text"].map((name) => byId("filter-" + name));
  const boxes = Array.from(document.querySelectorAll(".ts-box[data-box]"));
  const edges = Array.from(document.querySelectorAll(".ts-edge[data-from]"));
  const details = byId("details");
  const picture = byId("picture");
  let chosen = null; // the members of the box that the table is narrowed to
  let matching = [];
  let shown = page;

  const opName = (i) => data.types[columns.type[i]] + (columns.name[i] ? " " + columns.name[i] : "");
  const membersOf = (box) => data.members[Number(box.dataset.box)];
  const element = (name, content, style) => {
    const made = document.createElement(name);
    made.textContent = content;
    if (style) { made.className = style; }
    return made;
  };
  const orEmpty = (value) => (value === null ? "" : String(value));

  const fits = (i) => {
    if (rank.value !== "" && String(columns.device[i]) !== rank.value) { return false; }
    if (step.value !== "" && String(columns.step[i]) !== step.value) { return false; }
    if (verdict.value !== "" && String(columns.verdict[i]) !== verdict.value) { return false; }
    return text.value === "" || opName(i).toLowerCase().includes(text.value.toLowerCase());
  };

  const describeSource = (i) => {
    const source = columns.source[i];
    if (source < 0) { return ""; }
    const number = columns.rank[source];
    const from = number === null ? (source < count ? opName(source) : "") : "#" + number;
    return from + data.bracket.replace("{}", data.evidence[columns.evidence[i]]);
  };

  const makeRow = (i) => {
    const row = document.createElement("tr");
    row.className = "ts-" + data.styles[columns.style[i]];
    row.append(
      element("td", orEmpty(columns.rank[i]), "number"),
      element("td", data.verdicts[columns.verdict[i]], "verdict"),
      element("td", opName(i), "operator"),
      element("td", columns.bad[i], "brief"),
      element("td", orEmpty(columns.step[i]), "number"),
      element("td", orEmpty(columns.device[i]), "number"),
      element("td", orEmpty(columns.stream[i]), "number"),
      element("td", columns.since[i], "number"),
      element("td", describeSource(i), "source"),
      element("td", columns.reason[i], "reason"),
    );
    return row;
  };

  const showRows = () => {
    byId("rows").replaceChildren(...matching.slice(0, shown).map(makeRow));
    byId("more").hidden = matching.length <= shown;
    byId("shown").textContent = byId("shown").dataset.shown
      .replace("{shown}", matching.length.toLocaleString("en"))
      .replace("{count}", count.toLocaleString("en"));
  };

  const filter = () => {
    const numbers = chosen === null ? Array.from({length: count}, (_, i) => i) : chosen.filter((i) => i < count);
    matching = numbers.filter(fits);
    shown = page;
    for (const box of boxes) {
      box.classList.toggle("ts-dim", !membersOf(box).some((i) => i >= count || fits(i)));
    }
    showRows();
  };

  const linesOf = (box) => {
    const members = membersOf(box);
    const lines = [element("p", box.getAttribute("aria-label"), "head")];
    const first = members[0];
    if (!box.classList.contains("ts-pill") && first < count) {
      lines.push(element("p", columns.reason[first], ""));
      if (members.length === 1) {
        lines.push(element("p", [describeSource(first), columns.since[first]].filter(Boolean).join(", "), "soft"));
      }
    } else {
      const names = members.slice(0, 8).filter((i) => i < count).map(opName);
      lines.push(element("p", names.join(", ") + (members.length > names.length ? ", …" : ""), "soft"));
    }
    return lines;
  };

  const look = (box) => {
    details.replaceChildren(...linesOf(box));
    for (const edge of edges) {
      edge.classList.toggle("ts-lit", edge.dataset.from === box.dataset.box || edge.dataset.to === box.dataset.box);
    }
  };

  const follow = (box, key) => {
    const number = box.dataset.box;
    if (key === "ArrowRight" || key === "ArrowLeft") {
      const [here, there] = key === "ArrowRight" ? ["from", "to"] : ["to", "from"];
      const edge = edges.find((e) => e.dataset[here] === number && e.dataset[there] !== undefined);
      return edge && boxes.find((b) => b.dataset.box === edge.dataset[there]);
    }
    return boxes[boxes.indexOf(box) + (key === "ArrowDown" ? 1 : -1)];
  };

  const choose = (box) => {
    chosen = membersOf(box);
    filter();
    byId("operators").scrollIntoView({block: "start"});
  };

  for (const box of boxes) {
    box.addEventListener("pointerenter", () => look(box));
    box.addEventListener("focus", () => look(box));
    box.addEventListener("click", () => choose(box));
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        choose(box);
      } else if (event.key.startsWith("Arrow")) {
        const next = follow(box, event.key);
        if (next) {
          event.preventDefault();
          next.focus();
          next.scrollIntoView({block: "nearest", inline: "nearest"});
        }
      }
    });
  }
  for (const control of [rank, step, verdict]) { control.addEventListener("change", filter); }
  text.addEventListener("input", filter);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", () => {
    chosen = null;
    setTimeout(filter, 0);
  });
  byId("more").addEventListener("click", () => {
    shown += page;
    showRows();
  });
  const zoom = byId("zoom");
  const setFit = (fit) => {
    picture.classList.toggle("fit", fit);
    zoom.setAttribute("aria-pressed", String(fit));
    zoom.textContent = fit ? zoom.dataset.full : zoom.dataset.fit;
  };
  zoom.addEventListener("click", () => setFit(!picture.classList.contains("fit")));
  // Smaller than that nobody can read it.
  const scale = picture.clientWidth / Number(picture.firstElementChild.getAttribute("width"));
  setFit(scale < 1 && scale > 0.55);

  byId("filters").hidden = false;
  details.hidden = false;
  details.replaceChildren(element("p", details.dataset.hint, "soft"));
  filter();
})();
